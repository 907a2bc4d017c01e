use std::collections::BTreeMap;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, PodIP, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use svclab_spec::{ClusterSpec, LoadBalancerVip, PodSpec};

use super::allocate::Allocations;
use super::endpoints::EndpointController;
use super::error::ObjectError;
use super::kind::ObjectKind;
use super::object::{Object, ObjectKey, key_of};
use super::pod::{PENDING, PodEntry, PodState};
use super::record::StoredObject;
use super::service::AddressPools;
use super::versions::Versions;
use super::vips::vips_of;
use super::workloads::Workloads;
use super::{builtin, node, pod, service};

/// Options of a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Determines allocations that manifests do not request.
    pub seed: u64,
    /// kube-controller-manager's default is 100.
    pub max_endpoints_per_slice: usize,
    /// Ranges of load-balancer addresses, at most one per family.
    pub vip_ranges: Vec<IpNet>,
}

/// The objects of a cluster.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) spec: ClusterSpec,
    pub(super) options: StoreOptions,
    allocations: Allocations,
    pub(super) versions: Versions,
    nodes: BTreeMap<String, Node>,
    pub(super) pods: BTreeMap<ObjectKey, PodEntry>,
    pods_seen: usize,
    /// Whether new pods are pending until [`Store::set_running`].
    holds_pods: bool,
    pub(super) workloads: Workloads,
    pub(super) services: BTreeMap<ObjectKey, Service>,
    pub(super) endpoints: EndpointController,
}

impl Store {
    /// Creates a cluster with the nodes and service ranges of `spec`; ignores `spec.pods`.
    pub fn new(spec: ClusterSpec, options: StoreOptions) -> Self {
        let mut store = Store {
            versions: Versions::new(options.seed),
            spec,
            options,
            allocations: Allocations::default(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            pods_seen: 0,
            holds_pods: false,
            workloads: Workloads::default(),
            services: BTreeMap::new(),
            endpoints: EndpointController::default(),
        };
        for name in builtin::INITIAL_NAMESPACES {
            store.versions.put(&ObjectKey::unscoped(name), &mut builtin::namespace(name));
        }
        if let Some(mut ranges) = builtin::service_ranges(&store.spec.service_cidrs, store.versions.now()) {
            store.versions.put(&ObjectKey::unscoped(builtin::DEFAULT_SERVICE_CIDR), &mut ranges);
        }
        for spec in store.spec.nodes.clone() {
            store.put_node(&spec.name, node::generate(&spec));
        }
        store
    }

    /// Creates or replaces `object` and returns its `kind/namespace/name`. Omitted fields keep their values or are
    /// allocated; the manifest of a Node is merged.
    ///
    /// # Errors
    /// The cluster cannot have the object; the store is then unchanged.
    pub fn apply(&mut self, object: Object) -> Result<String, ObjectError> {
        let applied = self.apply_one(object);
        self.run_controllers();
        applied
    }

    pub(super) fn apply_one(&mut self, object: Object) -> Result<String, ObjectError> {
        match object {
            Object::Pod(pod) => self.apply_pod(*pod),
            Object::Service(service) => self.apply_service(*service),
            Object::Node(node) => self.apply_node(*node, false),
            Object::EndpointSlice(slice) => self.apply_slice(*slice),
            Object::Namespace(namespace) => self.apply_namespace(*namespace),
            Object::Event(event) => self.apply_event(*event),
            Object::Lease(mut lease) => {
                let key = key_of(&lease.metadata, "lease")?;
                self.put(&key, &mut *lease);
                Ok(format!("lease/{key}"))
            }
            Object::ServiceCidr(mut cidr) => {
                let key = ObjectKey::unscoped(&key_of(&cidr.metadata, "servicecidr")?.name);
                self.versions.put(&key, &mut *cidr);
                Ok(format!("servicecidr/{key}"))
            }
            Object::ReplicaSet(set) => self.apply_replica_set(*set),
            Object::Deployment(deployment) => self.apply_deployment(*deployment),
            // The API refuses such writes with words of their own.
            Object::Endpoints(_) => Err(ObjectError::field("endpoints", "kind", "the lab makes Endpoints itself")),
            Object::NetworkPolicy(_) => {
                Err(ObjectError::field("networkpolicy", "kind", "the lab enforces no NetworkPolicies"))
            }
        }
    }

    /// Like [`Store::apply`], but replaces a Node, as an API client's update does.
    pub fn replace(&mut self, object: Object) -> Result<String, ObjectError> {
        match object {
            Object::Node(node) => self.apply_node(*node, true),
            other => self.apply(other),
        }
    }

    fn apply_pod(&mut self, mut written: Pod) -> Result<String, ObjectError> {
        let key = key_of(&written.metadata, "pod")?;
        let name = format!("pod/{key}");
        let present = self.pods.get(&key);
        if let Some(present) = present {
            // A pod cannot move: if the manifest has no node or addresses, the stored ones stay.
            let spec = written.spec.get_or_insert_default();
            spec.node_name.get_or_insert_with(|| present.spec.node.clone());
            if spec.node_name.as_ref() != Some(&present.spec.node) {
                let problem = format!("the pod runs on {}; delete it first", present.spec.node);
                return Err(ObjectError::field(name, "spec.nodeName", problem));
            }
            let status = written.status.get_or_insert_default();
            if status.pod_ip.is_none() && status.pod_ips.is_none() {
                let addresses = present.spec.addresses.iter();
                status.pod_ips = Some(addresses.map(|ip| PodIP { ip: ip.to_string() }).collect());
            }
        } else {
            let spec = written.spec.get_or_insert_default();
            if spec.node_name.is_none() {
                spec.node_name = pod::schedule(&self.spec.nodes, |node| self.is_cordoned(node), self.pods_seen);
            }
            if self.holds_pods {
                written.status.get_or_insert_default().phase = Some(PENDING.to_owned());
            }
        }
        let new = present.is_none();
        let nodes = &self.spec.nodes;
        let mut entry = with_fresh_allocations(&mut self.allocations, &name, |allocations| {
            pod::admit(&written, &key, nodes, allocations)
        })?;
        self.pods_seen += usize::from(new);
        self.put(&key, &mut entry.object);
        let before = self.pods.insert(key.clone(), entry);
        self.pod_changed(&key, before.as_ref());
        Ok(name)
    }

    fn apply_service(&mut self, written: Service) -> Result<String, ObjectError> {
        let key = key_of(&written.metadata, "service")?;
        let name = format!("service/{key}");
        let all_service_cidrs = self.service_cidr_ranges();
        let pod_ranges: Vec<IpNet> = self.spec.nodes.iter().flat_map(|node| node.pod_cidrs.clone()).collect();
        let pools = AddressPools {
            service_cidrs: &self.spec.service_cidrs,
            all_service_cidrs: &all_service_cidrs,
            pod_ranges: &pod_ranges,
            vip_ranges: &self.options.vip_ranges,
            seed: self.options.seed,
        };
        let previous = self.services.get(&key);
        let mut admitted = with_fresh_allocations(&mut self.allocations, &name, |allocations| {
            service::admit(written, &key, previous, &pools, allocations)
        })?;
        self.put(&key, &mut admitted);
        let before = self.services.insert(key.clone(), admitted);
        self.service_changed(&key, before.as_ref());
        Ok(name)
    }

    fn apply_node(&mut self, written: Node, whole: bool) -> Result<String, ObjectError> {
        let name = written.metadata.name.clone().unwrap_or_default();
        let Some(spec) = self.spec.nodes.iter_mut().find(|node| node.name == name) else {
            return Err(self.missing(ObjectKind::Node, &ObjectKey::unscoped(&name)));
        };
        let zone = written.metadata.labels.as_ref().and_then(|labels| labels.get(node::ZONE_LABEL)).cloned();
        let zone = if whole { zone } else { zone.or_else(|| spec.zone.clone()) };
        spec.zone = zone;
        let mut object = self.nodes.get(&name).cloned().unwrap_or_else(|| node::generate(spec));
        if whole {
            object = written;
        } else {
            node::merge_manifest(&mut object, written);
        }
        self.put_node(&name, object);
        self.nodes_changed();
        Ok(format!("node/{name}"))
    }

    pub(super) fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    pub(super) fn zone_of(&self, node: &str) -> Option<String> {
        let node = self.spec.nodes.iter().find(|spec| spec.name == node && self.has_node(node))?;
        node.zone.clone()
    }

    fn is_cordoned(&self, node: &str) -> bool {
        self.nodes.get(node).and_then(|node| node.spec.as_ref()?.unschedulable).unwrap_or(false)
    }

    fn put_node(&mut self, name: &str, mut node: Node) {
        self.versions.put(&ObjectKey::unscoped(name), &mut node);
        self.nodes.insert(name.to_owned(), node);
    }

    fn apply_namespace(&mut self, mut namespace: Namespace) -> Result<String, ObjectError> {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        if name.is_empty() {
            return Err(ObjectError::field("namespace", "metadata.name", "every object needs a name"));
        }
        builtin::set_namespace_defaults(&mut namespace, &name);
        self.versions.put(&ObjectKey::unscoped(&name), &mut namespace);
        Ok(format!("namespace/{name}"))
    }

    fn apply_event(&mut self, mut event: Event) -> Result<String, ObjectError> {
        let key = key_of(&event.metadata, "event")?;
        self.put(&key, &mut event);
        let oldest =
            self.versions.of(ObjectKind::Event).min_by_key(|record| record.version).map(|record| record.key.clone());
        if let Some(oldest) = oldest.filter(|_| self.versions.of(ObjectKind::Event).count() > builtin::MAX_EVENTS) {
            self.versions.remove(ObjectKind::Event, &oldest);
        }
        Ok(format!("event/{key}"))
    }

    /// Stores the object, and its namespace if needed.
    pub(super) fn put<T: StoredObject>(&mut self, key: &ObjectKey, object: &mut T) {
        let namespace = ObjectKey::unscoped(&key.namespace);
        if self.versions.get(ObjectKind::Namespace, &namespace).is_none() {
            self.versions.put(&namespace, &mut builtin::namespace(&key.namespace));
        }
        self.versions.put(key, object);
    }

    /// Removes a `pod`, `service`, `node`, `servicecidr` or (any other `kind`) EndpointSlice. A machine outlives its
    /// Node.
    pub fn delete(&mut self, kind: &str, key: &ObjectKey) -> Result<(), ObjectError> {
        match kind {
            "pod" => self.remove(ObjectKind::Pod, key),
            "service" => self.remove(ObjectKind::Service, key),
            "node" => self.remove(ObjectKind::Node, &ObjectKey::unscoped(&key.name)),
            "servicecidr" => self.remove(ObjectKind::ServiceCidr, &ObjectKey::unscoped(&key.name)),
            _ => self.remove(ObjectKind::EndpointSlice, key),
        }
    }

    /// Removes an object with the slices of a Service or the objects of a namespace. The controller recreates its own
    /// slices.
    pub fn remove(&mut self, kind: ObjectKind, key: &ObjectKey) -> Result<(), ObjectError> {
        let removed = self.remove_one(kind, key);
        self.run_controllers();
        removed
    }

    pub(super) fn remove_one(&mut self, kind: ObjectKind, key: &ObjectKey) -> Result<(), ObjectError> {
        if self.versions.get(kind, key).is_none() {
            return Err(self.missing(kind, key));
        }
        match kind {
            ObjectKind::Namespace => self.empty_namespace(&key.name),
            ObjectKind::EndpointSlice => return self.remove_slice(key),
            _ => {}
        }
        self.versions.remove(kind, key);
        self.allocations.release(&format!("{kind}/{key}"));
        match kind {
            ObjectKind::Pod => {
                let before = self.pods.remove(key);
                self.pod_changed(key, before.as_ref());
            }
            ObjectKind::Service => {
                let before = self.services.remove(key);
                self.service_changed(key, before.as_ref());
            }
            ObjectKind::Node => {
                self.nodes.remove(&key.name);
                self.nodes_changed();
            }
            ObjectKind::Deployment | ObjectKind::ReplicaSet => self.workload_removed(kind, key),
            _ => {}
        }
        Ok(())
    }

    fn empty_namespace(&mut self, namespace: &str) {
        let workloads = [ObjectKind::Deployment, ObjectKind::ReplicaSet];
        let others =
            [ObjectKind::Service, ObjectKind::Pod, ObjectKind::EndpointSlice, ObjectKind::Event, ObjectKind::Lease];
        for kind in workloads.into_iter().chain(others) {
            let inside = self.versions.of(kind).filter(|record| record.key.namespace == namespace);
            for key in inside.map(|record| record.key.clone()).collect::<Vec<_>>() {
                // No controller recreates the object: Services and workloads were removed first.
                let _ = self.remove_one(kind, &key);
            }
        }
    }

    /// Sets a pod's `Ready` condition.
    pub fn set_ready(&mut self, key: &ObjectKey, ready: bool) -> Result<(), ObjectError> {
        self.change_pod(key, |pod, _| pod.set_ready(ready))
    }

    /// Adds a deletion timestamp to a pod; its endpoints become terminating and stay serving while it is ready.
    pub fn set_terminating(&mut self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.change_pod(key, PodEntry::set_terminating)
    }

    fn change_pod(&mut self, key: &ObjectKey, change: impl FnOnce(&mut PodEntry, Time)) -> Result<(), ObjectError> {
        let Some(mut entry) = self.pods.get(key).cloned() else {
            return Err(self.missing(ObjectKind::Pod, key));
        };
        change(&mut entry, self.versions.now());
        self.put(key, &mut entry.object);
        let before = self.pods.insert(key.clone(), entry);
        self.pod_changed(key, before.as_ref());
        self.run_controllers();
        Ok(())
    }

    /// Keeps new pods pending, without endpoints, until [`Store::set_running`].
    pub fn hold_pods(&mut self) {
        self.holds_pods = true;
    }

    /// Every pod, sorted by key.
    pub fn pod_states(&self) -> Vec<PodState> {
        let state = |(key, pod): (&ObjectKey, &PodEntry)| PodState {
            key: key.clone(),
            uid: pod.object.metadata.uid.clone().unwrap_or_default(),
            spec: pod.spec.clone(),
        };
        self.pods.iter().map(state).collect()
    }

    /// Marks a pending pod with this UID as running and ready.
    pub fn set_running(&mut self, key: &ObjectKey, uid: &str) {
        let nodes = self.spec.nodes.clone();
        self.change_waiting(key, uid, |pod, now| {
            if let Some(node) = nodes.iter().find(|node| node.name == pod.spec.node) {
                pod.set_running(node, now);
            }
        });
    }

    /// Records why a pending pod cannot start.
    pub fn set_waiting(&mut self, key: &ObjectKey, uid: &str, why: &str) {
        self.change_waiting(key, uid, |pod, _| pod.set_waiting(why));
    }

    fn change_waiting(&mut self, key: &ObjectKey, uid: &str, change: impl FnOnce(&mut PodEntry, Time)) {
        let waits = |pod: &PodEntry| pod.pending && pod.object.metadata.uid.as_deref() == Some(uid);
        if self.pods.get(key).is_some_and(waits) {
            let _ = self.change_pod(key, change);
        }
    }

    fn missing(&self, kind: ObjectKind, key: &ObjectKey) -> ObjectError {
        let known: Vec<String> = self.versions.of(kind).map(|record| record.key.to_string()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        ObjectError::Missing { object: format!("{kind}/{key}"), known }
    }

    /// The pod with this key.
    pub fn pod(&self, key: &ObjectKey) -> Result<&PodSpec, ObjectError> {
        self.pods.get(key).map(|pod| &pod.spec).ok_or_else(|| self.missing(ObjectKind::Pod, key))
    }

    /// The Service with this key, with its allocations.
    pub fn service(&self, key: &ObjectKey) -> Result<&Service, ObjectError> {
        self.services.get(key).ok_or_else(|| self.missing(ObjectKind::Service, key))
    }

    /// The cluster's specification, including the current pods.
    pub fn cluster_spec(&self) -> ClusterSpec {
        ClusterSpec { pods: self.pods.values().map(|pod| pod.spec.clone()).collect(), ..self.spec.clone() }
    }

    /// Nodes, Services, EndpointSlices and ServiceCIDRs as one sorted `List`, for proxies.
    pub fn list(&self) -> Value {
        let kinds = [ObjectKind::Node, ObjectKind::Service, ObjectKind::EndpointSlice, ObjectKind::ServiceCidr];
        let items: Vec<Value> =
            kinds.into_iter().flat_map(|kind| self.versions.of(kind)).map(|record| record.value()).collect();
        json!({
            "apiVersion": "v1",
            "kind": "List",
            "metadata": { "resourceVersion": self.version().to_string() },
            "items": items,
        })
    }

    /// Every Service, sorted by key.
    pub fn services(&self) -> impl Iterator<Item = (&ObjectKey, &Service)> {
        self.services.iter()
    }

    /// The published addresses of a Service, if any.
    pub fn vips_of(&self, service: &ObjectKey) -> Vec<LoadBalancerVip> {
        self.services.get(service).map(vips_of).unwrap_or_default()
    }

    /// All published addresses, for the cloud load balancer.
    pub fn vips(&self) -> Vec<LoadBalancerVip> {
        let mut vips: Vec<LoadBalancerVip> = Vec::new();
        for vip in self.services.values().flat_map(vips_of) {
            let alike = |other: &&mut LoadBalancerVip| {
                let check = other.health_check_port == vip.health_check_port;
                other.address == vip.address && other.mode == vip.mode && check
            };
            match vips.iter_mut().find(alike) {
                Some(shared) => shared.ports.extend(vip.ports),
                None => vips.push(vip),
            }
        }
        vips
    }
}

fn with_fresh_allocations<T>(
    allocations: &mut Allocations,
    owner: &str,
    admit: impl FnOnce(&mut Allocations) -> Result<T, ObjectError>,
) -> Result<T, ObjectError> {
    let held = allocations.release(owner);
    admit(allocations).inspect_err(|_| allocations.restore(owner, held))
}
