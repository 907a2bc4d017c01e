//! Reports annotations of Services that have no effect here: one log line and one Event per Service and annotation.

use std::collections::BTreeMap;

use tracing::warn;

use crate::events::{Event, EventSubject, Recorder};
use crate::model::{Family, ObjectKey, ServiceAnnotation};
use crate::plan::ignored_annotations::{AnnotationIgnored, IgnoredAnnotations};

#[derive(Debug, Default)]
pub(super) struct ReportedAnnotations(BTreeMap<(ObjectKey, ServiceAnnotation), AnnotationIgnored>);

impl ReportedAnnotations {
    pub(super) fn note(&mut self, family: Family, now: &IgnoredAnnotations, events: &Recorder) {
        let now = now.by_service().into_iter().map(|((service, annotation), why)| ((service.clone(), annotation), why));
        let now: BTreeMap<_, _> = now.collect();
        for ((service, annotation), why) in now.iter().filter(|(of, why)| self.0.get(*of) != Some(why)) {
            let key = annotation.key();
            let note = format!("the annotation {key} of Service {service} has no effect on this node: {why}");
            warn!(%family, "{note}");
            let about = EventSubject::Service(service.clone());
            events.record(Event::warning(about, "AnnotationIgnored", "SyncProxyRules", note));
        }
        self.0 = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Mode};
    use crate::mode::assemble;
    use crate::mode::iptables_family::ipvs::kernel::FakeIpvsKernel;
    use crate::model::Change;
    use crate::testing::{key, object};
    use serde_json::json;

    fn web(fate: &str, balancing: &str) -> Change {
        let annotations = json!({ "svcproxy/flow-fate": fate, "svcproxy/load-balancing": balancing });
        let service = json!({
            "metadata": { "name": "web", "annotations": annotations },
            "spec": { "clusterIP": "10.96.0.1", "ports": [{ "port": 80 }, { "name": "b", "port": 81 }] },
        });
        Change::Service(key("web"), Some(object(service)))
    }

    #[test]
    fn a_service_whose_annotation_has_no_effect_is_reported_once() {
        let config = Config { mode: Mode::Ipvs, ..Config::for_node("n1") };
        let mut proxy = assemble::ipvs(&config, Family::V4, FakeIpvsKernel::default());
        let (recorder, mut events) = Recorder::new();
        let mut reported = ReportedAnnotations::default();
        for (fate, balancing) in
            [("reset", "random"), ("drain=5s", "random"), ("keep", "maglev"), ("reset", "maglev-port")]
        {
            proxy.apply(&[web(fate, balancing)]);
            proxy.sync().unwrap();
            reported.note(Family::V4, proxy.ignored_annotations(), &recorder);
        }
        let notes: Vec<String> = std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.note).collect();
        let expected = ["flow-fate", "load-balancing", "flow-fate"];
        assert_eq!(notes.len(), expected.len(), "again only after it was over: {notes:?}");
        for (note, annotation) in notes.iter().zip(expected) {
            let of = format!("the annotation svcproxy/{annotation} of Service default/web has no effect on this node");
            assert!(note.starts_with(&format!("{of}: IPVS mode")), "{notes:?}");
        }
    }
}
