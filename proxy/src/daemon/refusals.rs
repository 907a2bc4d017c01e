//! Reports service ports whose rules the kernel refuses: one log line and one Event each.

use std::collections::BTreeMap;

use tracing::{error, info};

use crate::events::{Event, EventSubject, Recorder};
use crate::model::{Family, ServicePortName};

#[derive(Debug, Default)]
pub(super) struct Refusals {
    standing: BTreeMap<ServicePortName, String>,
}

impl Refusals {
    pub(super) fn note(&mut self, family: Family, now: &BTreeMap<ServicePortName, String>, events: &Recorder) {
        if self.standing == *now {
            return;
        }
        for name in self.standing.keys().filter(|name| !now.contains_key(name)) {
            info!(%family, "the kernel no longer refuses rules of {name}");
        }
        for (name, problem) in now.iter().filter(|(name, _)| !self.standing.contains_key(name)) {
            let service = &name.service;
            let note = format!(
                "the kernel refuses {family} rules of the port {name} of Service {service}, which are left as they were until it changes: {problem}"
            );
            error!("{note}");
            events.record(Event::warning(
                EventSubject::Service(service.clone()),
                "RulesRefused",
                "SyncProxyRules",
                note,
            ));
        }
        self.standing.clone_from(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;
    use crate::testing::port_name;

    #[test]
    fn a_refusal_is_reported_once_and_again_after_it_ended() {
        let name = ServicePortName { port: "http".into(), ..port_name("web", Protocol::Tcp) };
        let service = name.service.clone();
        let (recorder, mut events) = Recorder::new();
        let mut refusals = Refusals::default();
        let refused = BTreeMap::from([(name, "no such extension".to_owned())]);
        for now in [&refused, &refused, &BTreeMap::new(), &refused] {
            refusals.note(Family::V4, now, &recorder);
        }
        let reported: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert_eq!(reported.len(), 2);
        assert_eq!(reported[0].about, EventSubject::Service(service));
        assert!(reported[0].note.contains("no such extension"), "{}", reported[0].note);
    }
}
