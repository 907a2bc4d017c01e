use std::sync::Arc;

use super::kind::ObjectKind;
use super::object::ObjectKey;
use super::record::{Record, RecordChange};
use super::store::Store;
use super::versions::Clock;

impl Store {
    /// The newest `resourceVersion`; a write without a change does not increase it.
    pub fn version(&self) -> u64 {
        self.versions.version()
    }

    /// Every object of `kind`, sorted by key.
    pub fn records(&self, kind: ObjectKind) -> impl Iterator<Item = &Arc<Record>> + use<'_> {
        self.versions.of(kind)
    }

    /// The object with this key.
    pub fn record(&self, kind: ObjectKind, key: &ObjectKey) -> Option<&Arc<Record>> {
        self.versions.get(kind, key)
    }

    /// Whether the lab's EndpointSlice controller created this slice.
    pub fn is_controllers_slice(&self, slice: &ObjectKey) -> bool {
        self.endpoints.is_owner_of(slice)
    }

    pub(crate) fn record_changes(&mut self) {
        self.versions.record_changes();
    }

    pub(crate) fn take_changes(&mut self) -> Vec<RecordChange> {
        self.versions.take()
    }

    pub(crate) fn skip_versions(&mut self, by: u64) {
        self.versions.advance(by);
    }

    pub(crate) fn use_system_clock(&mut self) {
        self.versions.use_clock(Clock::System);
    }
}
