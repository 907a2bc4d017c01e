//! Service ports and endpoints of one family. Decides only which Service owns a disputed frontend ([`claims`]).

mod changed;
pub mod claims;
pub mod endpoints;
pub mod service;
mod triggers;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use crate::habits::{self, Habit};
use crate::model::{Change, Family, FlowFate, ObjectKey, ServicePortName, ShortString, parse_ip};
use crate::removed_objects::RemovedObjects;
pub use changed::ChangedPorts;
use claims::{Claim, Claims, CreationTime, Dispute, KnownService};
use endpoints::{Endpoint, Slice};
use service::{ServicePort, service_ports};
use triggers::Triggers;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The Node's label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Pod ranges of both families.
    pub pod_cidrs: Vec<IpNet>,
    /// InternalIPs of both families.
    pub internal_ips: Vec<IpAddr>,
    /// All IP addresses of `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// Per family the Node's first InternalIP, else its first ExternalIP (kube-proxy's `GetNodeHostIPs` in
    /// pkg/util/node).
    pub primary: Vec<IpAddr>,
}

impl NodeInfo {
    pub fn read(node: &Node) -> NodeInfo {
        let spec = node.spec.as_ref();
        let cidrs =
            spec.and_then(|s| s.pod_cidrs.clone()).or_else(|| spec.and_then(|s| s.pod_cidr.clone()).map(|c| vec![c]));
        let addresses = || node.status.iter().flat_map(|s| s.addresses.iter().flatten());
        let of_type =
            |wanted: &'static str| addresses().filter(move |a| a.type_ == wanted).filter_map(|a| parse_ip(&a.address));
        let first = |family: Family| {
            of_type("InternalIP").chain(of_type("ExternalIP")).find(|address| Family::of(address) == family)
        };
        NodeInfo {
            zone: node.metadata.labels.as_ref().and_then(|l| l.get("topology.kubernetes.io/zone")).cloned(),
            pod_cidrs: cidrs.iter().flatten().filter_map(|c| c.parse().ok()).collect(),
            internal_ips: of_type("InternalIP").collect(),
            addresses: addresses().filter_map(|a| parse_ip(&a.address)).collect(),
            primary: Family::ALL.into_iter().filter_map(first).collect(),
        }
    }
}

const COMMON_ENDPOINTS: usize = 20;
/// Largest weight of one sync ([`State::take_part`]): about 2,000 service ports, or 20,000 endpoints.
const AT_ONCE: usize = 20_000;

#[derive(Debug, Clone)]
pub struct State {
    family: Family,
    node_name: String,
    external_ips: bool,
    services: BTreeMap<ObjectKey, KnownService>,
    claims: Claims,
    /// Each list is sorted by name. An ordered map would slow the first list of a large cluster.
    slices: HashMap<ObjectKey, Vec<(ShortString, Slice)>>,
    slice_owner: HashMap<ObjectKey, ShortString>,
    node: NodeInfo,
    /// Addresses of this family; empty with the Kubernetes source, which watches only this node.
    other_nodes: BTreeMap<String, Vec<IpAddr>>,
    other_machines_changed: bool,
    service_cidrs: BTreeMap<String, Vec<IpNet>>,
    changed: BTreeSet<ServicePortName>,
    node_changed: bool,
    service_cidrs_changed: bool,
    flow_fate_asked: bool,
    node_port_ranges_asked: bool,
    triggers: Triggers,
    removed_objects: RemovedObjects,
}

impl State {
    pub fn new(family: Family, node_name: impl Into<String>) -> State {
        State {
            family,
            node_name: node_name.into(),
            external_ips: true,
            services: BTreeMap::new(),
            claims: Claims::default(),
            slices: HashMap::new(),
            slice_owner: HashMap::new(),
            node: NodeInfo::default(),
            other_nodes: BTreeMap::new(),
            other_machines_changed: false,
            service_cidrs: BTreeMap::new(),
            changed: BTreeSet::new(),
            node_changed: false,
            service_cidrs_changed: false,
            flow_fate_asked: false,
            node_port_ranges_asked: false,
            triggers: Triggers::default(),
            removed_objects: RemovedObjects::default(),
        }
    }

    /// Sets the gate `AllowServiceExternalIPs`.
    pub fn with_external_ips(self, external_ips: bool) -> State {
        State { external_ips, ..self }
    }

    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether [`compact`](State::compact) is worthwhile; if so, resets the count of removed objects.
    pub fn take_much_forgotten(&mut self) -> bool {
        self.removed_objects.take_due(self.services.len() + self.slice_owner.len())
    }

    /// Moves the state to new memory, without unused capacity.
    pub fn compact(&mut self) {
        self.slices.shrink_to_fit();
        self.slice_owner.shrink_to_fit();
        *self = self.clone();
    }

    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    pub fn node(&self) -> &NodeInfo {
        &self.node
    }

    /// Visits only the changed Service, and those that win or lose a frontend.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Service(key, service) => {
                let mut ports = service.as_deref().map(|s| service_ports(key, s, self.family)).unwrap_or_default();
                if !self.external_ips {
                    ports.iter_mut().for_each(|port| port.external_ips = Vec::new());
                }
                self.flow_fate_asked |=
                    ports.iter().any(|port| port.flow_fate.is_some_and(|fate| fate != FlowFate::Keep));
                self.node_port_ranges_asked |=
                    ports.iter().any(|port| port.node_port.is_some() && port.annotated_ranges.is_some());
                let created = service.as_ref().and_then(|s| s.metadata.creation_timestamp.as_ref());
                let age = created.map_or(CreationTime::Unknown, |time| CreationTime::Since(time.0));
                self.replace_service(key, KnownService { age, ports });
            }
            Change::EndpointSlice(key, object) => {
                let slice = object.as_deref().and_then(|s| Slice::read(s, self.family, &self.node_name));
                let here = slice.is_some();
                let concerns_a_service = self.replace_slice(key, slice);
                match object {
                    Some(object) if here && concerns_a_service => self.triggers.changed(key, object),
                    Some(_) if here => {}
                    _ => self.triggers.gone(key),
                }
            }
            Change::Node(name, node) if *name == self.node_name => {
                let mut info = node.as_deref().map(NodeInfo::read).unwrap_or_default();
                if info.pod_cidrs.is_empty() {
                    // Running pods keep their addresses even if the Node object loses its ranges.
                    info.pod_cidrs = std::mem::take(&mut self.node.pod_cidrs);
                }
                self.node_changed |= info != self.node;
                self.other_machines_changed |= info.addresses != self.node.addresses;
                self.node = info;
            }
            Change::Node(name, node) => self.replace_other_node(name, node.as_deref()),
            Change::ServiceCidr(name, object) => self.replace_service_cidr(name, object.as_deref()),
        }
    }

    fn replace_other_node(&mut self, name: &str, node: Option<&Node>) {
        let addresses = node.map(NodeInfo::read).unwrap_or_default().addresses.into_iter();
        let now: Vec<IpAddr> = addresses.filter(|ip| Family::of(ip) == self.family).collect();
        let before = self.other_nodes.remove(name).unwrap_or_default();
        self.other_machines_changed |= now != before;
        if !now.is_empty() {
            self.other_nodes.insert(name.to_owned(), now);
        }
    }

    pub fn other_machines(&self) -> impl Iterator<Item = IpAddr> {
        let servers = self.slices.iter().filter(|(service, _)| is_api_server(service));
        let servers = servers.flat_map(|(_, slices)| slices).flat_map(|(_, slice)| slice.addresses());
        self.other_nodes.values().flatten().copied().chain(servers)
    }

    /// Whether a Service has ever asked for another fate of its connections than [`FlowFate::Keep`]. It stays true when
    /// the Service is deleted, because its connections have not ended then.
    pub fn flow_fate_asked(&self) -> bool {
        self.flow_fate_asked
    }

    /// Whether a Service has ever limited the sources of its node ports.
    pub fn node_port_ranges_asked(&self) -> bool {
        self.node_port_ranges_asked
    }

    pub fn take_other_machines_changed(&mut self) -> bool {
        std::mem::take(&mut self.other_machines_changed)
    }

    /// A terminating ServiceCIDR counts: Services may still have its addresses.
    fn replace_service_cidr(&mut self, name: &str, object: Option<&ServiceCIDR>) {
        let texts = object.and_then(|object| object.spec.as_ref()?.cidrs.as_ref()).into_iter().flatten();
        let ranges = texts.filter_map(|text| text.parse().ok()).filter(|range| Family::of_net(range) == self.family);
        let now: Vec<IpNet> = ranges.collect();
        let before = self.service_cidrs.remove(name).unwrap_or_default();
        self.service_cidrs_changed |= now != before;
        if !now.is_empty() {
            self.service_cidrs.insert(name.to_owned(), now);
        }
    }

    pub fn service_cidrs(&self) -> impl Iterator<Item = IpNet> {
        self.service_cidrs.values().flatten().copied()
    }

    /// A re-created Service is younger, which matters only for disputed claims.
    fn replace_service(&mut self, key: &ObjectKey, mut now: KnownService) {
        now.ports.shrink_to_fit();
        let before = self.services.remove(key);
        let old = before.as_ref().map_or(&[][..], |known| &known.ports);
        let gone = old.iter().filter(|port| now.port(&port.name) != Some(port));
        let come =
            now.ports.iter().filter(|port| before.as_ref().and_then(|known| known.port(&port.name)) != Some(port));
        self.changed.extend(gone.chain(come).map(|port| port.name.clone()));
        let moved = self.claims.replace(before.as_ref(), &now);
        if !now.ports.is_empty() {
            self.services.insert(key.clone(), now);
        } else if let Some(before) = &before {
            self.removed_objects.count(before.ports.len());
        }
        for (claim, name) in moved {
            match claim {
                Claim::Frontend(..) => drop(self.changed.insert(name)),
                Claim::HealthCheck(_) => drop(self.mark_service(&name.service)),
            }
        }
    }

    /// Returns whether an existing Service changed.
    fn replace_slice(&mut self, key: &ObjectKey, slice: Option<Slice>) -> bool {
        let stays = |owner: &ShortString| {
            habits::has(Habit::MovedSlicesStay) && slice.as_ref().is_some_and(|slice| slice.service != *owner)
        };
        if let Some(owner) = self.slice_owner.remove(key).filter(|owner| !stays(owner)) {
            let service = ObjectKey { namespace: key.namespace.clone(), name: owner };
            let before = self.slices.get_mut(&service).and_then(|slices| {
                let at = slices.binary_search_by(|(name, _)| name.cmp(&key.name)).ok()?;
                Some(slices.remove(at).1)
            });
            self.other_machines_changed |= is_api_server(&service) && before != slice;
            let changed = before != slice && self.mark_service(&service);
            if self.slices.get(&service).is_some_and(Vec::is_empty) {
                self.slices.remove(&service);
            }
            let Some(slice) = slice else {
                self.removed_objects.count(before.map_or(0, |slice| slice.addresses().len() / COMMON_ENDPOINTS));
                return changed;
            };
            let moved = slice.service != service.name;
            self.insert_slice(key, slice, moved) || changed
        } else if let Some(slice) = slice {
            self.insert_slice(key, slice, true)
        } else {
            false
        }
    }

    fn insert_slice(&mut self, key: &ObjectKey, slice: Slice, mark: bool) -> bool {
        let service = ObjectKey { namespace: key.namespace.clone(), name: slice.service.clone() };
        if habits::has(Habit::EarlySlicesAreDropped) && !self.services.contains_key(&service) {
            return false;
        }
        self.other_machines_changed |= mark && is_api_server(&service);
        let changed = mark && self.mark_service(&service);
        self.slice_owner.insert(key.clone(), slice.service.clone());
        let slices = self.slices.entry(service).or_default();
        // The caller has removed an earlier slice of this name.
        let at = slices.partition_point(|(name, _)| *name < key.name);
        slices.reserve_exact(1);
        slices.insert(at, (key.name.clone(), slice));
        changed
    }

    fn mark_service(&mut self, service: &ObjectKey) -> bool {
        let Some(known) = self.services.get(service) else { return false };
        for port in &known.ports {
            if !self.changed.contains(&port.name) {
                self.changed.insert(port.name.clone());
            }
        }
        true
    }

    /// Collects trigger times after `since` for [`State::take_triggers`].
    pub fn count_triggers_since(&mut self, since: Timestamp) {
        self.triggers.count_since(since);
    }

    /// Returns the trigger times of the changed slices.
    pub fn take_triggers(&mut self) -> impl Iterator<Item = Timestamp> + use<> {
        self.triggers.take()
    }

    pub fn take_changed(&mut self) -> ChangedPorts {
        ChangedPorts {
            service_ports: std::mem::take(&mut self.changed),
            node: std::mem::take(&mut self.node_changed),
            service_cidrs: std::mem::take(&mut self.service_cidrs_changed),
            ..ChangedPorts::default()
        }
    }

    pub fn service_port(&self, name: &ServicePortName) -> Option<Cow<'_, ServicePort>> {
        let port = self.services.get(&name.service)?.port(name)?;
        Some(self.claims.granted(port))
    }

    pub fn service_ports(&self) -> impl Iterator<Item = Cow<'_, ServicePort>> {
        self.services.values().flat_map(|known| &known.ports).map(|port| self.claims.granted(port))
    }

    pub fn take_disputes(&mut self) -> Vec<Dispute> {
        self.claims.take_disputes()
    }

    fn weight(&self, name: &ServicePortName) -> usize {
        const ALONE: usize = 10;
        let slices = self.slices.get(&name.service).into_iter().flatten();
        slices.map(|(_, slice)| slice.addresses().len()).sum::<usize>() + ALONE
    }

    /// Returns the changes for one sync; if there are many, those of light Services first.
    pub fn take_part(&self, changed: &mut ChangedPorts) -> ChangedPorts {
        changed.take_part(AT_ONCE, |name| self.weight(name))
    }

    /// Returns all endpoints, regardless of conditions.
    pub fn endpoints(&self, name: &ServicePortName) -> Vec<Endpoint> {
        let slices = self.slices.get(&name.service).into_iter().flatten().map(|(_, slice)| slice);
        endpoints::merge(slices, &name.port, name.protocol)
    }
}

/// Whether this is the API server's Service (`kubernetesServiceName` in pkg/controlplane).
fn is_api_server(service: &ObjectKey) -> bool {
    service.name == "kubernetes" && service.namespace == "default"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_deleted_node_keeps_its_pod_ranges() {
        let mut state = State::new(Family::V4, "n1");
        let mut ranges = |node: Option<serde_json::Value>| {
            let node = node.map(|node| Arc::new(serde_json::from_value::<Node>(node).unwrap()));
            state.apply(&Change::Node("n1".into(), node));
            state.node().pod_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let with = |range: &str| Some(serde_json::json!({ "spec": { "podCIDRs": [range] } }));
        assert_eq!(ranges(with("10.1.0.0/24")), ["10.1.0.0/24"]);
        assert_eq!(ranges(None), ["10.1.0.0/24"]);
        assert_eq!(ranges(Some(serde_json::json!({ "spec": {} }))), ["10.1.0.0/24"]);
        assert_eq!(ranges(with("10.2.0.0/24")), ["10.2.0.0/24"]);
    }

    #[test]
    fn removed_objects_leave_no_capacity() {
        let mut state = State::new(Family::V4, "n1");
        let key = |number: usize| crate::testing::key(&format!("web-{number}"));
        let slice = |number: usize| {
            let labels = serde_json::json!({ "kubernetes.io/service-name": key(number).name.as_str() });
            let object =
                serde_json::json!({ "metadata": { "labels": labels }, "addressType": "IPv4", "endpoints": [] });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let room = |state: &State| [state.slices.capacity(), state.slice_owner.capacity()];
        (0..5000).for_each(|number| state.apply(&Change::EndpointSlice(key(number), Some(slice(number)))));
        assert!(!state.take_much_forgotten() && room(&state).iter().all(|room| *room >= 5000));
        (0..5000).for_each(|number| state.apply(&Change::EndpointSlice(key(number), None)));
        assert!(state.take_much_forgotten() && !state.take_much_forgotten());
        state.compact();
        assert_eq!(room(&state), [0, 0]);
    }
}
