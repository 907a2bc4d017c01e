use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ZPage, answer};
use crate::http::HttpReply;

/// The version whose kube-proxy this program replaces.
const KUBERNETES: &str = "1.37";

#[derive(Debug, Clone)]
pub struct Statusz {
    started: SystemTime,
    paths: Vec<String>,
}

impl Statusz {
    pub fn new<'p>(started: SystemTime, paths: impl IntoIterator<Item = &'p str>) -> Statusz {
        let first = |path: &'p str| path.split('/').nth(1).filter(|part| !part.is_empty());
        let mut paths: Vec<String> = paths.into_iter().filter_map(first).map(|part| format!("/{part}")).collect();
        paths.sort_unstable();
        paths.dedup();
        Statusz { started, paths }
    }

    pub fn answer(&self, accept: &str) -> HttpReply {
        answer(self, accept)
    }

    fn up(&self) -> u64 {
        self.started.elapsed().map_or(0, |up| up.as_secs())
    }

    fn started(&self) -> Timestamp {
        let started = Timestamp::try_from(self.started).unwrap_or(Timestamp::UNIX_EPOCH);
        Timestamp::from_second(started.as_second()).unwrap_or(started)
    }
}

impl ZPage for Statusz {
    const KIND: &'static str = "Statusz";

    fn text(&self) -> String {
        let up = self.up();
        format!(
            "\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nBinary version: {}\nEmulation version: {KUBERNETES}\nPaths: {}\n",
            self.started().strftime("%a %b %e %H:%M:%S UTC %Y"),
            up / 3600,
            up / 60 % 60,
            up % 60,
            env!("CARGO_PKG_VERSION"),
            self.paths.join(" "),
        )
    }

    fn fields(&self) -> Value {
        json!({
            "startTime": self.started().to_string(),
            "uptimeSeconds": self.up(),
            // A required field of the API.
            "goVersion": "",
            "binaryVersion": env!("CARGO_PKG_VERSION"),
            "emulationVersion": KUBERNETES,
            "paths": self.paths,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::time::Duration;

    async fn body(reply: HttpReply) -> String {
        String::from_utf8(reply.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    fn page() -> Statusz {
        let started = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_225_600_900);
        Statusz::new(started, ["/metrics", "/metrics/slis", "/configz"])
    }

    #[tokio::test]
    async fn the_default_format_is_text() {
        let text = body(page().answer("*/*")).await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[1], lines[4]), ("svcproxy statusz", "Started: Thu Jan  1 00:00:00 UTC 2026"), "{text}");
        assert!(lines[2].starts_with("Warning: This endpoint is not meant to be machine parseable,"), "{text}");
        assert!(lines[5].starts_with("Up: ") && lines[5].ends_with(" sec"), "{text}");
        assert_eq!(lines[7..], ["Emulation version: 1.37", "Paths: /configz /metrics"], "{text}");
    }

    #[tokio::test]
    async fn an_object_is_returned_on_request() {
        let reply = page().answer("application/json;v=v1beta1;g=config.k8s.io;as=Statusz");
        assert_eq!(reply.headers()["content-type"], "application/json");
        assert!(!reply.headers().contains_key("warning"));
        let mut reported: Value = serde_json::from_str(&body(reply).await).unwrap();
        assert!(reported["uptimeSeconds"].take().as_u64().unwrap() > 0);
        let expected = json!({
            "apiVersion": "config.k8s.io/v1beta1", "kind": "Statusz", "metadata": { "name": "svcproxy" },
            "startTime": "2026-01-01T00:00:00Z", "uptimeSeconds": null, "goVersion": "",
            "binaryVersion": env!("CARGO_PKG_VERSION"), "emulationVersion": "1.37", "paths": ["/configz", "/metrics"],
        });
        assert_eq!(reported, expected);
        let reply = page().answer("application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz");
        assert_eq!(reply.headers()["content-type"], "application/yaml");
        assert!(
            reply.headers()["warning"].to_str().unwrap().starts_with("299 - \"This version of the statusz endpoint")
        );
        assert!(body(reply).await.contains("apiVersion: config.k8s.io/v1alpha1"));
    }

    #[tokio::test]
    async fn an_unsupported_format_is_not_acceptable() {
        let reply = page().answer("application/json");
        assert_eq!(reply.status(), 406);
        let reported: Value = serde_json::from_str(&body(reply).await).unwrap();
        assert_eq!((&reported["kind"], &reported["reason"]), (&"Status".into(), &"NotAcceptable".into()));
    }
}
