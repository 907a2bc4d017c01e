//! Reports Services whose annotation about established connections has no effect here: one log line and one Event per
//! Service.

use std::collections::BTreeMap;

use tracing::warn;

use crate::events::{Event, EventSubject, Recorder};
use crate::model::{Family, ObjectKey, ServiceAnnotation};
use crate::plan::FateIgnored;
use crate::plan::flow_fate::IgnoredFates;

#[derive(Debug, Default)]
pub(super) struct ReportedFates(BTreeMap<ObjectKey, FateIgnored>);

impl ReportedFates {
    pub(super) fn note(&mut self, family: Family, now: &IgnoredFates, events: &Recorder) {
        let now = now.by_service();
        for (service, why) in now.iter().filter(|(service, why)| self.0.get(**service) != Some(why)) {
            let key = ServiceAnnotation::FlowFate.key();
            let note = format!("the annotation {key} of Service {service} has no effect on this node: {why}");
            warn!(%family, "{note}");
            let about = EventSubject::Service((*service).clone());
            events.record(Event::warning(about, "AnnotationIgnored", "SyncProxyRules", note));
        }
        self.0 = now.into_iter().map(|(service, why)| (service.clone(), why)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::kernel::iptables::FakeIptables;
    use crate::mode::assemble;
    use crate::model::Change;
    use crate::testing::{key, object};
    use serde_json::json;

    fn web(fate: &str) -> Change {
        let service = json!({
            "metadata": { "name": "web", "annotations": { "svcproxy/flow-fate": fate } },
            "spec": { "clusterIP": "10.96.0.1", "ports": [{ "port": 80 }, { "name": "b", "port": 81 }] },
        });
        Change::Service(key("web"), Some(object(service)))
    }

    #[test]
    fn a_service_whose_annotation_has_no_effect_is_reported_once() {
        let mut proxy = assemble::iptables(&Config::for_node("n1"), Family::V4, FakeIptables::default());
        let (recorder, mut events) = Recorder::new();
        let mut reported = ReportedFates::default();
        for fate in ["reset", "drain=5s", "keep", "reset"] {
            proxy.apply(&[web(fate)]);
            proxy.sync().unwrap();
            reported.note(Family::V4, proxy.ignored_fates(), &recorder);
        }
        let notes: Vec<String> = std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.note).collect();
        assert_eq!(notes.len(), 2, "again only after it was over: {notes:?}");
        let beginning =
            "the annotation svcproxy/flow-fate of Service default/web has no effect on this node: iptables mode";
        assert!(notes[0].starts_with(beginning), "{notes:?}");
    }
}
