use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::Value;

use super::kind::ObjectKind;
use super::object::ObjectKey;
use super::record::{Record, RecordChange};
use super::store::Store;
use super::versions::Clock;

/// The taint of nodes that the cluster autoscaler is about to delete.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

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

    /// The nodes that are about to be deleted: `/healthz` of their proxies answers 503 (KEP-3836).
    pub fn leaving_nodes(&self) -> BTreeSet<String> {
        let is_leaving = |record: &&Arc<Record>| {
            let node: Value = serde_json::from_slice(&record.json).unwrap_or_default();
            let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
            node["metadata"]["deletionTimestamp"].is_string() || taints.any(|taint| taint["key"] == TO_BE_DELETED)
        };
        let leaving = self.records(ObjectKind::Node).filter(is_leaving);
        leaving.map(|record| record.key.name.clone()).collect()
    }

    /// The ranges of all ServiceCIDRs.
    pub(super) fn service_cidr_ranges(&self) -> Vec<IpNet> {
        let ranges = |record: &Arc<Record>| {
            let object: Value = serde_json::from_slice(&record.json).unwrap_or_default();
            let texts = object["spec"]["cidrs"].as_array().cloned().unwrap_or_default();
            texts.into_iter().filter_map(|text| text.as_str()?.parse().ok()).collect::<Vec<IpNet>>()
        };
        self.records(ObjectKind::ServiceCidr).flat_map(ranges).collect()
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
