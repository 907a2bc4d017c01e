//! What the source remembers of the objects that it has told about: a fingerprint each.
//!
//! The rules are those of manifests: an object that is no longer valid stays as it was; one that is gone is gone.

use std::collections::HashMap;

use tracing::warn;

use super::super::object::{Kind, ObjectId};
use super::super::{Change, ObjectKey};
use super::SkippedObjects;
use super::decode::{Decoded, Outcome};
use super::slim::Fingerprint;

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Kept {
    kind: Kind,
    known: HashMap<ObjectKey, Fingerprint>,
    /// Objects that break the rules, and the version that was complained about.
    refused: HashMap<ObjectKey, String>,
    skipped: SkippedObjects,
}

/// A list that is coming in. Nothing of it counts before it is whole.
#[derive(Debug, Default)]
pub(super) struct Listing {
    seen: HashMap<ObjectKey, Fingerprint>,
    refused: HashMap<ObjectKey, String>,
    changes: Vec<Change>,
}

impl Kept {
    pub(super) fn new(kind: Kind, skipped: SkippedObjects) -> Kept {
        Kept { kind, known: HashMap::new(), refused: HashMap::new(), skipped }
    }

    /// An object was added or modified.
    pub(super) fn here(&mut self, decoded: Decoded) -> Option<Change> {
        let Decoded { key, version, outcome } = decoded;
        match outcome {
            Outcome::Valid(object, fingerprint) => {
                self.refused.remove(&key);
                let id = ObjectId { kind: self.kind, key: key.clone() };
                let same = self.known.insert(key, fingerprint) == Some(fingerprint);
                (!same).then(|| object.here(&id))
            }
            Outcome::NotOurs => self.gone(key),
            Outcome::Refused(faults) => {
                self.complain(&key, &version, &faults);
                self.refused.insert(key, version);
                None
            }
        }
    }

    /// An object was deleted.
    pub(super) fn gone(&mut self, key: ObjectKey) -> Option<Change> {
        self.refused.remove(&key);
        self.known.remove(&key)?;
        Some(ObjectId { kind: self.kind, key }.gone())
    }

    /// An object is in a list.
    pub(super) fn listed(&self, listing: &mut Listing, decoded: Decoded) {
        let Decoded { key, version, outcome } = decoded;
        match outcome {
            Outcome::Valid(object, fingerprint) => {
                if self.known.get(&key) != Some(&fingerprint) {
                    let id = ObjectId { kind: self.kind, key: key.clone() };
                    listing.changes.push(object.here(&id));
                }
                listing.seen.insert(key, fingerprint);
            }
            Outcome::NotOurs => {}
            Outcome::Refused(faults) => {
                self.complain(&key, &version, &faults);
                if let Some(fingerprint) = self.known.get(&key) {
                    listing.seen.insert(key.clone(), *fingerprint);
                }
                listing.refused.insert(key, version);
            }
        }
    }

    /// The list is whole: what leads from what was known to it.
    pub(super) fn whole(&mut self, listing: Listing) -> Vec<Change> {
        let Listing { seen, refused, mut changes } = listing;
        let gone = self.known.keys().filter(|key| !seen.contains_key(*key));
        changes.extend(gone.map(|key| ObjectId { kind: self.kind, key: key.clone() }.gone()));
        (self.known, self.refused) = (seen, refused);
        changes
    }

    /// One line for each version of an object that breaks the rules.
    fn complain(&self, key: &ObjectKey, version: &str, faults: &str) {
        if self.refused.get(key).is_some_and(|told| told == version) {
            return;
        }
        self.skipped.add();
        let id = ObjectId { kind: self.kind, key: key.clone() };
        let kept = if self.known.contains_key(key) { "; kept as it was" } else { "" };
        warn!("{} skipped: {faults}{kept}", super::super::problem::one_line(&id.to_string()));
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
        let mut listing = Listing::default();
        objects.into_iter().for_each(|object| kept.listed(&mut listing, object));
        told(kept.whole(listing))
    }

    #[test]
    fn a_second_list_is_told_as_a_difference() {
        let mut kept = Kept::new(Kind::Service, SkippedObjects::default());
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
    fn a_list_that_breaks_off_changes_nothing() {
        let mut kept = Kept::new(Kind::Service, SkippedObjects::default());
        list(&mut kept, vec![service("a", 1, 80)]);
        let mut broken = Listing::default();
        kept.listed(&mut broken, service("a", 2, 81));
        drop(broken);
        assert_eq!(list(&mut kept, vec![service("a", 2, 81)]), ["default/a"]);
    }

    #[test]
    fn an_object_that_breaks_the_rules_counts_once_and_stays_as_it_was() {
        let skipped = SkippedObjects::default();
        let mut kept = Kept::new(Kind::Service, skipped.clone());
        let first = vec![service("a", 1, 80), service("b", 1, 99_999)];
        assert_eq!(list(&mut kept, first), ["default/a"]);
        assert_eq!(told(kept.here(service("a", 2, 0))), [""; 0]);
        assert_eq!(skipped.total(), 2);
        let again = vec![service("a", 2, 0), service("b", 1, 99_999)];
        assert_eq!(list(&mut kept, again), [""; 0], "neither deleted nor told again");
        assert_eq!(skipped.total(), 2);
        assert_eq!(list(&mut kept, vec![service("b", 2, 80)]), ["default/a gone", "default/b"]);
    }
}
