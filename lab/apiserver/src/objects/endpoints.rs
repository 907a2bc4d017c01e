//! The EndpointSlice controller, run after each change for the affected Services.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::error::ObjectError;
use super::kind::ObjectKind;
use super::labels::LabelIndex;
use super::object::{Object, ObjectKey, key_of};
use super::pod::PodEntry;
use super::store::Store;
use super::versions::Clock;
use super::workloads::controller_of;
use super::{slice_packing, slices};

/// The annotation with the start of kube-proxy's network programming latency.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

#[derive(Debug, Clone, Default)]
pub(super) struct EndpointController {
    /// The controller's slices by Service.
    slices: BTreeMap<ObjectKey, Vec<EndpointSlice>>,
    /// The Service of each slice in `slices`.
    owners: BTreeMap<ObjectKey, ObjectKey>,
    pods: LabelIndex,
    /// The Services by the first label of their selector.
    selectors: LabelIndex,
    /// Services that select pods of missing Nodes. kube-controller-manager syncs such a Service again and again, with a
    /// back-off that doubles from one second.
    incomplete: BTreeSet<ObjectKey>,
    /// Whether a client reads Endpoints.
    pub(super) has_endpoints: bool,
}

impl EndpointController {
    pub(super) fn slices_of(&self, service: &ObjectKey) -> &[EndpointSlice] {
        self.slices.get(service).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_owner_of(&self, slice: &ObjectKey) -> bool {
        self.owners.contains_key(slice)
    }
}

/// Returns the label that indexes the Service; every selected pod has the label.
fn first_selector_label(service: &Service) -> Option<(&String, &String)> {
    service.spec.as_ref()?.selector.as_ref()?.first_key_value()
}

impl Store {
    pub(super) fn pod_changed(&mut self, key: &ObjectKey, before: Option<&PodEntry>) {
        let now = self.pods.get(key);
        if let Some(before) = before {
            self.endpoints.pods.remove(key, &before.labels);
        }
        if let Some(now) = now {
            self.endpoints.pods.insert(key, &now.labels);
        }
        let labels = before.into_iter().chain(now).flat_map(|pod| &pod.labels);
        let mut concerned: Vec<ObjectKey> = labels
            .flat_map(|(name, value)| self.endpoints.selectors.with(&key.namespace, name, value))
            .filter(|service| {
                let selects = |pod: Option<&PodEntry>| {
                    pod.zip(self.services.get(service)).is_some_and(|(pod, service)| slices::selects(service, pod))
                };
                selects(before) || selects(now)
            })
            .cloned()
            .collect();
        concerned.sort();
        concerned.dedup();
        for service in concerned {
            self.rebuild(&service);
        }
        let owners = before.into_iter().chain(self.pods.get(key)).filter_map(|pod| controller_of(&pod.object.metadata));
        let owners: Vec<ObjectKey> = owners.map(|owner| ObjectKey::new(Some(&key.namespace), &owner.name)).collect();
        owners.into_iter().for_each(|owner| self.workloads.enqueue(ObjectKind::ReplicaSet, owner));
    }

    pub(super) fn service_changed(&mut self, key: &ObjectKey, before: Option<&Service>) {
        if let Some(before) = before {
            self.endpoints.selectors.remove(key, first_selector_label(before));
        }
        if let Some(now) = self.services.get(key) {
            self.endpoints.selectors.insert(key, first_selector_label(now));
        }
        self.rebuild(key);
    }

    /// Syncs only Services that failed before: the real controller has no other reaction to Nodes, so that other slices
    /// keep the zones and the endpoints of changed Nodes until something else concerns them.
    pub(super) fn nodes_changed(&mut self) {
        for key in self.endpoints.incomplete.clone() {
            self.rebuild(&key);
        }
    }

    fn rebuild(&mut self, key: &ObjectKey) {
        self.endpoints.incomplete.remove(key);
        // The controller ignores a Service that has lost its selector, and leaves its slices unchanged.
        if self.services.get(key).is_some_and(|service| !slices::is_managed(service)) {
            return;
        }
        let current = self.endpoints.slices.remove(key).unwrap_or_default();
        let mut wanted = self.wanted(key, &current);
        self.sync_endpoints(key, &wanted);
        for slice in &current {
            if !wanted.iter().any(|wanted| wanted.metadata.name == slice.metadata.name) {
                let gone = name_of(slice, key);
                self.versions.remove(ObjectKind::EndpointSlice, &gone);
                self.endpoints.owners.remove(&gone);
            }
        }
        for slice in &mut wanted {
            let name = name_of(slice, key);
            match self.stored_slice(&name) {
                Some(stored) if slices::is_same_to_controller(&stored, slice) => *slice = stored,
                stored => {
                    let before = current.iter().find(|before| before.metadata.name == slice.metadata.name);
                    slice.metadata.generation = Some(generation(stored.as_ref(), slice));
                    self.carry_over_annotations(slice, before);
                    self.put(&name, slice);
                }
            }
            self.endpoints.owners.insert(name, key.clone());
        }
        if !wanted.is_empty() {
            self.endpoints.slices.insert(key.clone(), wanted);
        }
    }

    fn wanted(&mut self, key: &ObjectKey, current: &[EndpointSlice]) -> Vec<EndpointSlice> {
        let Some(service) = self.services.get(key).filter(|service| slices::is_managed(service)) else {
            return Vec::new();
        };
        let Some((name, value)) = first_selector_label(service) else { return Vec::new() };
        let pods = self.endpoints.pods.with(&key.namespace, name, value);
        let selected: Vec<_> = pods
            .filter_map(|key| self.pods.get_key_value(key))
            .filter(|(_, pod)| slices::selects(service, pod) && pod.has_endpoint())
            .collect();
        let published = slices::publishes_not_ready(service);
        let present = |pod: &PodEntry| published || self.has_node(&pod.spec.node);
        let (selected, left_out): (Vec<_>, Vec<_>) = selected.into_iter().partition(|(_, pod)| present(pod));
        let groups = slices::endpoint_groups(service, selected.into_iter(), |node| self.zone_of(node));
        if !left_out.is_empty() {
            self.endpoints.incomplete.insert(key.clone());
        }
        let taken = |name: &str| {
            let slice = ObjectKey { namespace: key.namespace.clone(), name: name.to_owned() };
            let owner = self.endpoints.owners.get(&slice);
            owner.map_or_else(|| self.versions.get(ObjectKind::EndpointSlice, &slice).is_some(), |owner| owner != key)
        };
        slice_packing::pack(key, service, current, groups, self.options.max_endpoints_per_slice, taken)
    }

    fn carry_over_annotations(&self, slice: &mut EndpointSlice, before: Option<&EndpointSlice>) {
        let same = before.is_some_and(|before| before.endpoints == slice.endpoints && before.ports == slice.ports);
        slice.metadata.annotations = before.and_then(|before| before.metadata.annotations.clone());
        if !same && self.versions.clock() == Clock::System {
            let now = jiff::Timestamp::now().to_string();
            slice.metadata.annotations.get_or_insert_default().insert(TRIGGER.to_owned(), now);
        }
    }

    /// Stores a slice; the controller then restores its own. Watches see both changes.
    pub(super) fn apply_slice(&mut self, mut slice: EndpointSlice) -> Result<String, ObjectError> {
        let key = key_of(&slice.metadata, "endpointslice")?;
        set_port_defaults(&mut slice);
        slice.metadata.generation = Some(generation(self.stored_slice(&key).as_ref(), &slice));
        self.put(&key, &mut slice);
        if let Some(owner) = self.endpoints.owners.get(&key).cloned() {
            self.rebuild(&owner);
        }
        Ok(format!("endpointslice/{key}"))
    }

    fn stored_slice(&self, key: &ObjectKey) -> Option<EndpointSlice> {
        let record = self.versions.get(ObjectKind::EndpointSlice, key)?;
        match Object::from_value(ObjectKind::EndpointSlice, &record.value()) {
            Ok((Object::EndpointSlice(slice), _)) => Some(*slice),
            _ => None,
        }
    }

    /// Removes a slice; the controller recreates its own slices with a new UID.
    pub(super) fn remove_slice(&mut self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.versions.remove(ObjectKind::EndpointSlice, key);
        if let Some(owner) = self.endpoints.owners.get(key).cloned() {
            if self.services.get(&owner).is_some_and(|service| !slices::is_managed(service)) {
                self.endpoints.owners.remove(key);
                let left = self.endpoints.slices.entry(owner).or_default();
                left.retain(|slice| slice.metadata.name.as_deref() != Some(&key.name));
                return Ok(());
            }
            self.rebuild(&owner);
        }
        Ok(())
    }
}

/// Applies `SetDefaults_EndpointPort` (pkg/apis/discovery/v1/defaults.go), on which proxies rely.
fn set_port_defaults(slice: &mut EndpointSlice) {
    for port in slice.ports.iter_mut().flatten() {
        port.name.get_or_insert_default();
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}

/// Returns the generation, which increases when anything but metadata changes.
fn generation(before: Option<&EndpointSlice>, slice: &EndpointSlice) -> i64 {
    let Some(before) = before else { return 1 };
    let content = |slice: &EndpointSlice| (slice.address_type.clone(), slice.endpoints.clone(), slice.ports.clone());
    let generation = before.metadata.generation.unwrap_or(1);
    if content(before) == content(slice) { generation } else { generation + 1 }
}

fn name_of(slice: &EndpointSlice, service: &ObjectKey) -> ObjectKey {
    let name = slice.metadata.name.clone().unwrap_or_default();
    ObjectKey { namespace: service.namespace.clone(), name }
}
