//! What the kernel has of ours, read back at each full sync: nothing is known from memory alone, so a restart goes on where
//! its predecessor was.
//!
//! What is ours is written down in the sets: an address in `KUBE-IPVS-IPS`, a frontend or node port in its set. Members
//! therefore come in before, and go out after, the virtual servers and addresses that they stand for. Whatever else there is
//! of virtual servers, sets and addresses is another program's and stays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::IpvsError;
use super::desired::DesiredState;
use super::kernel::IpvsObjects;
use super::sets::SetId;
use crate::kernel::dummy::AddressState;
use crate::kernel::ipset::{Kind, Member, SetChange, SetHeader, Sets};
use crate::kernel::ipvs::{ServerKey, ServerSpec};
use crate::model::{Family, Protocol};
use crate::plan::flows::{Frontend, needs_conntrack_cleanup};

/// A virtual server in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedServer {
    /// What it is like.
    pub spec: ServerSpec,
    /// Destinations and their weights.
    pub destinations: BTreeMap<SocketAddr, u32>,
}

/// Everything of ours in one family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedState {
    /// Virtual servers.
    pub servers: BTreeMap<ServerKey, ObservedServer>,
    /// Members by set.
    pub sets: BTreeMap<SetId, BTreeSet<Member>>,
    /// Addresses on the device.
    pub addresses: BTreeMap<IpAddr, AddressState>,
}

impl ObservedState {
    /// Reads it. Sets and the device are made where they are missing, and sets with too little room for what is wanted are
    /// made larger.
    ///
    /// # Errors
    /// When the kernel refuses, or a set of another type has our name.
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
            |address: &IpAddr| observed.has(SetId::IpvsIps, Member::Ip(*address)) || desired.has_address(address);
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

    /// Whether a set has a member.
    pub fn has(&self, set: SetId, member: Member) -> bool {
        self.sets.get(&set).is_some_and(|members| members.contains(&member))
    }

    /// Whether a virtual server was made by us, or by kube-proxy.
    pub fn owns(&self, key: &ServerKey) -> bool {
        let (ip, port) = (key.address.ip(), key.address.port());
        let on_address = Member::IpPort(ip, key.protocol, port);
        let (node_ports, _) = SetId::node_ports(key.protocol);
        let as_node_port = if key.protocol == Protocol::Sctp { on_address } else { Member::Port(port) };
        self.has(SetId::IpvsIps, Member::Ip(ip))
            || [SetId::ClusterIp, SetId::ExternalIp, SetId::ExternalIpLocal, SetId::LoadBalancer]
                .into_iter()
                .any(|set| self.has(set, on_address))
            || self.has(node_ports, as_node_port)
    }

    /// The frontends of datagram protocols.
    pub fn conntrack_frontends(&self) -> BTreeSet<(Protocol, Frontend)> {
        let mut found = BTreeSet::new();
        for (set, members) in &self.sets {
            found.extend(members.iter().filter_map(|member| datagram_frontend(*set, member)));
        }
        found
    }
}

fn datagram_frontend(set: SetId, member: &Member) -> Option<(Protocol, Frontend)> {
    let found = match (set, member) {
        (SetId::NodePortUdp, Member::Port(port)) => (Protocol::Udp, Frontend::NodePort(*port)),
        (SetId::NodePortSctp, Member::IpPort(_, protocol, port)) => (*protocol, Frontend::NodePort(*port)),
        (
            SetId::ClusterIp | SetId::ExternalIp | SetId::ExternalIpLocal | SetId::LoadBalancer,
            Member::IpPort(ip, protocol, port),
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
) -> Result<BTreeSet<Member>, IpvsError> {
    let wanted = desired.members(set).count();
    let header = set.header(family, wanted);
    let Some(found) = kernel.sets().set(&header.name)? else {
        kernel.sets().create_set(&header)?;
        return Ok(BTreeSet::new());
    };
    if found.kind != set.kind().as_str() {
        return Err(IpvsError::SetType { name: header.name, found: found.kind, wanted: set.kind().as_str() });
    }
    // Members come in before others go out.
    let most = found.members.len() + wanted;
    if set.kind() != Kind::BitmapPort
        && wanted > 0
        && most > found.maxelem as usize
        && wanted * 2 > found.maxelem as usize
    {
        grow(kernel.sets(), &set.header(family, most), &found.members)?;
    }
    Ok(found.members)
}

/// A set cannot be made larger: a larger one takes its place, without a moment between.
fn grow(sets: &mut dyn Sets, header: &SetHeader, members: &BTreeSet<Member>) -> Result<(), IpvsError> {
    let larger = SetHeader { name: "KUBE-SVCPROXY-LARGER".to_owned(), ..header.clone() };
    sets.destroy_set(&larger.name)?;
    sets.create_set(&larger)?;
    let members = members.iter().copied().collect();
    sets.change_sets(&[SetChange { set: larger.name.clone(), add: true, members }])?;
    sets.swap_sets(&header.name, &larger.name)?;
    sets.destroy_set(&larger.name)?;
    Ok(())
}
