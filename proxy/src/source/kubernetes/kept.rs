//! What the source remembers of the objects that it has told about: a fingerprint each.
//!
//! The rules are those of manifests: an object that is no longer valid stays as it was; one that is gone is gone.

use std::collections::HashMap;

use tracing::warn;

use super::super::object::{Kind, ObjectId};
use super::super::{Change, ObjectKey, SkippedObjects};
use super::decode::{Decoded, Outcome};
use super::slim::Fingerprint;
use crate::events::{About, Event, EventType, Recorder};

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Kept {
    kind: Kind,
    known: HashMap<ObjectKey, Seen<Fingerprint>>,
    /// Objects that break the rules, and the version that was complained about.
    refused: HashMap<ObjectKey, Seen<String>>,
    /// What was said to be left out of account in an object.
    remarked: HashMap<ObjectKey, String>,
    /// Number of the list that is coming in or was last.
    list: u32,
    skipped: SkippedObjects,
    events: Recorder,
}

/// What is remembered of an object, and the list that it was last seen in, or after.
#[derive(Debug)]
struct Seen<T> {
    what: T,
    list: u32,
}

impl Kept {
    pub(super) fn new(kind: Kind, skipped: SkippedObjects, events: Recorder) -> Kept {
        Kept {
            kind,
            known: HashMap::new(),
            refused: HashMap::new(),
            remarked: HashMap::new(),
            list: 0,
            skipped,
            events,
        }
    }

    /// An object was added or modified, or is in a list.
    pub(super) fn here(&mut self, decoded: Decoded) -> Option<Change> {
        let Decoded { key, version, outcome, remarks } = decoded;
        self.remark(&key, remarks);
        let list = self.list;
        match outcome {
            Outcome::Valid(object, fingerprint) => {
                self.refused.remove(&key);
                let id = ObjectId { kind: self.kind, key: key.clone() };
                let before = self.known.insert(key, Seen { what: fingerprint, list });
                let same = before.is_some_and(|before| before.what == fingerprint);
                (!same).then(|| object.here(&id))
            }
            Outcome::NotOurs => self.gone(key),
            Outcome::Refused(faults) => {
                self.complain(&key, &version, &faults);
                if let Some(known) = self.known.get_mut(&key) {
                    known.list = list;
                }
                self.refused.insert(key, Seen { what: version, list });
                None
            }
        }
    }

    /// An object was deleted.
    pub(super) fn gone(&mut self, key: ObjectKey) -> Option<Change> {
        self.refused.remove(&key);
        self.remarked.remove(&key);
        self.known.remove(&key)?;
        Some(ObjectId { kind: self.kind, key }.gone())
    }

    /// A list begins to come in. Its objects are told as they come; what it does not show is gone only when it is
    /// whole.
    pub(super) fn list_begins(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// The list is whole: what it did not show.
    pub(super) fn list_is_whole(&mut self) -> Vec<Change> {
        let list = self.list;
        self.refused.retain(|_, seen| seen.list == list);
        let gone = self.known.extract_if(|_, seen| seen.list != list);
        let gone: Vec<_> = gone.map(|(key, _)| key).collect();
        gone.iter().for_each(|key| drop(self.remarked.remove(key)));
        gone.into_iter().map(|key| ObjectId { kind: self.kind, key }.gone()).collect()
    }

    /// One line for what is left out of account in an object, as long as it stays the same.
    fn remark(&mut self, key: &ObjectKey, remarks: String) {
        if remarks.is_empty() {
            self.remarked.remove(key);
        } else if self.remarked.get(key) != Some(&remarks) {
            let id = ObjectId { kind: self.kind, key: key.clone() };
            warn!("{}: {remarks}", super::super::problem::one_line(&id.to_string()));
            self.remarked.insert(key.clone(), remarks);
        }
    }

    /// One line for each version of an object that breaks the rules.
    fn complain(&self, key: &ObjectKey, version: &str, faults: &str) {
        if self.refused.get(key).is_some_and(|told| told.what == version) {
            return;
        }
        self.skipped.add();
        let id = ObjectId { kind: self.kind, key: key.clone() };
        let kept = if self.known.contains_key(key) { "; kept as it was" } else { "" };
        warn!("{} skipped: {faults}{kept}", super::super::problem::one_line(&id.to_string()));
        let about = match self.kind {
            Kind::Service => About::Service(key.clone()),
            Kind::EndpointSlice => About::EndpointSlice(key.clone()),
            Kind::Node => About::Node,
        };
        self.events.tell(Event {
            kind: EventType::Warning,
            about,
            reason: "InvalidObject",
            action: "Skip",
            note: format!("{faults}{kept}"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::decode;
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn service(name: &str, version: u32, port: i64) -> Decoded {
        let service = json!({
            "metadata": {"name": name, "namespace": "default", "resourceVersion": version.to_string()},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": port}]},
        });
        decode(Kind::Service, &to_raw_value(&service).expect("json"))
    }

    fn told(change: impl IntoIterator<Item = Change>) -> Vec<String> {
        let mut told: Vec<_> = change
            .into_iter()
            .map(|change| match change {
                Change::Service(key, service) => format!("{key}{}", if service.is_some() { "" } else { " gone" }),
                other => format!("{other:?}"),
            })
            .collect();
        told.sort();
        told
    }

    fn list(kept: &mut Kept, objects: Vec<Decoded>) -> Vec<String> {
        kept.list_begins();
        let mut changes: Vec<Change> = objects.into_iter().filter_map(|object| kept.here(object)).collect();
        changes.extend(kept.list_is_whole());
        told(changes)
    }

    #[test]
    fn a_second_list_is_told_as_a_difference() {
        let mut kept = Kept::new(Kind::Service, SkippedObjects::default(), Recorder::default());
        let first = vec![service("a", 1, 80), service("b", 2, 80), service("c", 3, 80)];
        assert_eq!(list(&mut kept, first), ["default/a", "default/b", "default/c"]);
        let second = vec![service("a", 1, 80), service("b", 9, 80), service("d", 10, 80)];
        assert_eq!(list(&mut kept, second), ["default/c gone", "default/d"], "b has a new version of the same content");
        assert_eq!(told(kept.here(service("d", 11, 81))), ["default/d"]);
        assert_eq!(told(kept.here(service("d", 11, 81))), [""; 0], "a repeated event");
        let key = |name: &str| ObjectKey { namespace: "default".into(), name: name.into() };
        assert_eq!(told(kept.gone(key("d"))), ["default/d gone"]);
        assert_eq!(told(kept.gone(key("d"))), [""; 0]);
    }

    #[test]
    fn a_list_that_breaks_off_takes_nothing_away() {
        let mut kept = Kept::new(Kind::Service, SkippedObjects::default(), Recorder::default());
        list(&mut kept, vec![service("a", 1, 80), service("b", 1, 80)]);
        kept.list_begins();
        assert_eq!(told(kept.here(service("a", 2, 81))), ["default/a"]);
        let again = vec![service("a", 2, 81), service("b", 1, 80)];
        assert_eq!(list(&mut kept, again), [""; 0], "what the broken list told is told already");
        kept.list_begins();
        assert_eq!(told(kept.here(service("c", 3, 80))), ["default/c"]);
        assert_eq!(list(&mut kept, vec![service("a", 2, 81)]), ["default/b gone", "default/c gone"]);
    }

    #[test]
    fn an_object_that_breaks_the_rules_counts_once_and_stays_as_it_was() {
        let skipped = SkippedObjects::default();
        let (recorder, mut events) = Recorder::new();
        let mut kept = Kept::new(Kind::Service, skipped.clone(), recorder);
        let first = vec![service("a", 1, 80), service("b", 1, 99_999)];
        assert_eq!(list(&mut kept, first), ["default/a"]);
        assert_eq!(told(kept.here(service("a", 2, 0))), [""; 0]);
        assert_eq!(skipped.total(), 2);
        let again = vec![service("a", 2, 0), service("b", 1, 99_999)];
        assert_eq!(list(&mut kept, again), [""; 0], "neither deleted nor told again");
        assert_eq!(skipped.total(), 2);
        let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].note.contains("spec.ports[0].port") && told[1].note.ends_with("; kept as it was"), "{told:?}");
        assert_eq!(list(&mut kept, vec![service("b", 2, 80)]), ["default/a gone", "default/b"]);
    }

    #[test]
    fn what_is_left_out_of_account_is_remembered_as_long_as_it_lasts() {
        let service = |distribution: &str| {
            let service = json!({
                "metadata": {"name": "a", "namespace": "default"},
                "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}], "trafficDistribution": distribution},
            });
            decode(Kind::Service, &to_raw_value(&service).expect("json"))
        };
        let skipped = SkippedObjects::default();
        let (recorder, mut events) = Recorder::new();
        let mut kept = Kept::new(Kind::Service, skipped.clone(), recorder);
        assert_eq!(list(&mut kept, vec![service("PreferMars")]), ["default/a"]);
        let remarked = |kept: &Kept| kept.remarked.values().cloned().collect::<Vec<_>>();
        assert!(remarked(&kept)[0].starts_with("spec.trafficDistribution: \"PreferMars\" is not one of"));
        assert_eq!(list(&mut kept, vec![service("PreferMars")]), [""; 0]);
        assert_eq!(remarked(&kept).len(), 1);
        list(&mut kept, vec![service("PreferSameZone")]);
        assert_eq!(remarked(&kept), [""; 0]);
        list(&mut kept, vec![service("PreferMars")]);
        list(&mut kept, Vec::new());
        assert_eq!(remarked(&kept), [""; 0], "an object that is gone is forgotten");
        assert_eq!((skipped.total(), events.try_recv().is_ok()), (0, false), "nothing was skipped");
    }
}
