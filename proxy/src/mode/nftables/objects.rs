//! One service port's elements, computed from frontends and endpoints when needed: stored elements would take ten times
//! the memory.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::affinity::AffinityRenderer;
use super::counters::CounterNames;
use super::endpoint_index::{EndpointIndex, assign};
use super::layout;
use super::shared_chains::{ChainRole, FrontendKind, SharedChain, cluster_ip_rules};
use super::slots::{SlotChoice, SlotTables};
use crate::model::Protocol;
use crate::nftables::{Chain, Element, ElementKey, ElementValue, Name, NftVerdict, Set};
use crate::plan::{
    AllowedSources, BackendSet, ExternalFrontends, FrontendAction, Masquerade, NodePlan, ServicePortPlan,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftServiceObjects {
    protocol: Protocol,
    port: u16,
    frontends: Box<[FrontendElements]>,
    /// Endpoints that may connect to themselves.
    hairpins: Box<[IpAddr]>,
    /// Rare elements, in any order.
    elements: Vec<Element>,
    own: Option<Box<AffinityObjects>>,
    counters: Option<Box<CounterNames>>,
    pub slots: EndpointIndex,
    /// `None`: endpoints are drawn.
    tables: Option<Box<SlotTables>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AffinityObjects {
    pub chains: BTreeMap<Name, Chain>,
    pub sets: BTreeMap<Name, Set>,
    /// Sets that other ports of the Service may use as well.
    pub shared_sets: BTreeMap<Name, Set>,
}

impl AffinityObjects {
    pub(super) fn extend(&mut self, other: &AffinityObjects) {
        self.chains.extend(other.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())));
        self.sets.extend(other.sets.iter().map(|(name, set)| (name.clone(), set.clone())));
        self.shared_sets.extend(other.shared_sets.iter().map(|(name, set)| (name.clone(), set.clone())));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FrontendElements {
    address: FrontendAddress,
    /// Whether the address is a cluster IP, which the Service's other ports share.
    is_cluster_ip: bool,
    no_endpoints: Option<NoEndpoints>,
    dispatch: Option<Dispatch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FrontendAddress {
    Address(IpAddr),
    NodePort(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoEndpoints {
    Refused,
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Dispatch {
    chain: Name,
    /// `None`: the service port has its own chain, with endpoints in rules instead of elements.
    shared: Option<ChainRole>,
    picked: Option<BackendSet>,
    short_circuit: Option<BackendSet>,
}

struct FrontendMaps {
    traffic: &'static str,
    connections: &'static str,
    services: &'static str,
    no_endpoints: &'static str,
    endpoints: &'static str,
    short_circuits: &'static str,
    restricted: &'static str,
    allowed: &'static str,
}

const OF_ADDRESSES: FrontendMaps = FrontendMaps {
    traffic: layout::SERVICE_TRAFFIC,
    connections: layout::SERVICE_CONNECTIONS,
    services: layout::SERVICE_IPS,
    no_endpoints: layout::NO_ENDPOINT_SERVICES,
    endpoints: layout::SERVICE_ENDPOINTS,
    short_circuits: layout::SHORT_CIRCUIT_ENDPOINTS,
    restricted: layout::RESTRICTED,
    allowed: layout::ALLOWED,
};
const OF_NODE_PORTS: FrontendMaps = FrontendMaps {
    traffic: layout::NODEPORT_TRAFFIC,
    connections: layout::NODEPORT_CONNECTIONS,
    services: layout::SERVICE_NODEPORTS,
    no_endpoints: layout::NO_ENDPOINT_NODEPORTS,
    endpoints: layout::NODEPORT_ENDPOINTS,
    short_circuits: layout::NODEPORT_SHORT_CIRCUIT_ENDPOINTS,
    restricted: layout::RESTRICTED_NODEPORTS,
    allowed: layout::ALLOWED_NODEPORTS,
};

impl FrontendAddress {
    fn kind(self) -> FrontendKind {
        match self {
            FrontendAddress::Address(_) => FrontendKind::Address,
            FrontendAddress::NodePort(_) => FrontendKind::NodePort,
        }
    }

    fn maps(self) -> &'static FrontendMaps {
        match self {
            FrontendAddress::Address(_) => &OF_ADDRESSES,
            FrontendAddress::NodePort(_) => &OF_NODE_PORTS,
        }
    }
}

pub fn render(plan: &ServicePortPlan, node: &NodePlan, before: &EndpointIndex) -> NftServiceObjects {
    let slots = EndpointIndex {
        cluster: assign(&before.cluster, &plan.cluster_backends),
        local: assign(&before.local, &plan.local_backends),
    };
    let tables = SlotTables::new(plan.load_balancing, &slots);
    let affinity = plan.affinity.map(|timeout| AffinityRenderer::new(plan, node, timeout));
    let marks_cluster_ips = !cluster_ip_rules(node).is_empty();
    let relays_localhost = node.node_port_relay.is_some();
    let (frontends, elements) = (Vec::new(), Vec::new());
    let mut writer =
        ElementRenderer { plan, slots, tables, affinity, marks_cluster_ips, relays_localhost, frontends, elements };
    if let Some(internal) = &plan.internal {
        writer.add_frontend(FrontendAddress::Address(internal.address), internal.action, None);
    }
    if let Some(external) = &plan.external {
        writer.external(external);
    }
    let ElementRenderer { slots, tables, affinity, frontends, mut elements, .. } = writer;
    elements.sort_unstable();
    elements.dedup();
    NftServiceObjects {
        protocol: plan.protocol(),
        port: plan.port,
        frontends: frontends.into(),
        hairpins: plan.hairpins.clone().into(),
        elements,
        own: affinity.map(|affinity| Box::new(affinity.objects(&slots))),
        counters: None,
        slots,
        tables: tables.map(Box::new),
    }
}

impl NftServiceObjects {
    fn key(&self, address: FrontendAddress) -> ElementKey {
        key(address, self.protocol, self.port)
    }

    /// Counts the traffic of all frontends by these counters.
    pub fn count(&mut self, names: Option<CounterNames>) {
        self.counters = names.map(Box::new);
    }

    pub fn counters(&self) -> impl Iterator<Item = &Name> {
        self.counters.iter().flat_map(|names| names.all())
    }

    /// Returns elements that do not depend on endpoints: connections to endpoints that are gone are counted as well.
    fn counted(&self, maps: &FrontendMaps, key: ElementKey) -> impl Iterator<Item = Element> + use<'_> {
        let (traffic, connections) = (maps.traffic, maps.connections);
        self.counters.iter().flat_map(move |names| {
            [
                (traffic, key.direction(false), &names.original),
                (traffic, key.direction(true), &names.reply),
                (connections, key, &names.connections),
            ]
            .map(|(set, key, name)| Element { set, key, value: ElementValue::Counter(name.clone()) })
        })
    }

    pub fn elements(&self) -> impl Iterator<Item = Element> {
        self.common_elements().chain(self.own_elements())
    }

    pub fn common_elements(&self) -> impl Iterator<Item = Element> {
        let cluster_ips = self.frontends.iter().filter(|frontend| frontend.is_cluster_ip);
        let cluster_ips = cluster_ips.filter_map(|frontend| match frontend.address {
            FrontendAddress::Address(address) => {
                Some(Element::of(layout::CLUSTER_IPS, ElementKey::default().address(address)))
            }
            FrontendAddress::NodePort(_) => None,
        });
        let pair = |address: &IpAddr| ElementKey::default().address(*address).address(*address);
        cluster_ips.chain(self.hairpins.iter().map(move |address| Element::of(layout::HAIRPINS, pair(address))))
    }

    pub fn own_elements(&self) -> impl Iterator<Item = Element> {
        self.frontends.iter().flat_map(|frontend| self.of_frontend(frontend)).chain(self.elements.iter().cloned())
    }

    fn of_frontend<'a>(&'a self, frontend: &'a FrontendElements) -> impl Iterator<Item = Element> + 'a {
        let (maps, key) = (frontend.address.maps(), self.key(frontend.address));
        let no_endpoints = frontend.no_endpoints.map(|no_endpoints| Element {
            set: maps.no_endpoints,
            key,
            value: ElementValue::Verdict(match no_endpoints {
                NoEndpoints::Refused => NftVerdict::Goto(layout::REJECT_CHAIN.into()),
                NoEndpoints::Dropped => NftVerdict::Drop,
            }),
        });
        let numbered = move |map, set: Option<BackendSet>| {
            let endpoints = set.into_iter().flat_map(|set| self.numbered_endpoints(set));
            endpoints.map(move |(number, endpoint)| Element {
                set: map,
                key: key.number(number),
                value: ElementValue::endpoint(endpoint),
            })
        };
        let shared = frontend.dispatch.as_ref().filter(|to| to.shared.is_some());
        let picked = numbered(maps.endpoints, shared.and_then(|to| to.picked));
        let short_circuits = numbered(maps.short_circuits, shared.and_then(|to| to.short_circuit));
        let to = frontend.dispatch.iter().map(move |to| Element {
            set: maps.services,
            key,
            value: ElementValue::goto(to.chain.clone()),
        });
        no_endpoints.into_iter().chain(picked).chain(short_circuits).chain(to).chain(self.counted(maps, key))
    }

    /// Returns referenced shared chains, perhaps with duplicates.
    pub fn shared(&self) -> impl Iterator<Item = SharedChain> {
        let chains = self.frontends.iter().filter_map(|frontend| {
            let role = frontend.dispatch.as_ref()?.shared?;
            Some(SharedChain { kind: frontend.address.kind(), protocol: self.protocol, role })
        });
        chains.flat_map(SharedChain::with_targets)
    }

    pub fn own(&self) -> Option<&AffinityObjects> {
        self.own.as_deref()
    }

    fn numbered_endpoints(&self, set: BackendSet) -> impl Iterator<Item = (u32, SocketAddr)> + '_ {
        let tables = self.tables.as_ref().filter(|tables| tables.choice(set).is_some());
        let slots = tables.into_iter().flat_map(move |tables| tables.numbered(set, &self.slots));
        let drawn = tables.is_none().then(|| self.slots.of(set).numbered());
        slots.chain(drawn.into_iter().flatten())
    }

    /// Whether elements belong to slots of a table, and not to endpoints' indexes.
    pub fn is_hashed(&self) -> bool {
        self.tables.is_some()
    }

    /// Returns a backend set's map, and the map's key without the index.
    pub fn numbered(&self, set: BackendSet) -> Option<(&'static str, ElementKey)> {
        self.frontends.iter().find_map(|frontend| {
            let to = frontend.dispatch.as_ref().filter(|to| to.shared.is_some())?;
            let maps = frontend.address.maps();
            let of = [(to.picked, maps.endpoints), (to.short_circuit, maps.short_circuits)];
            let (_, map) = of.into_iter().find(|(of, _)| *of == Some(set))?;
            Some((map, self.key(frontend.address)))
        })
    }
}

fn key(address: FrontendAddress, protocol: Protocol, port: u16) -> ElementKey {
    match address {
        FrontendAddress::Address(address) => ElementKey::default().address(address).protocol(protocol).port(port),
        FrontendAddress::NodePort(port) => ElementKey::default().protocol(protocol).port(port),
    }
}

struct ElementRenderer<'a> {
    plan: &'a ServicePortPlan,
    slots: EndpointIndex,
    tables: Option<SlotTables>,
    affinity: Option<AffinityRenderer<'a>>,
    /// Whether packets to cluster IPs are masqueraded for any source.
    marks_cluster_ips: bool,
    relays_localhost: bool,
    frontends: Vec<FrontendElements>,
    elements: Vec<Element>,
}

impl ElementRenderer<'_> {
    fn external(&mut self, external: &ExternalFrontends) {
        for address in external.external_ips.iter().chain(&external.load_balancer_ips) {
            self.add_frontend(FrontendAddress::Address(*address), external.action, Some(external));
        }
        if let Some(port) = external.node_port {
            self.add_frontend(FrontendAddress::NodePort(port), external.action, Some(external));
            let refused = layout::localhost_refused(self.plan.protocol()).filter(|_| self.relays_localhost);
            self.elements.extend(refused.map(|chain| Element {
                set: layout::LOCALHOST_NODEPORTS,
                key: key(FrontendAddress::NodePort(port), self.plan.protocol(), self.plan.port),
                value: ElementValue::goto(chain.into()),
            }));
        }
        if let Some(allowed) = &external.annotated_sources {
            self.restrict_addresses(external.external_ips.iter().copied(), allowed);
            external
                .node_port
                .into_iter()
                .for_each(|port| self.restrict(FrontendAddress::NodePort(port), &allowed.ranges));
        }
        if let Some(allowed) = &external.allowed_sources {
            let is_annotated =
                |ip: &&IpAddr| external.annotated_sources.is_some() && external.external_ips.contains(ip);
            let balanced = external.load_balancer_ips.iter().filter(|ip| !is_annotated(ip));
            self.restrict_addresses(balanced.copied(), allowed);
        }
    }

    fn restrict_addresses(&mut self, addresses: impl Iterator<Item = IpAddr> + Clone, allowed: &AllowedSources) {
        let own = addresses.clone().filter(|_| allowed.own_addresses).map(IpNet::from);
        let sources: Vec<IpNet> = allowed.ranges.iter().copied().chain(own).collect();
        for address in addresses {
            self.restrict(FrontendAddress::Address(address), &sources);
        }
    }

    fn restrict(&mut self, address: FrontendAddress, sources: &[IpNet]) {
        let (maps, key) = (address.maps(), key(address, self.plan.protocol(), self.plan.port));
        self.elements.push(Element::of(maps.restricted, key));
        // The kernel accepts no overlapping ranges.
        let ranges = IpNet::aggregate(&sources.to_vec());
        self.elements.extend(ranges.into_iter().map(|range| Element::range(maps.allowed, key, range)));
    }

    /// Adds a frontend unless the address has one. Cluster IPs precede external IPs and load-balancer IPs. `external`
    /// is `None` for the cluster IP.
    fn add_frontend(&mut self, address: FrontendAddress, action: FrontendAction, external: Option<&ExternalFrontends>) {
        if self.frontends.iter().any(|frontend| frontend.address == address) {
            return;
        }
        let (picked, no_endpoints) = match action.verdict {
            crate::plan::FrontendVerdict::Deliver(set) => (Some(set), None),
            crate::plan::FrontendVerdict::Reject => (None, Some(NoEndpoints::Refused)),
            crate::plan::FrontendVerdict::Drop => (None, Some(NoEndpoints::Dropped)),
        };
        // Pods and the node share backends; the chain masquerades only the node.
        let short = external.and_then(|external| external.short_circuit);
        let short_circuit = match short.map(|short| short.node.verdict) {
            Some(crate::plan::FrontendVerdict::Deliver(set)) => Some(set),
            _ => None,
        };
        let dispatch = self.dispatch(address, picked, short_circuit, action.masquerade, external.is_some());
        self.frontends.push(FrontendElements { address, is_cluster_ip: external.is_none(), no_endpoints, dispatch });
    }

    fn choice(&self, set: BackendSet) -> SlotChoice {
        let hashed = self.tables.as_ref().and_then(|tables| tables.choice(set));
        hashed.unwrap_or_else(|| SlotChoice::Random(self.slots.of(set).count()))
    }

    fn dispatch(
        &mut self,
        address: FrontendAddress,
        picked: Option<BackendSet>,
        short_circuit: Option<BackendSet>,
        masquerade: Masquerade,
        is_external: bool,
    ) -> Option<Dispatch> {
        const NONE: SlotChoice = SlotChoice::Random(0);
        let choice = |set: Option<BackendSet>| set.map_or(NONE, |set| self.choice(set));
        let role = match (choice(picked), choice(short_circuit), masquerade) {
            (NONE, NONE, _) => return None,
            (local, all, _) if all != NONE => ChainRole::Local { local, all },
            (choice, _, Masquerade::Always) if is_external => ChainRole::External(choice),
            (choice, ..) if !is_external && self.marks_cluster_ips => ChainRole::ClusterIp(choice),
            (choice, ..) => ChainRole::Pick(choice),
        };
        let (chain, shared) = match &mut self.affinity {
            Some(affinity) => (affinity.entry(role, picked), None),
            None => (SharedChain { kind: address.kind(), protocol: self.plan.protocol(), role }.name(), Some(role)),
        };
        Some(Dispatch { chain, shared, picked, short_circuit })
    }
}
