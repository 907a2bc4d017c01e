//! Kubernetes Events about Services that the node breaks: one per finding. The only objects that the auditor writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use svclab_audit::audit::{Finding, Report};
use svclab_snapshot::collect::NodeWatch;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::confirmation::{self, Confirmation, FindingId};
use super::status::SharedStatus;

const CONTROLLER: &str = "svclab-auditor";
const REASON: &str = "ServiceBrokenOnNode";
/// The most Events per audit, and per hour: every node of the cluster may have the same finding.
const PER_AUDIT: usize = 5;
const PER_HOUR: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);
/// A finding that returns within this time gets no second Event.
const REMEMBERED: Duration = Duration::from_secs(6 * 3600);
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest note (API reference: at most 1 kB), and longest `reportingInstance`.
const NOTE: usize = 1000;
const INSTANCE: usize = 128;
/// Leaves room for a suffix: an Event's name may have 253 characters.
const NAME: usize = 200;

/// Chooses which findings get an Event.
#[derive(Debug, Default)]
pub(super) struct EventChoice {
    announced: BTreeMap<FindingId, Instant>,
}

impl EventChoice {
    /// Returns findings to announce with the Service of each, and how many exceed the bounds: a later audit announces
    /// those.
    fn choose<'a>(
        &mut self,
        now: Instant,
        report: &'a Report,
        confirmation: &Confirmation,
    ) -> (Vec<(&'a Finding, String)>, usize) {
        let reported = confirmation.reported();
        self.announced.retain(|finding, at| reported.contains(finding) || now.duration_since(*at) < REMEMBERED);
        let recent = self.announced.values().filter(|at| now.duration_since(**at) < HOUR).count();
        let room = PER_AUDIT.min(PER_HOUR.saturating_sub(recent));
        let all = report.wrong().flat_map(|finding| confirmation::ids_of(finding).map(move |id| (id, finding)));
        let is_new =
            |id: &FindingId| service(&id.1).is_some() && reported.contains(id) && !self.announced.contains_key(id);
        let new: BTreeMap<FindingId, &Finding> = all.filter(|(id, _)| is_new(id)).collect();
        let omitted = new.len().saturating_sub(room);
        let mut chosen = Vec::new();
        for (id, finding) in new.into_iter().take(room) {
            chosen.push((finding, id.1.clone()));
            self.announced.insert(id, now);
        }
        (chosen, omitted)
    }
}

/// Writes Events on a task of its own: a slow API does not delay the audits.
#[derive(Debug)]
pub(super) struct EventWriter {
    choice: EventChoice,
    sender: mpsc::Sender<Event>,
    status: SharedStatus,
}

impl EventWriter {
    /// Needs a tokio runtime.
    pub(super) fn start(watch: Arc<NodeWatch>, status: SharedStatus) -> EventWriter {
        let (sender, events) = mpsc::channel(PER_HOUR);
        tokio::spawn(write_all(events, watch, status.clone()));
        EventWriter { choice: EventChoice::default(), sender, status }
    }

    pub(super) fn announce(&mut self, report: &Report, services: &[Service], confirmation: &Confirmation) {
        let (findings, mut omitted) = self.choice.choose(Instant::now(), report, confirmation);
        for (finding, service) in findings {
            let Some(event) = event(finding, &service, &report.node, services, Timestamp::now()) else { continue };
            omitted += usize::from(self.sender.try_send(event).is_err());
        }
        self.status.lock().events.omitted += omitted as u64;
    }
}

async fn write_all(mut events: mpsc::Receiver<Event>, watch: Arc<NodeWatch>, status: SharedStatus) {
    let mut warned = false;
    while let Some(event) = events.recv().await {
        let sent = match watch.client() {
            Ok(client) => {
                let api: Api<Event> = Api::namespaced(client, event.metadata.namespace.as_deref().unwrap_or_default());
                match timeout(PATIENCE, api.create(&PostParams::default(), &event)).await {
                    Ok(created) => created.map(drop).map_err(|error| error.to_string()),
                    Err(_) => Err(format!("no answer within {PATIENCE:?}")),
                }
            }
            Err(unread) => Err(unread.why),
        };
        let counts = &mut status.lock().events;
        match sent {
            Ok(()) => counts.sent += 1,
            Err(why) => {
                counts.failed += 1;
                if !std::mem::replace(&mut warned, true) {
                    eprintln!("svclab: cannot create Events: {why}; the audits go on without");
                }
            }
        }
    }
}

/// Returns namespace, name and port; `None` for a frontend that no Service has.
fn service(text: &str) -> Option<(&str, &str, &str)> {
    let (namespace, rest) = text.split_once('/')?;
    let (name, port) = rest.split_once(':').unwrap_or((rest, ""));
    (!namespace.starts_with('(')).then_some((namespace, name, port))
}

fn event(finding: &Finding, about: &str, node: &str, services: &[Service], now: Timestamp) -> Option<Event> {
    let (namespace, name, port) = service(about)?;
    let is_it = |service: &&Service| {
        service.metadata.namespace.as_deref() == Some(namespace) && service.metadata.name.as_deref() == Some(name)
    };
    // `kubectl describe` shows only Events with the Service's UID.
    let uid = services.iter().find(is_it).and_then(|service| service.metadata.uid.clone());
    let start = cut(name, NAME).trim_end_matches(|c: char| !c.is_alphanumeric());
    Some(Event {
        metadata: ObjectMeta {
            // client-go's format.
            name: Some(format!("{start}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            kind: Some("Service".to_owned()),
            api_version: Some("v1".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid,
            ..ObjectReference::default()
        }),
        type_: Some("Warning".to_owned()),
        reason: Some(REASON.to_owned()),
        action: Some("Audit".to_owned()),
        note: Some(note(finding, node, port)),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(cut(&format!("{CONTROLLER}-{node}"), INSTANCE).to_owned()),
        ..Event::default()
    })
}

fn note(finding: &Finding, node: &str, port: &str) -> String {
    let port = if port.is_empty() { String::new() } else { format!("port {port}, ") };
    let first = finding.calls.first().map_or("", String::as_str);
    let calls = if finding.count == 1 { "1 call".to_owned() } else { format!("{} calls", finding.count) };
    let with = match finding.service_count {
        0 | 1 => String::new(),
        many => format!(" of {many} service ports"),
    };
    let text = format!(
        "On node {node}: {} ({port}{}; {calls}{with}, for example {first}). Likely cause: {}",
        finding.title, finding.kind, finding.cause
    );
    let plain: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    cut(&plain, NOTE).to_owned()
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use svclab_snapshot::collect::RecentChanges;

    use super::super::status::tests::report;
    use super::*;

    fn confirmed(report: &Report) -> Confirmation {
        let mut confirmation = Confirmation::new(Duration::ZERO);
        let due = confirmation.found(Instant::now(), &confirmation::ids(report), &RecentChanges::default());
        confirmation.report(due);
        confirmation
    }

    #[test]
    fn a_finding_gets_one_event_and_not_one_per_audit() {
        let report = report(&["shop/web:http", "(no service)/10.96.0.1:80", "shop/unconfirmed"]);
        let mut confirmation = confirmed(&report);
        let (mut choice, start) = (EventChoice::default(), Instant::now());
        let mut others = confirmation::ids(&report);
        others.retain(|(_, service)| service != "shop/unconfirmed");
        confirmation.found(start, &others, &RecentChanges::default());
        let (events, omitted) = choice.choose(start, &report, &confirmation);
        assert_eq!(events.iter().map(|(_, service)| service.as_str()).collect::<Vec<_>>(), ["shop/web:http"]);
        assert_eq!(omitted, 0);
        for hours in [0, 1, 100] {
            assert!(choice.choose(start + HOUR * hours, &report, &confirmation).0.is_empty(), "after {hours} hours");
        }
        // It flaps: gone, and back before it is forgotten.
        let none = Confirmation::new(Duration::ZERO);
        let gone = super::super::status::tests::report(&[]);
        choice.choose(start + HOUR * 2, &gone, &none);
        assert!(choice.choose(start + HOUR * 3, &report, &confirmation).0.is_empty());
        choice.choose(start + HOUR * 10, &gone, &none);
        assert_eq!(choice.choose(start + HOUR * 11, &report, &confirmation).0.len(), 1);
    }

    #[test]
    fn events_are_bounded_per_audit_and_hour_and_none_is_lost() {
        let names: Vec<String> = (0..30).map(|number| format!("shop/s{number:02}")).collect();
        let report = report(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (confirmation, mut choice, start) = (confirmed(&report), EventChoice::default(), Instant::now());
        let mut sent = 0;
        for _ in 0..10 {
            let (events, omitted) = choice.choose(start, &report, &confirmation);
            assert!(events.len() <= PER_AUDIT);
            sent += events.len();
            assert_eq!(omitted, 30 - sent);
        }
        assert_eq!(sent, PER_HOUR);
        for _ in 0..2 {
            sent += choice.choose(start + HOUR, &report, &confirmation).0.len();
        }
        assert_eq!(sent, 30);
    }

    #[test]
    fn an_event_is_about_the_service_in_plain_words_and_fits_the_api() {
        let mut finding = report(&["shop/web:http"]).findings.remove(0);
        finding.cause = format!("a rule\u{1b}[31m {}", "é".repeat(900));
        let service: Service =
            serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": "shop", "uid": "u-1" } }))
                .unwrap();
        let now = "2026-01-01T00:00:00.000000001Z".parse().unwrap();
        let sent =
            serde_json::to_value(event(&finding, "shop/web:http", &"n".repeat(200), &[service], now).unwrap()).unwrap();
        assert_eq!(sent["metadata"], json!({ "name": "web.18867251edfa0001", "namespace": "shop" }));
        let regarding =
            json!({ "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "u-1" });
        assert_eq!(sent["regarding"], regarding);
        assert_eq!((&sent["type"], &sent["reason"]), (&"Warning".into(), &REASON.into()));
        assert_eq!(sent["reportingInstance"].as_str().unwrap().len(), INSTANCE);
        let note = sent["note"].as_str().unwrap();
        assert!(note.len() <= NOTE && !note.contains('\u{1b}'), "{note}");
        let start = "dropped that should be delivered (port http, dropped; 3 calls, for example pod default/a";
        assert!(note.contains(start), "{note}");
        assert!(event(&finding, "(no service)/10.96.0.1:80", "n", &[], now).is_none());
    }
}
