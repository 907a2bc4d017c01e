//! Fingerprints of reported objects. An object that becomes invalid keeps its last valid version.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use tracing::warn;

use super::super::object::{ObjectId, ObjectKind};
use super::super::problem::one_line;
use super::super::{Change, ObjectKey, SkippedObjects};
use super::decode::{DecodeOutcome, DecodedObject, Envelope, ObjectComplaint};
use super::log_limit::{LogDecision, LogLimit};
use super::prune::Fingerprint;
use crate::events::{Event, EventSubject, Recorder};
use crate::habits::{self, Habit};
use crate::kernel::memory;
use crate::removed_objects::RemovedObjects;

/// The most objects per kind, for valid and invalid ones each. The largest supported clusters have a tenth
/// (<https://github.com/kubernetes/community/blob/master/sig-scalability/configs-and-limits/thresholds.md>).
pub(super) const OBJECTS: usize = 1_000_000;

#[derive(Debug)]
pub(super) struct SeenObjects {
    kind: ObjectKind,
    known: HashMap<ObjectKey, LastSeen<KnownObject>>,
    refused: HashMap<ObjectKey, LastSeen<RejectedObject>>,
    /// The ignored fields last logged.
    remarked: HashMap<ObjectKey, String>,
    log_limit: LogLimit,
    /// Number of the last list.
    list: u32,
    skipped: SkippedObjects,
    events: Recorder,
    hasher: RandomState,
    removed_objects: RemovedObjects,
}

#[derive(Debug, Clone)]
struct KnownObject {
    fingerprint: Fingerprint,
    /// A hash of the UID, which distinguishes a later object of the same name.
    uid: Option<u64>,
}

/// Stores hashes, because the names of the faulty fields may be long.
#[derive(Debug, Clone, Copy)]
struct RejectedObject {
    version: u64,
    fields: u64,
}

/// `list` is the number of the last list that contained the object.
#[derive(Debug, Clone)]
struct LastSeen<T> {
    what: T,
    list: u32,
}

impl SeenObjects {
    pub(super) fn new(kind: ObjectKind, skipped: SkippedObjects, events: Recorder) -> SeenObjects {
        SeenObjects {
            kind,
            known: HashMap::new(),
            refused: HashMap::new(),
            remarked: HashMap::new(),
            log_limit: LogLimit::new(Instant::now()),
            hasher: RandomState::new(),
            list: 0,
            skipped,
            events,
            removed_objects: RemovedObjects::default(),
        }
    }

    pub(super) fn upsert(&mut self, decoded: DecodedObject) -> Option<Change> {
        let DecodedObject { key, version, uid, outcome, remarks } = decoded;
        let (list, uid) = (self.list, self.uid(&uid));
        match outcome {
            DecodeOutcome::Valid(object, fingerprint) => {
                if !self.known.contains_key(&key) && self.known.len() >= OBJECTS {
                    return self.too_many(&key);
                }
                self.remark(&key, remarks);
                self.refused.remove(&key);
                let id = ObjectId { kind: self.kind, key: key.clone() };
                let before = self.known.insert(key, LastSeen { what: KnownObject { fingerprint, uid }, list });
                let same = before.is_some_and(|before| before.what.fingerprint == fingerprint);
                if same && habits::has(Habit::RepetitionRemoves) {
                    self.known.remove(&id.key);
                    return Some(id.into_deletion());
                }
                (!same).then(|| object.to_change(&id))
            }
            DecodeOutcome::NotOurs => self.forget(key),
            DecodeOutcome::Refused(faults) => self.refuse(key, uid, version, faults),
        }
    }

    /// Ignores the deletion of an older object with the same name (by UID).
    pub(super) fn delete(&mut self, deleted: &Envelope) -> Option<Change> {
        let key = deleted.key();
        if self.another(&key, self.uid(deleted.uid())) { None } else { self.forget(key) }
    }

    fn forget(&mut self, key: ObjectKey) -> Option<Change> {
        let was_refused = self.refused.remove(&key).is_some();
        let was_remarked = self.remarked.remove(&key).is_some();
        let was_known = self.known.remove(&key).is_some();
        if was_refused || was_remarked || was_known {
            self.removed_objects.count(1);
        }
        if self.removed_objects.take_due(self.known.len() + self.refused.len()) {
            self.compact();
        }
        was_known.then_some(())?;
        Some(ObjectId { kind: self.kind, key }.into_deletion())
    }

    fn compact(&mut self) {
        memory::compact(|| {
            self.refused.shrink_to_fit();
            self.remarked.shrink_to_fit();
            self.known.shrink_to_fit();
            // Cloning also moves the keys' heap memory.
            self.refused = self.refused.clone();
            self.known = self.known.clone();
        });
    }

    /// Keeps the object's last valid version, unless the UID differs: another object may own the old addresses and
    /// ports.
    fn refuse(&mut self, key: ObjectKey, uid: Option<u64>, version: String, faults: ObjectComplaint) -> Option<Change> {
        let gone = if self.another(&key, uid) { self.known.remove(&key) } else { None }
            .map(|_| ObjectId { kind: self.kind, key: key.clone() }.into_deletion());
        let kept = match (&gone, self.known.get_mut(&key)) {
            (Some(_), _) => "; the object that had its name before is gone",
            (None, Some(known)) => {
                known.list = self.list;
                "; kept as it was"
            }
            (None, None) => "",
        };
        self.complain(&key, &version, &faults, kept);
        if self.refused.contains_key(&key) || self.refused.len() < OBJECTS {
            let hash = |text: &str| self.hasher.hash_one(text);
            let what = RejectedObject { version: hash(&version), fields: hash(&faults.fields) };
            self.refused.insert(key, LastSeen { what, list: self.list });
        }
        gone
    }

    fn another(&self, key: &ObjectKey, uid: Option<u64>) -> bool {
        let known = self.known.get(key).and_then(|known| known.what.uid);
        matches!((known, uid), (Some(known), Some(uid)) if known != uid)
    }

    fn uid(&self, uid: &str) -> Option<u64> {
        (!uid.is_empty()).then(|| self.hasher.hash_one(uid))
    }

    /// Objects of the list are reported as they arrive; objects that it lacks are removed at the end.
    pub(super) fn list_begins(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    pub(super) fn list_was_empty(&self) -> bool {
        self.known.values().all(|seen| seen.list != self.list)
    }

    pub(super) fn list_is_whole(&mut self) -> Vec<Change> {
        let list = self.list;
        self.refused.retain(|_, seen| seen.list == list);
        let gone = self.known.extract_if(|_, seen| seen.list != list);
        let gone: Vec<_> = gone.map(|(key, _)| key).collect();
        self.compact();
        gone.iter().for_each(|key| drop(self.remarked.remove(key)));
        gone.into_iter().map(|key| ObjectId { kind: self.kind, key }.into_deletion()).collect()
    }

    /// Logs ignored fields if they changed.
    fn remark(&mut self, key: &ObjectKey, remarks: ObjectComplaint) {
        if remarks.line.is_empty() {
            self.remarked.remove(key);
        } else if self.remarked.get(key) != Some(&remarks.fields) {
            self.log(&format!("{}: {}", self.name(key), remarks.line));
            self.remarked.insert(key.clone(), remarks.fields);
        }
    }

    /// Counts each invalid version; logs again only if the faulty fields change.
    fn complain(&mut self, key: &ObjectKey, version: &str, faults: &ObjectComplaint, kept: &str) {
        let before = self.refused.get(key).map(|seen| seen.what);
        if before.is_some_and(|before| before.version == self.hasher.hash_one(version)) {
            return;
        }
        self.skipped.add();
        if before.is_some_and(|before| before.fields == self.hasher.hash_one(&*faults.fields)) {
            return;
        }
        let about = match self.kind {
            ObjectKind::Service => EventSubject::Service(key.clone()),
            ObjectKind::EndpointSlice => EventSubject::EndpointSlice(key.clone()),
            ObjectKind::Node => EventSubject::Node,
            ObjectKind::ServiceCidr => EventSubject::ServiceCidr(key.name.to_string()),
        };
        self.log(&format!("{} skipped: {}{kept}", self.name(key), faults.line));
        self.events.record(Event::warning(about, "InvalidObject", "Skip", format!("{}{kept}", faults.line)));
    }

    fn too_many(&mut self, key: &ObjectKey) -> Option<Change> {
        self.skipped.add();
        self.log(&format!(
            "{} skipped: {OBJECTS} objects of this kind are tracked, which is the limit",
            self.name(key)
        ));
        None
    }

    fn name(&self, key: &ObjectKey) -> String {
        one_line(&ObjectId { kind: self.kind, key: key.clone() }.to_string())
    }

    fn log(&mut self, line: &str) {
        match self.log_limit.line(Instant::now()) {
            LogDecision::Write { suppressed: 0 } => warn!("{line}"),
            LogDecision::Write { suppressed } => {
                warn!("{suppressed} lines about other {} objects were suppressed", self.kind.name());
                warn!("{line}");
            }
            LogDecision::Last => {
                let kind = self.kind.name();
                warn!(
                    "{line}; further lines about {kind} objects are suppressed for a minute (see svcproxy_skipped_objects_total)"
                );
            }
            LogDecision::Suppress => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::{RawObject, decode};
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn service(name: &str, version: u32, port: i64) -> DecodedObject {
        let service = json!({
            "metadata": {"name": name, "namespace": "default", "resourceVersion": version.to_string()},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": port}]},
        });
        decode(ObjectKind::Service, &RawObject::Json(&to_raw_value(&service).expect("json")))
    }

    fn envelope(name: &str, uid: &str) -> Envelope {
        let object = json!({"metadata": {"name": name, "namespace": "default", "uid": uid}});
        Envelope::of(&RawObject::Json(&to_raw_value(&object).expect("json")))
    }

    fn of_uid(name: &str, uid: &str, port: i64) -> DecodedObject {
        let service = json!({
            "metadata": {"name": name, "namespace": "default", "resourceVersion": format!("{uid}{port}"), "uid": uid},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": port}]},
        });
        decode(ObjectKind::Service, &RawObject::Json(&to_raw_value(&service).expect("json")))
    }

    fn reported(change: impl IntoIterator<Item = Change>) -> Vec<String> {
        let mut reported: Vec<_> = change
            .into_iter()
            .map(|change| match change {
                Change::Service(key, service) => format!("{key}{}", if service.is_some() { "" } else { " gone" }),
                other => format!("{other:?}"),
            })
            .collect();
        reported.sort();
        reported
    }

    fn list(seen: &mut SeenObjects, objects: Vec<DecodedObject>) -> Vec<String> {
        seen.list_begins();
        let mut changes: Vec<Change> = objects.into_iter().filter_map(|object| seen.upsert(object)).collect();
        changes.extend(seen.list_is_whole());
        reported(changes)
    }

    #[test]
    fn a_second_list_reports_only_differences() {
        let mut objects = SeenObjects::new(ObjectKind::Service, SkippedObjects::default(), Recorder::default());
        let first = vec![service("a", 1, 80), service("b", 2, 80), service("c", 3, 80)];
        assert_eq!(list(&mut objects, first), ["default/a", "default/b", "default/c"]);
        let second = vec![service("a", 1, 80), service("b", 9, 80), service("d", 10, 80)];
        assert_eq!(
            list(&mut objects, second),
            ["default/c gone", "default/d"],
            "b has a new version of the same content"
        );
        assert_eq!(reported(objects.upsert(service("d", 11, 81))), ["default/d"]);
        assert_eq!(reported(objects.upsert(service("d", 11, 81))), [""; 0], "a repeated event");
        assert_eq!(reported(objects.delete(&envelope("d", ""))), ["default/d gone"]);
        assert_eq!(reported(objects.delete(&envelope("d", ""))), [""; 0]);
    }

    #[test]
    fn an_incomplete_list_removes_nothing() {
        let mut objects = SeenObjects::new(ObjectKind::Service, SkippedObjects::default(), Recorder::default());
        list(&mut objects, vec![service("a", 1, 80), service("b", 1, 80)]);
        objects.list_begins();
        assert_eq!(reported(objects.upsert(service("a", 2, 81))), ["default/a"]);
        let again = vec![service("a", 2, 81), service("b", 1, 80)];
        assert_eq!(list(&mut objects, again), [""; 0], "what the broken list reported is reported already");
        objects.list_begins();
        assert_eq!(reported(objects.upsert(service("c", 3, 80))), ["default/c"]);
        assert_eq!(list(&mut objects, vec![service("a", 2, 81)]), ["default/b gone", "default/c gone"]);
    }

    #[test]
    fn an_object_that_becomes_invalid_counts_once_and_stays_as_it_was() {
        let skipped = SkippedObjects::default();
        let (recorder, mut events) = Recorder::new();
        let mut objects = SeenObjects::new(ObjectKind::Service, skipped.clone(), recorder);
        let first = vec![service("a", 1, 80), service("b", 1, 99_999)];
        assert_eq!(list(&mut objects, first), ["default/a"]);
        assert_eq!(reported(objects.upsert(service("a", 2, 0))), [""; 0]);
        assert_eq!(skipped.total(), 2);
        let again = vec![service("a", 2, 0), service("b", 1, 99_999)];
        assert_eq!(list(&mut objects, again), [""; 0], "neither deleted nor reported again");
        assert_eq!(skipped.total(), 2);
        let reported: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert_eq!(reported.len(), 2, "{reported:?}");
        assert!(
            reported[1].note.contains("spec.ports[0].port") && reported[1].note.ends_with("; kept as it was"),
            "{reported:?}"
        );
        assert_eq!(list(&mut objects, vec![service("b", 2, 80)]), ["default/a gone", "default/b"]);
    }

    #[test]
    fn an_invalid_object_with_a_new_uid_removes_the_old_one() {
        let mut objects = SeenObjects::new(ObjectKind::Service, SkippedObjects::default(), Recorder::default());
        assert_eq!(list(&mut objects, vec![of_uid("a", "1", 80)]), ["default/a"]);
        assert_eq!(reported(objects.upsert(of_uid("a", "1", 0))), [""; 0], "the same object: kept as it was");
        assert_eq!(reported(objects.upsert(of_uid("a", "2", 0))), ["default/a gone"], "another one of its name");
        assert_eq!(reported(objects.upsert(of_uid("a", "2", 81))), ["default/a"]);
        assert_eq!(reported(objects.delete(&envelope("a", "1"))), [""; 0], "the end of the first one comes late");
        assert_eq!(list(&mut objects, vec![of_uid("a", "3", 0)]), ["default/a gone"], "in a list, too");
        assert_eq!(reported(objects.upsert(of_uid("a", "3", 82))), ["default/a"]);
        assert_eq!(reported(objects.delete(&envelope("a", "3"))), ["default/a gone"]);
    }

    #[test]
    fn each_invalid_version_counts_and_its_reason_is_logged_once() {
        let skipped = SkippedObjects::default();
        let (recorder, mut events) = Recorder::new();
        let mut objects = SeenObjects::new(ObjectKind::Service, skipped.clone(), recorder);
        (1..=500).for_each(|version| drop(objects.upsert(service("a", version, 99_999 + i64::from(version)))));
        assert_eq!(skipped.total(), 500);
        let mut reported = || std::iter::from_fn(|| events.try_recv().ok()).count();
        assert_eq!(reported(), 1, "another value of the same field is the same reason");
        objects.upsert(service("a", 501, 80));
        objects.upsert(service("a", 502, 0));
        assert_eq!(reported(), 1, "it was valid in between");
    }

    #[test]
    fn ignored_fields_are_remembered_while_they_last() {
        let service = |distribution: &str| {
            let service = json!({
                "metadata": {"name": "a", "namespace": "default"},
                "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}], "trafficDistribution": distribution},
            });
            decode(ObjectKind::Service, &RawObject::Json(&to_raw_value(&service).expect("json")))
        };
        let skipped = SkippedObjects::default();
        let (recorder, mut events) = Recorder::new();
        let mut objects = SeenObjects::new(ObjectKind::Service, skipped.clone(), recorder);
        assert_eq!(list(&mut objects, vec![service("PreferMars")]), ["default/a"]);
        let remarked = |objects: &SeenObjects| objects.remarked.values().cloned().collect::<Vec<_>>();
        assert_eq!(remarked(&objects), ["spec.trafficDistribution"]);
        assert_eq!(list(&mut objects, vec![service("PreferMars")]), [""; 0]);
        assert_eq!(remarked(&objects).len(), 1);
        list(&mut objects, vec![service("PreferSameZone")]);
        assert_eq!(remarked(&objects), [""; 0]);
        list(&mut objects, vec![service("PreferMars")]);
        list(&mut objects, Vec::new());
        assert_eq!(remarked(&objects), [""; 0], "a deleted object is forgotten");
        assert_eq!((skipped.total(), events.try_recv().is_ok()), (0, false), "nothing was skipped");
    }

    #[test]
    fn removed_objects_leave_no_capacity() {
        let mut objects = SeenObjects::new(ObjectKind::Service, SkippedObjects::default(), Recorder::default());
        let name = |number: u32| format!("service-{number}");
        let room = |objects: &SeenObjects| [objects.known.capacity(), objects.refused.capacity()];
        for number in 0..5000 {
            drop(objects.upsert(service(&name(number), 1, if number % 2 == 0 { 80 } else { 0 })));
        }
        assert_eq!([objects.known.len(), objects.refused.len()], [2500, 2500]);
        assert!(room(&objects).iter().all(|room| *room >= 2500), "{:?}", room(&objects));
        for number in 0..5000 {
            drop(objects.delete(&envelope(&name(number), "")));
        }
        assert_eq!([objects.known.len(), objects.refused.len()], [0, 0]);
        assert!(room(&objects).iter().all(|room| *room <= 2 * RemovedObjects::LEAST), "{:?}", room(&objects));
    }
}
