use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ContainerPort, HostIP, Pod, PodCondition, PodIP};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use svclab_spec::{NodeSpec, PodSpec, Protocol, ServerPort};

use super::allocate::Allocations;
use super::error::ObjectError;
use super::object::ObjectKey;

/// The first host number; 1 is the node's own.
const FIRST_POD: u64 = 2;
pub(super) const PENDING: &str = "Pending";
/// Default of `terminationGracePeriodSeconds`.
const GRACE_PERIOD: i64 = 30;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodEntry {
    pub(super) spec: PodSpec,
    pub(super) labels: BTreeMap<String, String>,
    /// Port numbers by name and protocol.
    pub(super) named_ports: BTreeMap<(String, String), i32>,
    pub(super) ready: bool,
    pub(super) terminating: bool,
    /// The pod has not started yet, and has no endpoint.
    pub(super) pending: bool,
    /// All containers have ended, and the pod has no endpoint.
    pub(super) finished: bool,
    pub(super) object: Pod,
}

/// A pod's identity and what the lab builds for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The UID, which distinguishes pods with the same name.
    pub uid: String,
    /// How the lab builds its network namespace.
    pub spec: PodSpec,
}

impl PodEntry {
    pub(super) fn has_endpoint(&self) -> bool {
        !self.pending && !self.finished
    }

    pub(super) fn set_ready(&mut self, ready: bool) {
        self.ready = ready;
        let conditions = self.object.status.get_or_insert_default().conditions.get_or_insert_default();
        let status = if ready { "True" } else { "False" }.to_owned();
        match conditions.iter_mut().find(|condition| condition.type_ == "Ready") {
            Some(condition) => condition.status = status,
            None => conditions.push(PodCondition { type_: "Ready".to_owned(), status, ..PodCondition::default() }),
        }
    }

    pub(super) fn set_running(&mut self, node: &NodeSpec, at: Time) {
        self.pending = false;
        let status = self.object.status.get_or_insert_default();
        status.phase = Some("Running".to_owned());
        (status.reason, status.message) = (None, None);
        status.start_time.get_or_insert(at);
        self.ready = true;
        set_scheduler_and_kubelet_fields(self, node);
    }

    pub(super) fn set_waiting(&mut self, why: &str) {
        let status = self.object.status.get_or_insert_default();
        status.reason = Some("CreatePodError".to_owned());
        status.message = Some(why.to_owned());
    }

    pub(super) fn set_terminating(&mut self, at: Time) {
        self.terminating = true;
        let metadata = &mut self.object.metadata;
        metadata.deletion_timestamp.get_or_insert(at);
        metadata.deletion_grace_period_seconds.get_or_insert(GRACE_PERIOD);
    }
}

/// Completes a pod of a node in `nodes`.
pub(super) fn admit(
    pod: &Pod,
    key: &ObjectKey,
    nodes: &[NodeSpec],
    allocations: &mut Allocations,
) -> Result<PodEntry, ObjectError> {
    let object = format!("pod/{key}");
    let spec = pod.spec.clone().unwrap_or_default();
    let node = node_named(spec.node_name.as_deref().unwrap_or_default(), nodes, &object)?;
    let host_network = spec.host_network == Some(true);
    let ports: Vec<ContainerPort> =
        spec.containers.iter().flat_map(|container| container.ports.clone().unwrap_or_default()).collect();
    if !host_network && ports.iter().any(|port| port.host_port.is_some()) {
        let problem = "the lab has no host ports; use hostNetwork or a node port";
        return Err(ObjectError::field(&object, "spec.containers[].ports[].hostPort", problem));
    }
    let addresses = if host_network {
        host_addresses(pod, node, &object)?
    } else {
        pod_addresses(pod, node, &object, allocations)?
    };
    let condition = |type_: &str| {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.type_ == type_).map(|condition| condition.status == "True")
    };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let mut entry = PodEntry {
        spec: PodSpec {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            node: node.name.clone(),
            addresses,
            host_network,
            ports: server_ports(&ports, &object)?,
        },
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        named_ports: ports
            .iter()
            .filter_map(|port| Some(((port.name.clone()?, protocol_of(port)), port.container_port)))
            .collect(),
        ready: condition("Ready").unwrap_or(phase != Some(PENDING)),
        pending: phase == Some(PENDING),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        object: pod.clone(),
    };
    set_scheduler_and_kubelet_fields(&mut entry, node);
    Ok(entry)
}

fn set_scheduler_and_kubelet_fields(entry: &mut PodEntry, node: &NodeSpec) {
    let spec = entry.object.spec.get_or_insert_default();
    spec.node_name = Some(node.name.clone());
    spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
    let status = entry.object.status.get_or_insert_default();
    status.phase.get_or_insert_with(|| "Running".to_owned());
    let shown = entry.spec.addresses.iter().filter(|_| !entry.pending);
    let texts: Vec<String> = shown.map(ToString::to_string).collect();
    status.pod_ip = texts.first().cloned();
    status.pod_ips = (!entry.pending).then(|| texts.into_iter().map(|ip| PodIP { ip }).collect());
    status.host_ip = node.addresses.first().map(ToString::to_string);
    status.host_ips = Some(node.addresses.iter().map(|ip| HostIP { ip: ip.to_string() }).collect());
    entry.set_ready(entry.ready);
}

fn protocol_of(port: &ContainerPort) -> String {
    port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())
}

/// Selects the node of the pod number `position` round-robin: one that is not cordoned, if there is any.
pub(super) fn schedule(nodes: &[NodeSpec], is_cordoned: impl Fn(&str) -> bool, position: usize) -> Option<String> {
    let open: Vec<&NodeSpec> = nodes.iter().filter(|node| !is_cordoned(&node.name)).collect();
    let candidates = if open.is_empty() { nodes.iter().collect() } else { open };
    candidates.get(position % candidates.len().max(1)).map(|node| node.name.clone())
}

fn node_named<'a>(name: &str, nodes: &'a [NodeSpec], object: &str) -> Result<&'a NodeSpec, ObjectError> {
    nodes.iter().find(|node| node.name == name).ok_or_else(|| {
        let names = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        let problem = format!("{name:?} is no node of this cluster (there is: {names})");
        ObjectError::field(object, "spec.nodeName", problem)
    })
}

fn addresses_in_status(pod: &Pod, object: &str) -> Result<Vec<IpAddr>, ObjectError> {
    let Some(status) = &pod.status else { return Ok(Vec::new()) };
    let listed = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
    let texts: Vec<String> =
        if status.pod_ips.is_some() { listed.collect() } else { status.pod_ip.iter().cloned().collect() };
    texts
        .iter()
        .map(|text| {
            let bad = |_| ObjectError::field(object, "status.podIP", format!("{text:?} is no IP address"));
            text.parse().map_err(bad)
        })
        .collect()
}

fn host_addresses(pod: &Pod, node: &NodeSpec, object: &str) -> Result<Vec<IpAddr>, ObjectError> {
    let written = addresses_in_status(pod, object)?;
    if written.iter().all(|address| node.addresses.contains(address)) {
        return Ok(node.addresses.clone());
    }
    let problem = format!("a host-network pod on {} has the node's addresses {:?}", node.name, node.addresses);
    Err(ObjectError::field(object, "status.podIPs", problem))
}

fn pod_addresses(
    pod: &Pod,
    node: &NodeSpec,
    object: &str,
    allocations: &mut Allocations,
) -> Result<Vec<IpAddr>, ObjectError> {
    let written = addresses_in_status(pod, object)?;
    let mut addresses = Vec::new();
    for range in &node.pod_cidrs {
        let same_family = |address: &&IpAddr| address.is_ipv4() == matches!(range, IpNet::V4(_));
        let address = match written.iter().find(same_family) {
            Some(address) => claim(*address, range, node, object, allocations)?,
            None => allocations.next_address(*range, FIRST_POD, object).ok_or_else(|| ObjectError::Exhausted {
                object: object.to_owned(),
                field: "status.podIPs".to_owned(),
                range: range.to_string(),
            })?,
        };
        addresses.push(address);
    }
    match written.iter().find(|address| !addresses.contains(address)) {
        Some(stray) => {
            let problem = format!("{stray} is of a family that node {} has no pod range of", node.name);
            Err(ObjectError::field(object, "status.podIPs", problem))
        }
        None => Ok(addresses),
    }
}

fn claim(
    address: IpAddr,
    range: &IpNet,
    node: &NodeSpec,
    object: &str,
    allocations: &mut Allocations,
) -> Result<IpAddr, ObjectError> {
    let field = "status.podIPs";
    if !range.contains(&address) {
        let problem = format!("{address} is not in node {}'s pod range {range}", node.name);
        return Err(ObjectError::field(object, field, problem));
    }
    let taken = |owner| ObjectError::field(object, field, format!("{address} already belongs to {owner}"));
    allocations.claim_address(address, object).map(|()| address).map_err(taken)
}

fn server_ports(ports: &[ContainerPort], object: &str) -> Result<Vec<ServerPort>, ObjectError> {
    let mut servers = Vec::new();
    for port in ports {
        let field = "spec.containers[].ports[]";
        let number = u16::try_from(port.container_port).ok().filter(|number| *number > 0).ok_or_else(|| {
            ObjectError::field(object, field, format!("containerPort {}: expected 1 to 65535", port.container_port))
        })?;
        let protocol = match protocol_of(port).as_str() {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            other => {
                return Err(ObjectError::field(
                    object,
                    field,
                    format!("protocol {other:?}: expected TCP, UDP or SCTP"),
                ));
            }
        };
        servers.push(ServerPort { protocol, port: number });
    }
    servers.sort_unstable();
    servers.dedup();
    Ok(servers)
}
