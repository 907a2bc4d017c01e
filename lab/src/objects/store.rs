//! All objects of one cluster, and the versions of their changes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::allocate::Allocations;
use super::error::ObjectError;
use super::pod::PodEntry;
use super::service::Pools;
use super::{node, pod, service, slices};
use crate::cluster::spec::{ClusterSpec, LoadBalancerVip, PodSpec, Protocol, VipMode};

/// `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
}

impl ObjectKey {
    /// A key; an empty or missing namespace is `default`.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or("default");
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object that authors may write.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A pod, which the lab builds.
    Pod(Box<Pod>),
    /// A service.
    Service(Box<Service>),
    /// Labels and taints for one of the cluster's nodes.
    Node(Box<Node>),
    /// A slice for a service without selector.
    EndpointSlice(Box<EndpointSlice>),
}

/// How objects are allocated and grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Decides cluster IPs and node ports that nobody wrote down.
    pub seed: u64,
    /// Upstream's controller default is 100.
    pub max_endpoints_per_slice: usize,
    /// Where load-balancer addresses come from, at most one range per family.
    pub vip_ranges: Vec<IpNet>,
}

/// The objects.
#[derive(Debug, Clone)]
pub struct Store {
    spec: ClusterSpec,
    options: StoreOptions,
    allocations: Allocations,
    version: u64,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<ObjectKey, PodEntry>,
    pods_seen: usize,
    services: BTreeMap<ObjectKey, Service>,
    slices: BTreeMap<ObjectKey, EndpointSlice>,
}

impl Store {
    /// A cluster of `spec`'s nodes with no other object yet; `spec.pods` is left to manifests.
    pub fn new(spec: ClusterSpec, options: StoreOptions) -> Self {
        let nodes = spec.nodes.iter().map(|spec| (spec.name.clone(), node::object(spec))).collect();
        Store {
            spec,
            options,
            allocations: Allocations::default(),
            version: 1,
            nodes,
            pods: BTreeMap::new(),
            pods_seen: 0,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
        }
    }

    /// Creates or replaces `object` and returns its `kind/namespace/name`.
    ///
    /// # Errors
    /// When the object cannot be in this cluster; the store is then unchanged but for addresses already claimed.
    pub fn apply(&mut self, object: Object) -> Result<String, ObjectError> {
        let name = match object {
            Object::Pod(pod) => self.apply_pod(&pod)?,
            Object::Service(service) => self.apply_service(*service)?,
            Object::Node(node) => self.apply_node(*node)?,
            Object::EndpointSlice(slice) => {
                let key = key_of(&slice.metadata, "endpointslice")?;
                self.slices.insert(key.clone(), *slice);
                format!("endpointslice/{key}")
            }
        };
        self.version += 1;
        Ok(name)
    }

    fn apply_pod(&mut self, written: &Pod) -> Result<String, ObjectError> {
        let key = key_of(&written.metadata, "pod")?;
        let name = format!("pod/{key}");
        let mut written = written.clone();
        if let Some(present) = self.pods.get(&key) {
            // Pods do not move: a replaced manifest that says nothing keeps node and addresses.
            let spec = written.spec.get_or_insert_default();
            spec.node_name.get_or_insert_with(|| present.spec.node.clone());
            if spec.node_name.as_ref() != Some(&present.spec.node) {
                let problem = format!("the pod runs on {}; delete it first", present.spec.node);
                return Err(ObjectError::field(name, "spec.nodeName", problem));
            }
        } else {
            self.pods_seen += 1;
        }
        self.allocations.release(&name);
        let position = self.pods_seen.saturating_sub(1);
        let entry = pod::admit(&written, &key, &self.spec.nodes, position, &mut self.allocations)?;
        self.pods.insert(key, entry);
        Ok(name)
    }

    fn apply_service(&mut self, written: Service) -> Result<String, ObjectError> {
        let key = key_of(&written.metadata, "service")?;
        let name = format!("service/{key}");
        self.allocations.release(&name);
        let pools = Pools {
            service_cidrs: &self.spec.service_cidrs,
            vip_ranges: &self.options.vip_ranges,
            seed: self.options.seed,
        };
        let mut admitted = service::admit(written, &key, self.services.get(&key), &pools, &mut self.allocations)?;
        admitted.metadata.namespace = Some(key.namespace.clone());
        self.services.insert(key, admitted);
        Ok(name)
    }

    fn apply_node(&mut self, written: Node) -> Result<String, ObjectError> {
        let name = written.metadata.name.clone().unwrap_or_default();
        let known = self.nodes.keys().cloned().collect::<Vec<_>>().join(", ");
        let missing = ObjectError::Missing { object: format!("node/{name}"), known };
        merge_zone(&mut self.spec, &written);
        node::merge(self.nodes.get_mut(&name).ok_or(missing)?, written);
        Ok(format!("node/{name}"))
    }

    /// Removes a `pod`, `service` or `endpointslice`.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn delete(&mut self, kind: &str, key: &ObjectKey) -> Result<(), ObjectError> {
        let found = match kind {
            "pod" => self.pods.remove(key).is_some(),
            "service" => self.services.remove(key).is_some(),
            _ => self.slices.remove(key).is_some(),
        };
        if !found {
            return Err(self.missing(kind, key));
        }
        self.allocations.release(&format!("{kind}/{key}"));
        self.version += 1;
        Ok(())
    }

    /// Sets a pod's `Ready` condition.
    ///
    /// # Errors
    /// When there is no such pod.
    pub fn set_ready(&mut self, key: &ObjectKey, ready: bool) -> Result<(), ObjectError> {
        self.pod_mut(key)?.ready = ready;
        Ok(())
    }

    /// Gives a pod a deletion timestamp: its endpoints are terminating, and serving for as long as it is ready.
    ///
    /// # Errors
    /// When there is no such pod.
    pub fn set_terminating(&mut self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.pod_mut(key)?.terminating = true;
        Ok(())
    }

    fn pod_mut(&mut self, key: &ObjectKey) -> Result<&mut PodEntry, ObjectError> {
        if !self.pods.contains_key(key) {
            return Err(self.missing("pod", key));
        }
        self.version += 1;
        let missing = ObjectError::Missing { object: format!("pod/{key}"), known: String::new() };
        self.pods.get_mut(key).ok_or(missing)
    }

    fn missing(&self, kind: &str, key: &ObjectKey) -> ObjectError {
        let known: Vec<String> = match kind {
            "pod" => self.pods.keys().map(ToString::to_string).collect(),
            "service" => self.services.keys().map(ToString::to_string).collect(),
            _ => self.slices.keys().map(ToString::to_string).collect(),
        };
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        ObjectError::Missing { object: format!("{kind}/{key}"), known }
    }

    /// The pod of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn pod(&self, key: &ObjectKey) -> Result<&PodSpec, ObjectError> {
        self.pods.get(key).map(|pod| &pod.spec).ok_or_else(|| self.missing("pod", key))
    }

    /// The service of that name, with its allocations.
    ///
    /// # Errors
    /// When there is none.
    pub fn service(&self, key: &ObjectKey) -> Result<&Service, ObjectError> {
        self.services.get(key).ok_or_else(|| self.missing("service", key))
    }

    /// The cluster as it has to stand now, pods included.
    pub fn cluster_spec(&self) -> ClusterSpec {
        ClusterSpec { pods: self.pods.values().map(|pod| pod.spec.clone()).collect(), ..self.spec.clone() }
    }

    /// Rises with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What a proxy is to know: Nodes, Services and EndpointSlices as one `List`, sorted.
    pub fn list(&self) -> Value {
        let generated = self.services.iter().flat_map(|(key, service)| {
            let limit = self.options.max_endpoints_per_slice;
            slices::of_service(key, service, &self.pods, &self.spec.nodes, limit)
        });
        let items: Vec<Value> = self
            .nodes
            .values()
            .map(|node| json!(node))
            .chain(self.services.values().map(|service| json!(service)))
            .chain(generated.map(|slice| json!(slice)))
            .chain(self.slices.values().map(|slice| json!(slice)))
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "List",
            "metadata": { "resourceVersion": self.version.to_string() },
            "items": items,
        })
    }

    /// Every service, sorted.
    pub fn services(&self) -> impl Iterator<Item = (&ObjectKey, &Service)> {
        self.services.iter()
    }

    /// The published addresses of one service; none if it is not there.
    pub fn vips_of(&self, service: &ObjectKey) -> Vec<LoadBalancerVip> {
        self.services.get(service).map(vips_of).unwrap_or_default()
    }

    /// What the cloud load balancer has to serve.
    pub fn vips(&self) -> Vec<LoadBalancerVip> {
        self.services.values().flat_map(vips_of).collect()
    }
}

fn vips_of(service: &Service) -> Vec<LoadBalancerVip> {
    let spec = service.spec.clone().unwrap_or_default();
    let port = |number: i32| u16::try_from(number).ok();
    let ports: Vec<_> = spec
        .ports
        .iter()
        .flatten()
        .filter_map(|entry| {
            let protocol = match entry.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => return None,
                _ => Protocol::Tcp,
            };
            // Without node ports the pair only tells `Vip` which ports there are.
            Some((protocol, port(entry.port)?, port(entry.node_port.unwrap_or(entry.port))?))
        })
        .collect();
    let published = service::ingress_of(service).into_iter().filter_map(|ingress| {
        let address: IpAddr = ingress.ip?.parse().ok()?;
        let mode = if ingress.ip_mode.as_deref() == Some("Proxy") { VipMode::Proxy } else { VipMode::Vip };
        Some((address, mode))
    });
    published
        .map(|(address, mode)| LoadBalancerVip {
            address,
            mode,
            ports: ports.clone(),
            health_check_node_port: spec.health_check_node_port.and_then(port),
        })
        .collect()
}

/// A zone label on a Node manifest moves the node there.
fn merge_zone(spec: &mut ClusterSpec, written: &Node) {
    let zone = written.metadata.labels.as_ref().and_then(|labels| labels.get(node::ZONE_LABEL));
    let found = spec.nodes.iter_mut().find(|node| Some(&node.name) == written.metadata.name.as_ref());
    if let (Some(node), Some(zone)) = (found, zone) {
        node.zone = Some(zone.clone());
    }
}

fn key_of(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    kind: &str,
) -> Result<ObjectKey, ObjectError> {
    match metadata.name.as_deref() {
        Some(name) if !name.is_empty() => Ok(ObjectKey::new(metadata.namespace.as_deref(), name)),
        _ => Err(ObjectError::field(kind, "metadata.name", "every object needs a name")),
    }
}
