use std::time::Duration;

use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::super::problem::one_line;
use super::connector::{ApiConnection, Connector};
use super::media_type::Encoding;
use super::protobuf::encoded_event;
use crate::events::{Event, EventSubject, EventType, Recorder};
use crate::model::ObjectKey;

const CONTROLLER: &str = "svcproxy";
/// The namespace of Events about cluster-scoped objects; the API server requires one.
const NO_NAMESPACE: &str = "default";
/// The most Events at once: all nodes of a cluster may record the same one.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest note (API reference: at most 1 kB), and longest `reportingInstance`.
const NOTE: usize = 1000;
const INSTANCE: usize = 128;
/// Leaves room for a suffix: an Event's name may have 253 characters.
const NAME: usize = 200;

/// The writing task ends with the last clone of the recorder. Needs a tokio runtime.
pub fn record_events(connector: Connector, node_name: &str) -> Recorder {
    let (recorder, events) = Recorder::new();
    tokio::spawn(send_all(events, connector, node_name.to_owned()));
    recorder
}

async fn send_all(mut events: mpsc::Receiver<Event>, connector: Connector, node: String) {
    let mut allowance = EventBudget::new(Instant::now());
    while let Some(event) = events.recv().await {
        if !allowance.take(Instant::now()) {
            debug!(reason = event.reason, "too many Events: not sent");
            continue;
        }
        let failure = match timeout(PATIENCE, connector.connect()).await {
            Ok(Ok(connection)) => match timeout(PATIENCE, send(&connection, &event, &node, "")).await {
                Ok(Ok(_)) => continue,
                outcome => {
                    connector.give_up(&connection);
                    outcome
                        .map_or_else(|_| late(), |sent| sent.err().map(|error| error.to_string()).unwrap_or_default())
                }
            },
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => late(),
        };
        debug!(reason = event.reason, %failure, "an Event could not be sent");
    }
}

fn late() -> String {
    format!("no answer within {PATIENCE:?}")
}

/// Asks to create an Event about the Node that the server does not store.
pub(super) async fn try_one(connection: &ApiConnection, node: &str) -> Result<(), String> {
    let event = Event {
        kind: EventType::Normal,
        about: EventSubject::Node,
        reason: "Checking",
        action: "Check",
        note: "svcproxy check".to_owned(),
    };
    match timeout(PATIENCE, send(connection, &event, node, "?dryRun=All")).await {
        Ok(Err(kube::Error::Api(status))) => Err(format!("({}) {}", status.code, one_line(&status.message))),
        Ok(sent) => sent.map_err(|error| one_line(&error.to_string())),
        Err(_) => Err(late()),
    }
}

async fn send(connection: &ApiConnection, event: &Event, node: &str, query: &str) -> Result<(), kube::Error> {
    connection.admit(&Method::POST).await;
    let event = as_api(event, node, Timestamp::now());
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let encoding = connection.accepted.written();
    let body = match encoding {
        Encoding::Protobuf => encoded_event(&event),
        Encoding::Json => serde_json::to_vec(&event).map_err(kube::Error::SerdeError)?,
    };
    let request = Request::post(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events{query}"))
        .header(CONTENT_TYPE, encoding.media_type())
        // A refusal is read as JSON.
        .header(ACCEPT, Encoding::Json.media_type())
        .body(body)
        .map_err(kube::Error::HttpError)?;
    connection.request_text(request).await.map(drop)
}

fn as_api(event: &Event, node: &str, now: Timestamp) -> ApiEvent {
    let regarding = regarding(&event.about, node);
    let start =
        cut(regarding.name.as_deref().unwrap_or_default(), NAME).trim_end_matches(|c: char| !c.is_alphanumeric());
    ApiEvent {
        metadata: ObjectMeta {
            // client-go's format: unique unless two Events have the same nanosecond.
            name: Some(format!("{start}.{:x}", now.as_nanosecond())),
            namespace: Some(regarding.namespace.clone().unwrap_or_else(|| NO_NAMESPACE.to_owned())),
            ..ObjectMeta::default()
        },
        regarding: Some(regarding),
        type_: Some(
            match event.kind {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            }
            .to_owned(),
        ),
        reason: Some(event.reason.to_owned()),
        action: Some(event.action.to_owned()),
        note: Some(cut(&event.note, NOTE).to_owned()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(cut(&format!("{CONTROLLER}-{node}"), INSTANCE).to_owned()),
        ..ApiEvent::default()
    }
}

fn regarding(about: &EventSubject, node: &str) -> ObjectReference {
    let object = |kind: &str, version: &str, key: &ObjectKey| ObjectReference {
        kind: Some(kind.to_owned()),
        api_version: Some(version.to_owned()),
        namespace: Some(key.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
        name: Some(key.name.to_string()),
        ..ObjectReference::default()
    };
    match about {
        EventSubject::Service(key) => object("Service", "v1", key),
        EventSubject::EndpointSlice(key) => object("EndpointSlice", "discovery.k8s.io/v1", key),
        EventSubject::ServiceCidr(name) => object("ServiceCIDR", "networking.k8s.io/v1", &unscoped(name)),
        // As in kubelet: `kubectl describe node` shows Events with this UID or the Node's own.
        EventSubject::Node => ObjectReference { uid: Some(node.to_owned()), ..object("Node", "v1", &unscoped(node)) },
    }
}

fn unscoped(name: &str) -> ObjectKey {
    ObjectKey::new("", name)
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

#[derive(Debug)]
struct EventBudget {
    left: u32,
    filled: Instant,
}

impl EventBudget {
    fn new(now: Instant) -> EventBudget {
        EventBudget { left: BURST, filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        while self.left < BURST && now.duration_since(self.filled) >= REFILL {
            self.left += 1;
            self.filled += REFILL;
        }
        if self.left == BURST {
            self.filled = now;
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_fit_the_limits_of_the_api() {
        let key = ObjectKey { namespace: "shop".into(), name: "web".into() };
        let event = Event {
            kind: EventType::Warning,
            about: EventSubject::Service(key),
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            note: "é".repeat(600),
        };
        let now = "2026-01-01T00:00:00.000000001Z".parse().unwrap();
        let sent = serde_json::to_value(as_api(&event, "n1", now)).unwrap();
        assert_eq!(sent["note"].as_str().unwrap().len(), 1000);
        assert_eq!(sent["metadata"], json!({ "name": "web.18867251edfa0001", "namespace": "shop" }));
        assert_eq!(
            sent["regarding"],
            json!({ "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web" })
        );
        assert_eq!((&sent["type"], &sent["reportingInstance"]), (&"Warning".into(), &"svcproxy-n1".into()));
        let event = Event { kind: EventType::Normal, about: EventSubject::Node, ..event };
        let sent = serde_json::to_value(as_api(&event, &format!("{}.x", "n".repeat(199)), now)).unwrap();
        assert_eq!((&sent["type"], &sent["metadata"]["namespace"]), (&"Normal".into(), &"default".into()));
        assert_eq!(sent["metadata"]["name"], format!("{}.18867251edfa0001", "n".repeat(199)));
        assert_eq!(sent["regarding"]["namespace"], json!(null));
        assert_eq!(sent["reportingInstance"].as_str().unwrap().len(), 128);
    }

    #[test]
    fn events_are_rate_limited() {
        let start = Instant::now();
        let mut allowance = EventBudget::new(start);
        let taken = |allowance: &mut EventBudget, now| (0..100).filter(|_| allowance.take(now)).count();
        assert_eq!(taken(&mut allowance, start), 25);
        assert_eq!(taken(&mut allowance, start + REFILL * 3), 3);
        assert_eq!(taken(&mut allowance, start + REFILL * 1000), 25);
    }
}
