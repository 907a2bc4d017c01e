use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ZPage, answer};
use crate::http::HttpReply;

#[derive(Debug, Clone, Default)]
pub struct Flagz {
    flags: BTreeMap<String, String>,
}

impl Flagz {
    /// `flags` maps names without dashes to values.
    pub fn new(flags: BTreeMap<String, String>) -> Flagz {
        Flagz { flags }
    }

    pub fn answer(&self, accept: &str) -> HttpReply {
        answer(self, accept)
    }
}

impl ZPage for Flagz {
    const KIND: &'static str = "Flagz";

    fn text(&self) -> String {
        self.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn fields(&self) -> Value {
        json!({ "flags": self.flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn flags_are_sorted() {
        let flags = [("v", "2"), ("bind-address", "::")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let page = Flagz::new(flags.into());
        let body = async |accept| page.answer(accept).into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body("").await.to_vec()).unwrap();
        assert!(
            text.starts_with("\nsvcproxy flagz\nWarning: ") && text.ends_with("\nbind-address=::\nv=2\n"),
            "{text}"
        );
        let reported: Value =
            serde_json::from_slice(&body("application/json;v=v1beta1;g=config.k8s.io;as=Flagz").await).unwrap();
        let expected = json!({
            "apiVersion": "config.k8s.io/v1beta1", "kind": "Flagz", "metadata": { "name": "svcproxy" },
            "flags": { "bind-address": "::", "v": "2" },
        });
        assert_eq!(reported, expected);
    }
}
