use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::state::{AppliedVersions, HealthSnapshot};
use super::{HealthState, ListenError};
use crate::http::{ConnectionLimit, HttpReply, Server, immediate, json};
use crate::metrics::Metrics;
use crate::mutants::{self, HealthFacts};

#[derive(Debug)]
pub struct HealthzServer(Server);

impl HealthzServer {
    pub fn bind(
        address: SocketAddr,
        limit: &ConnectionLimit,
        state: HealthState,
        metrics: Arc<Metrics>,
    ) -> Result<HealthzServer, ListenError> {
        let handler = immediate(move |path| match path {
            "/healthz" => {
                let reply = healthz(&turned(path, state.snapshot()));
                metrics.healthz(reply.status().as_u16());
                reply
            }
            "/livez" => {
                let reply = livez(&turned(path, state.snapshot()));
                metrics.livez(reply.status().as_u16());
                reply
            }
            "/readyz" => readyz(&turned(path, state.snapshot())),
            _ => json(StatusCode::NOT_FOUND, &json!({ "error": "try /healthz, /livez or /readyz" })),
        });
        Server::bind(address, false, "/healthz", limit, handler).map(HealthzServer)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Returns what the active mutant takes the health for.
fn turned(path: &str, mut health: HealthSnapshot) -> HealthSnapshot {
    let mut facts = HealthFacts { alive: health.alive, synced: health.synced, node_eligible: health.node_eligible };
    mutants::health(path, &mut facts);
    (health.alive, health.synced, health.node_eligible) = (facts.alive, facts.synced, facts.node_eligible);
    health
}

fn healthz(health: &HealthSnapshot) -> HttpReply {
    let healthy = health.alive && health.synced;
    let ok = healthy && health.node_eligible;
    let mut body = about(health, healthy, ok);
    body.insert("nodeEligible".to_owned(), health.node_eligible.into());
    json(status(ok), &body.into())
}

/// Neither a node's deletion nor an unreachable API server at start is a reason to restart the proxy.
fn livez(health: &HealthSnapshot) -> HttpReply {
    json(status(health.alive), &about(health, health.alive, health.alive).into())
}

/// Ready once the rules are those of the API, and not of a state file.
fn readyz(health: &HealthSnapshot) -> HttpReply {
    let ready = health.alive && health.synced && health.recalled.is_none();
    json(status(ready), &about(health, ready, ready).into())
}

fn status(ok: bool) -> StatusCode {
    if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Returns kube-proxy's `ProxyHealth` (pkg/proxy/healthcheck/proxy_health.go) with additions. As in kube-proxy,
/// `healthy` ignores the node, and a family without a sync has no status.
fn about(health: &HealthSnapshot, healthy: bool, ok: bool) -> Map<String, Value> {
    let now = SystemTime::now();
    // As in kube-proxy, a healthy proxy is up to date now.
    let last_updated = if ok { Some(now) } else { health.last_updated };
    let families = health.families.iter().map(|(family, one)| {
        let reported =
            json!({ "lastSynced": one.synced.map(rfc3339), "appliedResourceVersions": versions(&one.applied) });
        (family.to_string(), reported)
    });
    let statuses: Map<String, Value> = health
        .families
        .iter()
        .filter_map(|(family, one)| {
            let reported = json!({ "lastUpdated": rfc3339(one.synced?), "healthy": !health.late.contains(family) });
            Some((family.to_string(), reported))
        })
        .collect();
    let mut body = Map::new();
    body.insert("lastUpdated".to_owned(), last_updated.map(rfc3339).into());
    body.insert("currentTime".to_owned(), rfc3339(now).into());
    body.insert("healthy".to_owned(), healthy.into());
    if !statuses.is_empty() {
        body.insert("status".to_owned(), statuses.into());
    }
    body.insert("appliedResourceVersion".to_owned(), health.applied.manifests.clone().into());
    body.insert("appliedResourceVersions".to_owned(), versions(&health.applied));
    body.insert("ipFamilies".to_owned(), families.collect::<Map<_, _>>().into());
    if let Some(of) = health.recalled {
        body.insert("stateFileOf".to_owned(), rfc3339(of).into());
    }
    body
}

fn versions(applied: &AppliedVersions) -> Value {
    json!({
        "services": applied.api.services,
        "endpointslices": applied.api.endpoint_slices,
        "nodes": applied.api.nodes,
        "servicecidrs": applied.api.service_cidrs,
    })
}

fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ask;
    use crate::model::{Family, ResourceVersions};
    use std::time::Duration;

    fn server(sync_period: Duration) -> (HealthzServer, HealthState, Arc<Metrics>) {
        let state = HealthState::new(sync_period, &Family::ALL);
        let metrics = Arc::new(Metrics::new(&Family::ALL).unwrap());
        let address = "127.0.0.1:0".parse().unwrap();
        (
            HealthzServer::bind(address, &ConnectionLimit::new("/healthz", 8), state.clone(), Arc::clone(&metrics))
                .unwrap(),
            state,
            metrics,
        )
    }

    async fn get(server: &HealthzServer, path: &str) -> (u16, Value) {
        let reply = ask(server.address(), &format!("GET {path}")).await.unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/json"), "{head}");
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    fn synced(state: &HealthState) {
        let api = ResourceVersions { services: Some("41".into()), ..ResourceVersions::default() };
        let applied = AppliedVersions { manifests: Some("42".into()), api, ..AppliedVersions::default() };
        Family::ALL.into_iter().for_each(|family| state.synced(family, &applied));
    }

    #[tokio::test]
    async fn healthz_reports_the_applied_versions() {
        let (server, state, _) = server(Duration::from_secs(30));
        synced(&state);
        for path in ["/healthz", "/livez", "/healthz?verbose"] {
            let (status, body) = get(&server, path).await;
            assert_eq!((status, &body["appliedResourceVersion"]), (200, &"42".into()), "{path}");
            let versions = json!({ "services": "41", "endpointslices": null, "nodes": null, "servicecidrs": null });
            assert_eq!(body["appliedResourceVersions"], versions);
            assert_eq!(body["ipFamilies"]["IPv6"]["appliedResourceVersions"], versions);
            for time in [&body["lastUpdated"], &body["currentTime"], &body["ipFamilies"]["IPv4"]["lastSynced"]] {
                assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{body}");
            }
        }
        assert!(ask(server.address(), "GET /metrics").await.unwrap().starts_with("HTTP/1.1 404 "));
    }

    #[tokio::test]
    async fn kube_proxys_fields_report_each_family() {
        let (server, state, _) = server(Duration::from_secs(30));
        for (path, healthy) in [("/healthz", false), ("/livez", true)] {
            let (_, body) = get(&server, path).await;
            assert_eq!((&body["healthy"], body.get("status")), (&healthy.into(), None), "{path}: {body}");
        }
        synced(&state);
        for path in ["/healthz", "/livez"] {
            let (_, body) = get(&server, path).await;
            assert_eq!(body["healthy"], true, "{path}: {body}");
            for family in ["IPv4", "IPv6"] {
                let one = &body["status"][family];
                assert_eq!(
                    (&one["healthy"], &one["lastUpdated"]),
                    (&true.into(), &body["ipFamilies"][family]["lastSynced"])
                );
            }
        }
        state.set_node_eligible(false);
        let (status, body) = get(&server, "/healthz").await;
        assert_eq!(
            (status, &body["healthy"]),
            (503, &true.into()),
            "as upstream: it is the proxy's health, not the node's"
        );
    }

    #[tokio::test]
    async fn each_family_has_its_own_status() {
        let (server, state, _) = server(Duration::ZERO);
        synced(&state);
        state.queued(Family::V6);
        for path in ["/healthz", "/livez"] {
            let (_, body) = get(&server, path).await;
            assert_eq!(body["healthy"], false, "{path}: {body}");
            assert_eq!(body["status"]["IPv4"]["healthy"], true, "{body}");
            assert_eq!(body["status"]["IPv6"]["healthy"], false, "{body}");
        }
    }

    #[tokio::test]
    async fn a_starting_proxy_and_a_leaving_node_are_alive_but_not_healthy() {
        let (server, state, metrics) = server(Duration::from_secs(30));
        assert_eq!(get(&server, "/healthz").await.0, 503, "before the first sync");
        assert_eq!(get(&server, "/livez").await.0, 200);
        synced(&state);
        let (status, body) = get(&server, "/healthz").await;
        assert_eq!((status, &body["nodeEligible"]), (200, &true.into()));
        state.set_node_eligible(false);
        let (status, body) = get(&server, "/healthz").await;
        assert_eq!((status, &body["nodeEligible"]), (503, &false.into()));
        let (status, body) = get(&server, "/livez").await;
        assert_eq!((status, body.get("nodeEligible")), (200, None));
        let text = metrics.text().unwrap();
        for line in [
            r#"kubeproxy_proxy_healthz_total{code="200"} 1"#,
            r#"kubeproxy_proxy_healthz_total{code="503"} 2"#,
            r#"kubeproxy_proxy_livez_total{code="200"} 2"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        }
    }

    #[tokio::test]
    async fn a_state_file_is_healthy_and_not_ready() {
        let (server, state, _) = server(Duration::from_secs(30));
        assert_eq!(get(&server, "/readyz").await.0, 503, "before the first sync");
        let recalled = AppliedVersions { recalled: Some(SystemTime::UNIX_EPOCH), ..AppliedVersions::default() };
        Family::ALL.into_iter().for_each(|family| state.synced(family, &recalled));
        for (path, expected) in [("/healthz", 200), ("/livez", 200), ("/readyz", 503)] {
            let (status, body) = get(&server, path).await;
            assert_eq!((status, &body["stateFileOf"]), (expected, &"1970-01-01T00:00:00Z".into()), "{path}");
        }
        synced(&state);
        let (status, body) = get(&server, "/readyz").await;
        assert_eq!((status, body.get("stateFileOf")), (200, None));
    }

    #[tokio::test]
    async fn a_change_that_waits_too_long_is_unhealthy_and_not_alive() {
        let (server, state, _) = server(Duration::ZERO);
        synced(&state);
        state.queued(Family::V6);
        assert_eq!(get(&server, "/healthz").await.0, 503);
        let (status, body) = get(&server, "/livez").await;
        assert_eq!(status, 503);
        assert_ne!(body["lastUpdated"], body["currentTime"]);
    }
}
