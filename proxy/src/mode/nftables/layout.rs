//! The objects that exist whatever the services. Only objects with the same meaning as in kube-proxy have its names:
//! kube-proxy keeps an existing table, and cannot create a set that exists with another type. Other programs may rely
//! on the base chains' names and priorities
//! (<https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables>).

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use nf_tables::field::KeyField;

use crate::model::{Family, Frontend, Protocol};
use crate::mutants;
use crate::nftables::{
    AddressSide, BaseHook, Chain, Element, ElementKey, ElementKind, Name, NftHook, NftVerdict, Rule, Set, Statement,
};
use crate::plan::lost_flows::LostFlow;
use crate::plan::{Masquerade, NodePlan, NodePortScope, PodSource};

pub const TABLE: &str = "kube-proxy";
pub const PROBE: &str = "svcproxy-probe";
/// Identifies the proxy's table and layout.
pub const COMMENT: &str = "Kubernetes Services, by svcproxy; layout 3";

pub const CLUSTER_IPS: &str = "cluster-ips";
pub const SERVICE_CIDRS: &str = "service-cidrs";
/// The addresses that accept node ports, unless every local address does.
pub const NODEPORT_IPS: &str = "nodeport-ips";
/// Endpoints that may connect to themselves: source, destination.
pub const HAIRPINS: &str = "hairpins";
pub const RESTRICTED: &str = "firewall-restricted";
pub const ALLOWED: &str = "firewall-allowed";
/// The same for node ports.
pub const RESTRICTED_NODEPORTS: &str = "firewall-restricted-nodeports";
pub const ALLOWED_NODEPORTS: &str = "firewall-allowed-nodeports";
/// Service addresses without endpoints: dropped or rejected.
pub const NO_ENDPOINT_SERVICES: &str = "no-endpoint-services";
pub const NO_ENDPOINT_NODEPORTS: &str = "no-endpoint-nodeports";
/// Service addresses to chains.
pub const SERVICE_IPS: &str = "service-ips";
/// Node ports to chains.
pub const SERVICE_NODEPORTS: &str = "service-nodeports";
/// Service addresses and indexes to endpoints.
pub const SERVICE_ENDPOINTS: &str = "service-endpoints";
pub const NODEPORT_ENDPOINTS: &str = "nodeport-endpoints";
/// Endpoints for pods and the node, to which policy Local does not apply.
pub const SHORT_CIRCUIT_ENDPOINTS: &str = "short-circuit-endpoints";
pub const NODEPORT_SHORT_CIRCUIT_ENDPOINTS: &str = "nodeport-short-circuit-endpoints";
/// Node ports that are rejected on the loopback range.
pub const LOCALHOST_NODEPORTS: &str = "localhost-nodeports";

/// Original destinations and directions of translated packets to the counters of service ports.
pub const SERVICE_TRAFFIC: &str = "service-traffic";
pub const NODEPORT_TRAFFIC: &str = "nodeport-traffic";
/// Original destinations of new connections to the counters of service ports.
pub const SERVICE_CONNECTIONS: &str = "service-connections";
pub const NODEPORT_CONNECTIONS: &str = "nodeport-connections";

/// Destinations and endpoints of connections to reset.
pub const LOST_FLOWS: &str = "lost-flows";

const SERVICES: &str = "services";
const LOST_FLOWS_CHECK: &str = "lost-flows-check";
const COUNT_TRAFFIC: &str = "count-traffic";
const COUNT_CONNECTIONS: &str = "count-connections";
const NAT_INPUT: &str = "nat-input";
const FIREWALL_CHECK: &str = "firewall-check";
const NODEPORT_ENDPOINTS_CHECK: &str = "nodeport-endpoints-check";
const SERVICE_ENDPOINTS_CHECK: &str = "service-endpoints-check";
const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
const LOCALHOST_NODEPORTS_CHECK: &str = "localhost-nodeports-check";
const MASQUERADING: &str = "masquerading";
pub const REJECT_CHAIN: &str = "reject-chain";

/// Returns the chain that rejects node ports on the loopback range. `None`: relays answer.
pub fn localhost_refused(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Tcp => None,
        Protocol::Udp => Some("reject-localhost-udp"),
        Protocol::Sctp => Some("reject-localhost-sctp"),
    }
}

pub fn is_target_of_elements(chain: &str) -> bool {
    chain == REJECT_CHAIN || Protocol::ALL.into_iter().any(|protocol| localhost_refused(protocol) == Some(chain))
}

/// `NF_IP_PRI_NAT_DST`, `NF_IP_PRI_NAT_SRC` and `NF_IP_PRI_FILTER` (`include/uapi/linux/netfilter_ipv4.h`).
const DSTNAT: i32 = -100;
const SRCNAT: i32 = 100;
const FILTER: i32 = 0;
const PRE_DNAT: i32 = DSTNAT - 10;

const ADDRESS: &[KeyField] = &[KeyField::Destination];
pub(super) const FRONTEND: &[KeyField] = &[KeyField::Destination, KeyField::Protocol, KeyField::DestinationPort];
const FRONTEND_AND_SOURCE: &[KeyField] =
    &[KeyField::Destination, KeyField::Protocol, KeyField::DestinationPort, KeyField::Source];
pub(super) const NODEPORT: &[KeyField] = &[KeyField::Protocol, KeyField::DestinationPort];
const NODEPORT_AND_SOURCE: &[KeyField] = &[KeyField::Protocol, KeyField::DestinationPort, KeyField::Source];
const PAIR: &[KeyField] = &[KeyField::Source, KeyField::Destination];
const FLOW: &[KeyField] = &[
    KeyField::OriginalDestination,
    KeyField::OriginalDestinationPort,
    KeyField::ReplySource,
    KeyField::ReplySourcePort,
];
const ORIGINAL: &[KeyField] = &[KeyField::OriginalDestination, KeyField::Protocol, KeyField::OriginalDestinationPort];
const ORIGINAL_NODEPORT: &[KeyField] = &[KeyField::Protocol, KeyField::OriginalDestinationPort];
const TRAFFIC: &[KeyField] =
    &[KeyField::OriginalDestination, KeyField::Protocol, KeyField::OriginalDestinationPort, KeyField::Direction];
const NODEPORT_TRAFFIC_KEY: &[KeyField] = &[KeyField::Protocol, KeyField::OriginalDestinationPort, KeyField::Direction];
/// Sets declare the number with `typeof`; whether it is random, and its modulus, do not matter there. `nft` 1.0.6 ends by a
/// segmentation fault when it lists a set of `jhash`.
const FRONTEND_SLOT: &[KeyField] =
    &[KeyField::Destination, KeyField::Protocol, KeyField::DestinationPort, KeyField::Random(2)];
const NODEPORT_SLOT: &[KeyField] = &[KeyField::Protocol, KeyField::DestinationPort, KeyField::Random(2)];

/// The base chains in packet order, with their jumps.
const BASE_CHAINS: [(&str, bool, NftHook, i32, &[&str]); 8] = [
    ("filter-prerouting-pre-dnat", false, NftHook::Prerouting, PRE_DNAT, &[FIREWALL_CHECK]),
    ("filter-output-pre-dnat", false, NftHook::Output, PRE_DNAT, &[FIREWALL_CHECK]),
    ("nat-prerouting", true, NftHook::Prerouting, DSTNAT, &[SERVICES]),
    ("nat-output", true, NftHook::Output, DSTNAT, &[SERVICES]),
    ("filter-input", false, NftHook::Input, FILTER, &[NODEPORT_ENDPOINTS_CHECK, SERVICE_ENDPOINTS_CHECK]),
    ("filter-forward", false, NftHook::Forward, FILTER, &[SERVICE_ENDPOINTS_CHECK, CLUSTER_IPS_CHECK]),
    ("filter-output", false, NftHook::Output, FILTER, &[SERVICE_ENDPOINTS_CHECK, CLUSTER_IPS_CHECK]),
    ("nat-postrouting", true, NftHook::Postrouting, SRCNAT, &[MASQUERADING]),
];

pub fn base_chains(node: &NodePlan) -> impl Iterator<Item = &'static str> {
    BASE_CHAINS.into_iter().map(|(name, ..)| name).chain(node.count_services.then_some(NAT_INPUT))
}

/// Whether a table of this program may lack the set, which an option or annotation asks for.
pub fn is_optional(set: &str) -> bool {
    let counters = [SERVICE_TRAFFIC, NODEPORT_TRAFFIC, SERVICE_CONNECTIONS, NODEPORT_CONNECTIONS];
    counters.contains(&set) || [LOST_FLOWS, RESTRICTED_NODEPORTS, ALLOWED_NODEPORTS].contains(&set)
}

fn node_port_ranges() -> [(&'static str, Set); 2] {
    [
        (RESTRICTED_NODEPORTS, Set::keys("node ports with source ranges", NODEPORT)),
        (ALLOWED_NODEPORTS, Set::ranges("who may use them", NODEPORT_AND_SOURCE)),
    ]
}

/// The maps of counters have no size: an option adds them to a table in use, and a table that has a size too small is
/// replaced, with its counters.
fn counter_maps() -> [(&'static str, Set); 4] {
    let map = |comment, key| Set::map(comment, key, ElementKind::Counters);
    [
        (SERVICE_TRAFFIC, map("whose traffic a packet is, by the destination of its connection", TRAFFIC)),
        (NODEPORT_TRAFFIC, map("the same for node ports", NODEPORT_TRAFFIC_KEY)),
        (SERVICE_CONNECTIONS, map("whose connection it is", ORIGINAL)),
        (NODEPORT_CONNECTIONS, map("the same for node ports", ORIGINAL_NODEPORT)),
    ]
}

/// Returns the sets in printing order, with sizes by `size`.
pub fn sets(node: &NodePlan, size: impl Fn(&str) -> u32) -> Vec<(&'static str, Set)> {
    let sized = |name: &'static str, set: Set| (name, set.sized(size(name)));
    let mut sets = vec![
        sized(SERVICE_IPS, Set::map("where packets to services go on", FRONTEND, ElementKind::Verdicts)),
        sized(SERVICE_NODEPORTS, Set::map("where packets to node ports go on", NODEPORT, ElementKind::Verdicts)),
        sized(
            SERVICE_ENDPOINTS,
            Set::map("the endpoints of each service, by number", FRONTEND_SLOT, ElementKind::Endpoints),
        ),
        sized(
            NODEPORT_ENDPOINTS,
            Set::map("the endpoints of each node port, by number", NODEPORT_SLOT, ElementKind::Endpoints),
        ),
        sized(
            SHORT_CIRCUIT_ENDPOINTS,
            Set::map("policy Local: endpoints for pods and this node", FRONTEND_SLOT, ElementKind::Endpoints),
        ),
        sized(
            NODEPORT_SHORT_CIRCUIT_ENDPOINTS,
            Set::map("policy Local: endpoints for pods and this node", NODEPORT_SLOT, ElementKind::Endpoints),
        ),
        sized(NO_ENDPOINT_SERVICES, Set::map("services that nobody answers", FRONTEND, ElementKind::Verdicts)),
        sized(NO_ENDPOINT_NODEPORTS, Set::map("node ports that nobody answers", NODEPORT, ElementKind::Verdicts)),
        sized(
            LOCALHOST_NODEPORTS,
            Set::map("node ports that refuse on loopback addresses", NODEPORT, ElementKind::Verdicts),
        ),
        sized(CLUSTER_IPS, Set::keys("cluster IPs", ADDRESS)),
        (SERVICE_CIDRS, Set::ranges("ranges that cluster IPs come from", ADDRESS)),
        sized(NODEPORT_IPS, Set::keys("addresses that accept node ports", ADDRESS)),
        sized(HAIRPINS, Set::keys("endpoints of this node, as their own clients", PAIR)),
        sized(RESTRICTED, Set::keys("load-balancer addresses with source ranges", FRONTEND)),
        (ALLOWED, Set::ranges("who may use them", FRONTEND_AND_SOURCE)),
    ];
    // Few elements, whose number nothing foretells.
    sets.extend(node.limits_node_ports.then(node_port_ranges).into_iter().flatten());
    sets.extend(node.count_services.then(counter_maps).into_iter().flatten());
    sets.extend(node.lost_flows.map(|_| (LOST_FLOWS, Set::keys("connections whose endpoint is lost", FLOW))));
    sets
}

pub fn chains(node: &NodePlan) -> Vec<(Name, Chain)> {
    let base = BASE_CHAINS.into_iter().map(|(name, is_nat, hook, priority, to)| {
        // nat chains see only connections' first packets.
        let jump = |chain: &&str| {
            let new = (!is_nat).then_some(Statement::New);
            Rule::new(new.into_iter().chain([Statement::Verdict(NftVerdict::Jump((*chain).into()))]))
        };
        let localhost =
            (hook == NftHook::Input && node.node_port_relay.is_some()).then_some(&LOCALHOST_NODEPORTS_CHECK);
        let filters_flows = priority == PRE_DNAT && node.lost_flows.is_some();
        let lost = filters_flows.then(|| {
            let jump = Statement::Verdict(NftVerdict::Jump(LOST_FLOWS_CHECK.into()));
            Rule::new([Statement::Translated, jump])
        });
        let counted = node.count_services.then(|| count(name)).flatten();
        let rules = lost.into_iter().chain(counted).chain(to.iter().chain(localhost).map(jump)).collect();
        (name.into(), Chain { comment: "", base: Some(BaseHook { is_nat, hook, priority }), rules })
    });
    let others = [
        (FIREWALL_CHECK, firewall_check(node)),
        (SERVICES, services(node)),
        (NODEPORT_ENDPOINTS_CHECK, nodeport_endpoints_check(node)),
        (SERVICE_ENDPOINTS_CHECK, service_endpoints_check()),
        (CLUSTER_IPS_CHECK, cluster_ips_check()),
        (REJECT_CHAIN, Chain::new("refuses what nobody answers", vec![Rule::new([Statement::Reject])])),
        (MASQUERADING, masquerading(node)),
    ];
    let others = others.into_iter().chain(node.node_port_relay.map(|_| localhost_check(node)).into_iter().flatten());
    let others = others.chain(node.lost_flows.map(|_| (LOST_FLOWS_CHECK, lost_flows_check())));
    let others = others.chain(node.count_services.then(counting).into_iter().flatten());
    let mut chains: Vec<(Name, Chain)> = base.chain(others.map(|(name, chain)| (name.into(), chain))).collect();
    chains.iter_mut().for_each(|(name, chain)| mutants::nft_rules(name, &mut chain.rules));
    chains
}

/// Returns the rule of a base chain that counts translated packets or connections. The hooks input, forward and output
/// see each packet once after NAT; a packet to this node's own processes passes output and input, the second time from
/// the loopback interface. The chains of source NAT see the first packet of each connection, and only one of them.
fn count(base_chain: &str) -> Option<Rule> {
    let to = match base_chain {
        "nat-postrouting" | NAT_INPUT => COUNT_CONNECTIONS,
        "filter-input" | "filter-forward" | "filter-output" => COUNT_TRAFFIC,
        _ => return None,
    };
    let from_elsewhere = Statement::Interface { name: "lo".to_owned(), prefix: false, negated: true };
    let from_elsewhere = (base_chain == "filter-input").then_some(from_elsewhere);
    let jump = Statement::Verdict(NftVerdict::Jump(to.into()));
    Some(Rule::new(from_elsewhere.into_iter().chain([Statement::Translated, jump])))
}

/// `nft` knows the type of a connection's port only behind a match of the protocol, so each protocol has its rules. A
/// packet to a service address costs one look-up, to a node port two.
fn counting() -> [(&'static str, Chain); 3] {
    let rules = |service: (&'static [KeyField], &'static str), node_port: (&'static [KeyField], &'static str)| {
        let of_protocol = move |protocol| {
            let count = |(key, map)| [Statement::Protocol(protocol), Statement::CountBy { key, map }];
            let found = count(service).into_iter().chain([Statement::Verdict(NftVerdict::Return)]);
            [Rule::new(found), Rule::new(count(node_port))]
        };
        Protocol::ALL.into_iter().flat_map(of_protocol).collect()
    };
    let traffic = rules((TRAFFIC, SERVICE_TRAFFIC), (NODEPORT_TRAFFIC_KEY, NODEPORT_TRAFFIC));
    let connections = rules((ORIGINAL, SERVICE_CONNECTIONS), (ORIGINAL_NODEPORT, NODEPORT_CONNECTIONS));
    let base = BaseHook { is_nat: true, hook: NftHook::Input, priority: SRCNAT };
    [
        (NAT_INPUT, Chain { comment: "", base: Some(base), rules: count(NAT_INPUT).into_iter().collect() }),
        (COUNT_TRAFFIC, Chain::new("packets of service ports, in both directions", traffic)),
        (COUNT_CONNECTIONS, Chain::new("connections of service ports", connections)),
    ]
}

/// Resets connections in both directions, before NAT: a reset that answers a packet from a bridge port skips NAT where
/// bridges pass netfilter (`nf_send_reset` in net/ipv4/netfilter/nf_reject_ipv4.c), so the packet must have the addresses
/// that its sender knows. Elsewhere the reset passes these chains as a packet that is only related to the connection.
fn lost_flows_check() -> Chain {
    let tcp = Statement::Protocol(Protocol::Tcp);
    let reset = [tcp, Statement::NotRelated, in_set(FLOW, LOST_FLOWS, false), Statement::Reset];
    Chain::new("connections whose endpoint is lost", vec![Rule::new(reset)])
}

/// Returns the elements of lost flows; those of node ports have each of `node_addresses`.
pub fn lost_flows(flows: &[LostFlow], node_addresses: &[IpAddr]) -> Vec<Element> {
    let element = |destination: SocketAddr, endpoint: SocketAddr| {
        let key = ElementKey::default().address(destination.ip()).port(destination.port());
        Element::of(LOST_FLOWS, key.address(endpoint.ip()).port(endpoint.port()))
    };
    let each = flows.iter().flat_map(|(frontend, endpoint)| match frontend {
        Frontend::Address(address) => vec![element(*address, *endpoint)],
        Frontend::NodePort(port) => {
            node_addresses.iter().map(|ip| element(SocketAddr::new(*ip, *port), *endpoint)).collect()
        }
    });
    each.collect()
}

/// Returns the chains for node ports on the loopback range: relays listen for TCP; packets to others are counted and
/// rejected. In the input hook, the sender gets an ICMP message; in the output hook its call would fail with EPERM.
fn localhost_check(node: &NodePlan) -> Vec<(&'static str, Chain)> {
    let to_loopback =
        Statement::Range { side: AddressSide::Destination, range: node.family.loopback_range(), negated: false };
    let look = Rule::new([to_loopback, Statement::Map { key: NODEPORT, map: LOCALHOST_NODEPORTS }]);
    let check = (LOCALHOST_NODEPORTS_CHECK, Chain::new("node ports on loopback addresses", vec![look]));
    let refuse = || Chain::new("", vec![Rule::new([Statement::Counter, Statement::Reject])]);
    let refused = Protocol::ALL.into_iter().filter_map(localhost_refused).map(|name| (name, refuse()));
    std::iter::once(check).chain(refused).collect()
}

pub fn elements(node: &NodePlan) -> Vec<Element> {
    let mut elements = service_cidrs(&node.service_ranges);
    if let NodePortScope::Addresses(addresses) = &node.node_ports {
        let usable = addresses.iter().filter(|address| !address.is_loopback());
        elements.extend(usable.map(|address| Element::of(NODEPORT_IPS, ElementKey::default().address(*address))));
    }
    elements
}

/// Returns the elements of [`NodePlan::service_ranges`], sorted.
pub fn service_cidrs(ranges: &[IpNet]) -> Vec<Element> {
    let mut elements: Vec<Element> =
        ranges.iter().map(|range| Element::range(SERVICE_CIDRS, ElementKey::default(), *range)).collect();
    elements.sort_unstable();
    elements
}

fn in_set(key: &'static [KeyField], set: &str, negated: bool) -> Statement {
    Statement::InSet { key, set: set.into(), negated }
}

pub(super) fn from_pods(pods: &PodSource, negated: bool) -> Statement {
    match pods {
        PodSource::Range(range) => Statement::Range { side: AddressSide::Source, range: *range, negated },
        PodSource::Interface(name) => Statement::Interface { name: name.clone(), prefix: false, negated },
        PodSource::InterfacePrefix(name) => Statement::Interface { name: name.clone(), prefix: true, negated },
    }
}

fn firewall_check(node: &NodePlan) -> Chain {
    let drop = || Statement::Verdict(NftVerdict::Drop);
    let addresses = [in_set(FRONTEND, RESTRICTED, false), in_set(FRONTEND_AND_SOURCE, ALLOWED, true), drop()];
    let node_ports = node.limits_node_ports.then(|| {
        let restricted = in_set(NODEPORT, RESTRICTED_NODEPORTS, false);
        let of_others = [in_set(NODEPORT_AND_SOURCE, ALLOWED_NODEPORTS, true), drop()];
        Rule::new([restricted].into_iter().chain(on_node(node)).chain(of_others))
    });
    Chain::new("loadBalancerSourceRanges", [Rule::new(addresses)].into_iter().chain(node_ports).collect())
}

fn services(node: &NodePlan) -> Chain {
    let to_service = Rule::new([Statement::Map { key: FRONTEND, map: SERVICE_IPS }]);
    let to_node_port = on_node(node).into_iter().chain([Statement::Map { key: NODEPORT, map: SERVICE_NODEPORTS }]);
    let rules = vec![to_service, Rule::new(to_node_port)];
    Chain::new("where connections to services are led to endpoints", rules)
}

/// Matches addresses with node ports, except the loopback range.
fn on_node(node: &NodePlan) -> Vec<Statement> {
    let range = node.family.loopback_range();
    match &node.node_ports {
        NodePortScope::EveryLocalAddress { .. } => vec![
            Statement::Local(AddressSide::Destination),
            Statement::Range { side: AddressSide::Destination, range, negated: true },
        ],
        NodePortScope::Addresses(_) => vec![in_set(ADDRESS, NODEPORT_IPS, false)],
    }
}

fn nodeport_endpoints_check(node: &NodePlan) -> Chain {
    let look = on_node(node).into_iter().chain([Statement::Map { key: NODEPORT, map: NO_ENDPOINT_NODEPORTS }]);
    Chain::new("node ports without endpoints", vec![Rule::new(look)])
}

fn service_endpoints_check() -> Chain {
    let look = Statement::Map { key: FRONTEND, map: NO_ENDPOINT_SERVICES };
    Chain::new("services without endpoints", vec![Rule::new([look])])
}

/// An untranslated packet to a cluster IP has an unused port; one to another address of the service ranges has no
/// service. Neither must leave by the default route.
fn cluster_ips_check() -> Chain {
    let other_port = Rule::new([in_set(ADDRESS, CLUSTER_IPS, false), Statement::Reject]);
    let unused = Rule::new([in_set(ADDRESS, SERVICE_CIDRS, false), Statement::Verdict(NftVerdict::Drop)]);
    let translated = Rule::new([Statement::Translated, Statement::Verdict(NftVerdict::Return)]);
    Chain::new("ports and addresses that no service has", vec![other_port, translated, unused])
}

fn masquerading(node: &NodePlan) -> Chain {
    let mark = node.masquerade_mark;
    let masquerade = || node.masquerade_source.map_or(Statement::Masquerade, Statement::SourceNat);
    let mut rules: Vec<Rule> = node.unmasqueraded.iter().map(|range| keeps_source(node, *range)).collect();
    // A packet that passes again (IPsec, overlay) must not be masqueraded twice.
    rules.push(Rule::new([Statement::Marked(mark), Statement::Unmark(mark), masquerade()]));
    let hairpin = Rule::new([Statement::Translated, in_set(PAIR, HAIRPINS, false), masquerade()]);
    rules.push(hairpin.commented("an endpoint that is its own client"));
    Chain::new("whose source becomes this node's", rules)
}

fn keeps_source(node: &NodePlan, range: IpNet) -> Rule {
    let mark = node.masquerade_mark;
    let (loopback, side) = (node.family.loopback_range(), AddressSide::Source);
    Rule::new([
        Statement::Marked(mark),
        Statement::Range { side: AddressSide::Destination, range, negated: false },
        Statement::Local(side),
        Statement::Range { side, range: loopback, negated: true },
        Statement::Unmark(mark),
        Statement::Verdict(NftVerdict::Return),
    ])
    .commented("destinations in noMasqueradeCIDRs")
}

/// Returns a plan whose table uses every kernel feature that a table may use.
pub fn probe_node(family: Family) -> NodePlan {
    NodePlan {
        family,
        masquerade_mark: 1,
        masquerade_source: None,
        unmasqueraded: Vec::new(),
        pods: Some(PodSource::Range(family.loopback_range())),
        internal_masquerade: Masquerade::NotPods,
        node_ports: NodePortScope::EveryLocalAddress { loopback: false },
        node_port_relay: Some(family.localhost()),
        primary: None,
        count_loopback: false,
        guard_loopback: false,
        drop_invalid: false,
        service_ranges: vec![family.loopback_range()],
        lost_flows: None,
        limits_node_ports: false,
        count_services: false,
    }
}
