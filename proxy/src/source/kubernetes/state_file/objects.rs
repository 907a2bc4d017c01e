//! Objects in their encoding, which is a fraction of their size in memory.

use std::collections::{BTreeMap, BTreeSet};

use prost::bytes::Bytes;

use super::super::decode::{DecodeOutcome, RawObject, decode};
use super::super::protobuf::{EncodedObject, encode_change};
use crate::habits::{self, Habit};
use crate::model::Change;
use crate::source::object::{ObjectId, ObjectKind};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EncodedObjects(BTreeMap<ObjectId, Bytes>);

impl EncodedObjects {
    /// Returns whether anything is different now.
    pub(super) fn apply(&mut self, change: &Change) -> bool {
        let (id, bytes) = encode_change(change);
        match bytes {
            None => self.0.remove(&id).is_some(),
            Some(bytes) if self.0.get(&id).is_some_and(|known| **known == *bytes) => false,
            Some(bytes) => {
                self.0.insert(id, bytes.into());
                true
            }
        }
    }

    /// Returns false if the object is invalid: the rules are those for objects of the API.
    pub(super) fn add(&mut self, kind: ObjectKind, bytes: Bytes) -> bool {
        let decoded = decode(kind, &RawObject::Protobuf(EncodedObject::item(bytes.clone())));
        let is_valid = matches!(decoded.outcome, DecodeOutcome::Valid(..));
        if is_valid {
            self.0.insert(ObjectId { kind, key: decoded.key }, bytes);
        }
        is_valid
    }

    pub(super) fn retain_kinds(&mut self, kinds: &BTreeSet<ObjectKind>) {
        self.0.retain(|id, _| kinds.contains(&id.kind));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Bytes)> {
        self.0.iter()
    }

    pub(super) fn count(&self, kind: ObjectKind) -> usize {
        self.0.keys().filter(|id| id.kind == kind).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the changes that turn `before` into these objects.
    pub(super) fn since(&self, before: &EncodedObjects) -> Vec<Change> {
        let gone = before.0.keys().filter(|id| !self.0.contains_key(id) && !habits::has(Habit::StateFileStays));
        let gone = gone.cloned().map(ObjectId::into_deletion);
        let differs = |(id, bytes): &(&ObjectId, &Bytes)| before.0.get(id) != Some(*bytes);
        gone.chain(self.0.iter().filter(differs).filter_map(|(id, bytes)| upsert(id, bytes))).collect()
    }
}

fn upsert(id: &ObjectId, bytes: &Bytes) -> Option<Change> {
    match decode(id.kind, &RawObject::Protobuf(EncodedObject::item(bytes.clone()))).outcome {
        DecodeOutcome::Valid(object, _) => Some(object.to_change(id)),
        _ => None,
    }
}
