//! The records of all objects, and the versions of all changes, as in etcd.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::allocate::mix;
use super::kind::ObjectKind;
use super::object::ObjectKey;
use super::record::{Record, RecordChange, StoredObject};

/// 2026-01-01T00:00:00Z.
const VIRTUAL_EPOCH: i64 = 1_767_225_600;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Clock {
    /// Advances a second per change, from a fixed day, for determinism.
    #[default]
    Virtual,
    /// The system clock, for realistic ages and latencies.
    System,
}

#[derive(Debug, Clone)]
pub(super) struct Versions {
    seed: u64,
    clock: Clock,
    version: u64,
    records: BTreeMap<ObjectKind, BTreeMap<ObjectKey, Arc<Record>>>,
    /// `None` before [`Versions::record_changes`].
    untaken: Option<Vec<RecordChange>>,
}

impl Versions {
    pub(super) fn new(seed: u64) -> Self {
        Versions { seed, clock: Clock::default(), version: 1, records: BTreeMap::new(), untaken: None }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn advance(&mut self, by: u64) {
        self.version = self.version.saturating_add(by);
    }

    /// Sets the clock, and the creation time of existing objects whose manifest sets none.
    pub(super) fn use_clock(&mut self, clock: Clock) {
        self.clock = clock;
        let now = self.now();
        for record in self.records.values_mut().flat_map(BTreeMap::values_mut).filter(|record| !record.dated) {
            *record =
                Arc::new(Record { created: now.clone(), ..record.with_metadata("creationTimestamp", json!(now)) });
        }
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn record_changes(&mut self) {
        self.untaken.get_or_insert_default();
    }

    pub(super) fn take(&mut self) -> Vec<RecordChange> {
        self.untaken.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = &Arc<Record>> + use<'_> {
        self.records.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn get(&self, kind: ObjectKind, key: &ObjectKey) -> Option<&Arc<Record>> {
        self.records.get(&kind)?.get(key)
    }

    pub(super) fn now(&self) -> Time {
        let now = match self.clock {
            Clock::System => Timestamp::now(),
            Clock::Virtual => {
                let since = SignedDuration::from_secs(i64::try_from(self.version).unwrap_or(0));
                Timestamp::from_second(VIRTUAL_EPOCH).and_then(|epoch| epoch.checked_add(since)).unwrap_or_default()
            }
        };
        // metav1.Time has whole seconds.
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    /// Stores an object. Returns `false` without a new version if nothing changed. Only a new object may set
    /// `creationTimestamp`.
    pub(super) fn put<T: StoredObject>(&mut self, key: &ObjectKey, object: &mut T) -> bool {
        let before = self.get(T::STORED, key).cloned();
        let (now, next) = (self.now(), self.version + 1);
        let uid = before.as_ref().map_or_else(|| self.fresh_uid(T::STORED, key, next), |record| record.uid.clone());
        let metadata = object.metadata_mut();
        metadata.name = Some(key.name.clone());
        metadata.namespace = T::STORED.namespaced().then(|| key.namespace.clone());
        metadata.uid = Some(uid.clone());
        metadata.managed_fields = None;
        if let Some(before) = &before {
            metadata.creation_timestamp = Some(before.created.clone());
            metadata.resource_version = Some(before.version.to_string());
            if to_json(object) == before.json {
                return false;
            }
        }
        let metadata = object.metadata_mut();
        let dated = before.as_ref().map_or(metadata.creation_timestamp.is_some(), |before| before.dated);
        let created = metadata.creation_timestamp.get_or_insert(now).clone();
        self.version = next;
        object.metadata_mut().resource_version = Some(next.to_string());
        let record = Arc::new(Record {
            kind: T::STORED,
            key: key.clone(),
            uid,
            created,
            dated,
            version: next,
            labels: object.metadata().labels.clone().unwrap_or_default(),
            json: to_json(object),
        });
        self.records.entry(T::STORED).or_default().insert(key.clone(), Arc::clone(&record));
        self.note(RecordChange { before, record, deleted: false });
        true
    }

    pub(super) fn remove(&mut self, kind: ObjectKind, key: &ObjectKey) -> bool {
        let Some(before) = self.records.get_mut(&kind).and_then(|records| records.remove(key)) else {
            return false;
        };
        self.version += 1;
        let record = Arc::new(before.at_version(self.version));
        self.note(RecordChange { before: Some(before), record, deleted: true });
        true
    }

    fn note(&mut self, change: RecordChange) {
        if let Some(untaken) = &mut self.untaken {
            untaken.push(change);
        }
    }

    fn fresh_uid(&self, kind: ObjectKind, key: &ObjectKey, version: u64) -> String {
        let name = format!("{kind}/{key}@{version}");
        let (high, low) = (mix(self.seed, &name), mix(!self.seed, &name));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }
}

impl Record {
    pub(crate) fn at_version(&self, version: u64) -> Record {
        Record { version, ..self.with_metadata("resourceVersion", json!(version.to_string())) }
    }

    fn with_metadata(&self, field: &str, to: Value) -> Record {
        let mut value = self.value();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(field.to_owned(), to);
        }
        Record { json: Bytes::from(value.to_string()), ..self.clone() }
    }

    /// Returns the object's parsed JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
}

/// Serializes an object. Cannot fail: the maps of Kubernetes types have string keys.
fn to_json<T: StoredObject>(object: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(object).unwrap_or_default())
}
