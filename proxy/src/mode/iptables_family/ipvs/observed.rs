//! The kernel's objects that this proxy owns, read at each full sync, so that a restart continues its predecessor's
//! work. IP sets record them: an address in `KUBE-IPVS-IPS`, a frontend or node port in its set. So members are added
//! before, and removed after, their virtual server and address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::IpvsError;
use super::desired::DesiredState;
use super::kernel::IpvsObjects;
use super::sets::SetId;
use crate::kernel::dummy::AddressState;
use crate::kernel::ipset::{IpSets, SetChange, SetHeader, SetMember, SetType};
use crate::kernel::ipvs::{ServerKey, ServerSpec};
use crate::model::{Family, Protocol};
use crate::plan::stale_flows::{Frontend, needs_conntrack_cleanup};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedServer {
    pub spec: ServerSpec,
    pub destinations: BTreeMap<SocketAddr, u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedState {
    pub servers: BTreeMap<ServerKey, ObservedServer>,
    pub sets: BTreeMap<SetId, BTreeSet<SetMember>>,
    pub addresses: BTreeMap<IpAddr, AddressState>,
}

impl ObservedState {
    /// Reads the kernel's objects. Creates missing sets and the device, and replaces sets that are too small.
    pub fn read<K: IpvsObjects>(
        kernel: &mut K,
        family: Family,
        desired: &DesiredState,
        exclude: &[IpNet],
    ) -> Result<ObservedState, IpvsError> {
        let mut observed = ObservedState::default();
        for set in SetId::ALL {
            observed.sets.insert(set, read_set(kernel, set, family, desired)?);
        }
        kernel.device().ensure_device()?;
        let on_device = kernel.device().addresses(family)?;
        let ours =
            |address: &IpAddr| observed.has(SetId::IpvsIps, SetMember::Ip(*address)) || desired.has_address(address);
        let kept =
            |address: &IpAddr| exclude.iter().any(|range| range.contains(address)) && !desired.has_address(address);
        let addresses = on_device.into_iter().filter(|(address, _)| ours(address) && !kept(address)).collect();
        observed.addresses = addresses;
        let excluded = |key: &ServerKey| exclude.iter().any(|range| range.contains(&key.address.ip()));
        let all = kernel.servers().servers(family)?;
        let ours: Vec<(ServerKey, ServerSpec)> = all
            .into_iter()
            .filter(|(key, _)| desired.server(key).is_some() || (observed.owns(key) && !excluded(key)))
            .collect();
        let keys: Vec<ServerKey> = ours.iter().map(|(key, _)| *key).collect();
        for ((key, spec), destinations) in ours.into_iter().zip(kernel.servers().destinations(&keys)?) {
            let destinations = destinations.into_iter().map(|(address, state)| (address, state.weight)).collect();
            observed.servers.insert(key, ObservedServer { spec, destinations });
        }
        Ok(observed)
    }

    pub fn has(&self, set: SetId, member: SetMember) -> bool {
        self.sets.get(&set).is_some_and(|members| members.contains(&member))
    }

    /// Whether this proxy or kube-proxy created the virtual server.
    pub fn owns(&self, key: &ServerKey) -> bool {
        let (ip, port) = (key.address.ip(), key.address.port());
        let on_address = SetMember::IpPort(ip, key.protocol, port);
        let (node_ports, _) = SetId::node_ports(key.protocol);
        let as_node_port = if key.protocol == Protocol::Sctp { on_address } else { SetMember::Port(port) };
        self.has(SetId::IpvsIps, SetMember::Ip(ip))
            || [SetId::ClusterIp, SetId::ExternalIp, SetId::ExternalIpLocal, SetId::LoadBalancer]
                .into_iter()
                .any(|set| self.has(set, on_address))
            || self.has(node_ports, as_node_port)
    }

    pub fn conntrack_frontends(&self) -> BTreeSet<(Protocol, Frontend)> {
        let mut found = BTreeSet::new();
        for (set, members) in &self.sets {
            found.extend(members.iter().filter_map(|member| datagram_frontend(*set, member)));
        }
        found
    }
}

fn datagram_frontend(set: SetId, member: &SetMember) -> Option<(Protocol, Frontend)> {
    let found = match (set, member) {
        (SetId::NodePortUdp, SetMember::Port(port)) => (Protocol::Udp, Frontend::NodePort(*port)),
        (SetId::NodePortSctp, SetMember::IpPort(_, protocol, port)) => (*protocol, Frontend::NodePort(*port)),
        (
            SetId::ClusterIp | SetId::ExternalIp | SetId::ExternalIpLocal | SetId::LoadBalancer,
            SetMember::IpPort(ip, protocol, port),
        ) => (*protocol, Frontend::Address(SocketAddr::new(*ip, *port))),
        _ => return None,
    };
    Some(found).filter(|(protocol, _)| needs_conntrack_cleanup(*protocol))
}

fn read_set<K: IpvsObjects>(
    kernel: &mut K,
    set: SetId,
    family: Family,
    desired: &DesiredState,
) -> Result<BTreeSet<SetMember>, IpvsError> {
    let wanted = desired.members(set).count();
    let header = set.header(family, wanted);
    let Some(found) = kernel.sets().set(&header.name)? else {
        kernel.sets().create_set(&header)?;
        return Ok(BTreeSet::new());
    };
    if found.kind != set.kind().as_str() {
        return Err(IpvsError::SetType { name: header.name, found: found.kind, wanted: set.kind().as_str() });
    }
    // Old and new members exist together for a moment.
    let most = found.members.len() + wanted;
    if set.kind() != SetType::BitmapPort
        && wanted > 0
        && most > found.maxelem as usize
        && wanted * 2 > found.maxelem as usize
    {
        grow(kernel.sets(), &set.header(family, most), &found.members)?;
    }
    Ok(found.members)
}

/// A set cannot grow: a larger set takes its name, by an atomic swap.
fn grow(sets: &mut dyn IpSets, header: &SetHeader, members: &BTreeSet<SetMember>) -> Result<(), IpvsError> {
    let larger = SetHeader { name: "KUBE-SVCPROXY-LARGER".to_owned(), ..header.clone() };
    sets.destroy_set(&larger.name)?;
    sets.create_set(&larger)?;
    let members = members.iter().copied().collect();
    sets.change_sets(&[SetChange { set: larger.name.clone(), add: true, members }])?;
    sets.swap_sets(&header.name, &larger.name)?;
    sets.destroy_set(&larger.name)?;
    Ok(())
}
