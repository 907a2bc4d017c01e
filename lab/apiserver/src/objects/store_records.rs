//! The store as the API server sees it: records, versions, changes.

use std::sync::Arc;

use super::kind::ObjectKind;
use super::object::ObjectKey;
use super::record::{Record, RecordChange};
use super::store::Store;
use super::versions::Clock;

impl Store {
    /// Rises with every change of any object; writing what is there already changes nothing.
    pub fn version(&self) -> u64 {
        self.versions.version()
    }

    /// Every object of `kind`, sorted by name.
    pub fn records(&self, kind: ObjectKind) -> impl Iterator<Item = &Arc<Record>> + use<'_> {
        self.versions.of(kind)
    }

    /// One object.
    pub fn record(&self, kind: ObjectKind, key: &ObjectKey) -> Option<&Arc<Record>> {
        self.versions.get(kind, key)
    }

    /// Whether the lab's own EndpointSlice controller has made this slice.
    pub fn is_controllers_slice(&self, slice: &ObjectKey) -> bool {
        self.endpoints.is_owner_of(slice)
    }

    /// Keeps every change from now on until [`Store::take_changes`] fetches it.
    pub fn record_changes(&mut self) {
        self.versions.record_changes();
    }

    /// The changes since the last call, in the order of their versions.
    pub fn take_changes(&mut self) -> Vec<RecordChange> {
        self.versions.take()
    }

    /// Lets versions go by, as if other objects of the cluster had changed.
    pub fn skip_versions(&mut self, by: u64) {
        self.versions.advance(by);
    }

    /// Timestamps come from the machine's clock from now on, and what is there counts as made now.
    pub fn use_system_clock(&mut self) {
        self.versions.use_clock(Clock::System);
    }
}
