//! What is in the table whatever the services. Names of chains, sets and maps are those of kube-proxy's own nftables mode where they mean
//! the same, and none of its others is used: kube-proxy, which keeps a table that it finds, cannot make a set whose name has another type
//! there. Those of base chains and their priorities are what other programs may rely on
//! (<https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables>).

use ipnet::IpNet;
use nf_tables::field::Field;

use crate::model::{Family, Protocol};
use crate::nftables::{Base, Chain, Element, Holds, Hook, Key, Name, Rule, Set, Side, Statement, Verdict};
use crate::plan::{Masquerade, NodePlan, NodePortScope, PodSource};

/// The table, of each family.
pub const TABLE: &str = "kube-proxy";
/// The table in which the kernel is asked what it can do.
pub const PROBE: &str = "svcproxy-probe";
/// What the table says of itself, and by which it is known. The number is that of the layout: a table of another one is replaced.
pub const COMMENT: &str = "Kubernetes Services, by svcproxy; layout 3";

/// Cluster IPs.
pub const CLUSTER_IPS: &str = "cluster-ips";
/// Where cluster IPs come from.
pub const SERVICE_CIDRS: &str = "service-cidrs";
/// The addresses that accept node ports, where not every local one does.
pub const NODEPORT_IPS: &str = "nodeport-ips";
/// Endpoints that may be their own clients, as source and destination.
pub const HAIRPINS: &str = "hairpins";
/// Load-balancer addresses with source ranges.
pub const RESTRICTED: &str = "firewall-restricted";
/// Who may use them.
pub const ALLOWED: &str = "firewall-allowed";
/// Services that nobody answers: dropped or refused.
pub const NO_ENDPOINT_SERVICES: &str = "no-endpoint-services";
/// Node ports that nobody answers.
pub const NO_ENDPOINT_NODEPORTS: &str = "no-endpoint-nodeports";
/// Where packets to services' addresses go on.
pub const SERVICE_IPS: &str = "service-ips";
/// Where packets to node ports go on.
pub const SERVICE_NODEPORTS: &str = "service-nodeports";
/// The endpoints of services' addresses.
pub const SERVICE_ENDPOINTS: &str = "service-endpoints";
/// The endpoints of node ports.
pub const NODEPORT_ENDPOINTS: &str = "nodeport-endpoints";
/// The endpoints that pods and the node itself have where policy Local holds all others to those of this node.
pub const SHORT_CIRCUIT_ENDPOINTS: &str = "short-circuit-endpoints";
/// The same of node ports.
pub const NODEPORT_SHORT_CIRCUIT_ENDPOINTS: &str = "nodeport-short-circuit-endpoints";
/// Node ports that no relay serves, by the chain that refuses them on the loopback range; empty where there are no relays.
pub const LOCALHOST_NODEPORTS: &str = "localhost-nodeports";

const SERVICES: &str = "services";
const FIREWALL_CHECK: &str = "firewall-check";
const NODEPORT_ENDPOINTS_CHECK: &str = "nodeport-endpoints-check";
const SERVICE_ENDPOINTS_CHECK: &str = "service-endpoints-check";
const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
const LOCALHOST_NODEPORTS_CHECK: &str = "localhost-nodeports-check";
const MASQUERADING: &str = "masquerading";
/// Refuses.
pub const REJECT_CHAIN: &str = "reject-chain";

/// The chain that refuses, and counts, packets to node ports of a protocol on the loopback range; `None`: relays serve it.
pub fn localhost_refused(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Tcp => None,
        Protocol::Udp => Some("reject-localhost-udp"),
        Protocol::Sctp => Some("reject-localhost-sctp"),
    }
}

/// Whether elements lead to a chain that is there whatever the services.
pub fn is_led_to_by_elements(chain: &str) -> bool {
    chain == REJECT_CHAIN || Protocol::ALL.into_iter().any(|protocol| localhost_refused(protocol) == Some(chain))
}

/// `NF_IP_PRI_NAT_DST`, `NF_IP_PRI_NAT_SRC` and `NF_IP_PRI_FILTER` (`include/uapi/linux/netfilter_ipv4.h`).
const DSTNAT: i32 = -100;
const SRCNAT: i32 = 100;
const FILTER: i32 = 0;
/// Before destinations are translated.
const PRE_DNAT: i32 = DSTNAT - 10;

const ADDRESS: &[Field] = &[Field::Destination];
const FRONTEND: &[Field] = &[Field::Destination, Field::Protocol, Field::DestinationPort];
const FRONTEND_AND_SOURCE: &[Field] = &[Field::Destination, Field::Protocol, Field::DestinationPort, Field::Source];
const NODEPORT: &[Field] = &[Field::Protocol, Field::DestinationPort];
const PAIR: &[Field] = &[Field::Source, Field::Destination];
/// The number that is drawn has a type by `typeof` only, for which any modulus does.
const FRONTEND_SLOT: &[Field] = &[Field::Destination, Field::Protocol, Field::DestinationPort, Field::Random(2)];
const NODEPORT_SLOT: &[Field] = &[Field::Protocol, Field::DestinationPort, Field::Random(2)];

/// The base chains, in the order in which packets may meet them, and the chain that each leads to.
const BASE_CHAINS: [(&str, bool, Hook, i32, &[&str]); 8] = [
    ("filter-prerouting-pre-dnat", false, Hook::Prerouting, PRE_DNAT, &[FIREWALL_CHECK]),
    ("filter-output-pre-dnat", false, Hook::Output, PRE_DNAT, &[FIREWALL_CHECK]),
    ("nat-prerouting", true, Hook::Prerouting, DSTNAT, &[SERVICES]),
    ("nat-output", true, Hook::Output, DSTNAT, &[SERVICES]),
    ("filter-input", false, Hook::Input, FILTER, &[NODEPORT_ENDPOINTS_CHECK, SERVICE_ENDPOINTS_CHECK]),
    ("filter-forward", false, Hook::Forward, FILTER, &[SERVICE_ENDPOINTS_CHECK, CLUSTER_IPS_CHECK]),
    ("filter-output", false, Hook::Output, FILTER, &[SERVICE_ENDPOINTS_CHECK, CLUSTER_IPS_CHECK]),
    ("nat-postrouting", true, Hook::Postrouting, SRCNAT, &[MASQUERADING]),
];

/// Names of the base chains.
pub fn base_chains() -> impl Iterator<Item = &'static str> {
    BASE_CHAINS.into_iter().map(|(name, ..)| name)
}

/// The sets and maps, in the order in which they are printed; `size` says for how many elements there is to be room in one of this name.
pub fn sets(size: impl Fn(&str) -> u32) -> Vec<(&'static str, Set)> {
    let sized = |name: &'static str, set: Set| (name, set.sized(size(name)));
    vec![
        sized(SERVICE_IPS, Set::map("where packets to services go on", FRONTEND, Holds::Verdicts)),
        sized(SERVICE_NODEPORTS, Set::map("where packets to node ports go on", NODEPORT, Holds::Verdicts)),
        sized(SERVICE_ENDPOINTS, Set::map("the endpoints of each service, by number", FRONTEND_SLOT, Holds::Endpoints)),
        sized(
            NODEPORT_ENDPOINTS,
            Set::map("the endpoints of each node port, by number", NODEPORT_SLOT, Holds::Endpoints),
        ),
        sized(
            SHORT_CIRCUIT_ENDPOINTS,
            Set::map("policy Local: endpoints for pods and this node", FRONTEND_SLOT, Holds::Endpoints),
        ),
        sized(
            NODEPORT_SHORT_CIRCUIT_ENDPOINTS,
            Set::map("policy Local: endpoints for pods and this node", NODEPORT_SLOT, Holds::Endpoints),
        ),
        sized(NO_ENDPOINT_SERVICES, Set::map("services that nobody answers", FRONTEND, Holds::Verdicts)),
        sized(NO_ENDPOINT_NODEPORTS, Set::map("node ports that nobody answers", NODEPORT, Holds::Verdicts)),
        sized(LOCALHOST_NODEPORTS, Set::map("node ports that refuse on loopback addresses", NODEPORT, Holds::Verdicts)),
        sized(CLUSTER_IPS, Set::keys("cluster IPs", ADDRESS)),
        (SERVICE_CIDRS, Set::ranges("ranges that cluster IPs come from", ADDRESS)),
        sized(NODEPORT_IPS, Set::keys("addresses that accept node ports", ADDRESS)),
        sized(HAIRPINS, Set::keys("endpoints of this node, as their own clients", PAIR)),
        sized(RESTRICTED, Set::keys("load-balancer addresses with source ranges", FRONTEND)),
        (ALLOWED, Set::ranges("who may use them", FRONTEND_AND_SOURCE)),
    ]
}

/// The chains, in the order in which they are printed.
pub fn chains(node: &NodePlan) -> Vec<(Name, Chain)> {
    let base = BASE_CHAINS.into_iter().map(|(name, is_nat, hook, priority, to)| {
        // Translation is asked about the first packet of a connection only.
        let jump = |chain: &&str| {
            let new = (!is_nat).then_some(Statement::New);
            Rule::new(new.into_iter().chain([Statement::Verdict(Verdict::Jump((*chain).into()))]))
        };
        let localhost = (hook == Hook::Input && node.node_port_relay.is_some()).then_some(&LOCALHOST_NODEPORTS_CHECK);
        let rules = to.iter().chain(localhost).map(jump).collect();
        (name.into(), Chain { comment: "", base: Some(Base { is_nat, hook, priority }), rules })
    });
    let others = [
        (FIREWALL_CHECK, firewall_check()),
        (SERVICES, services(node)),
        (NODEPORT_ENDPOINTS_CHECK, nodeport_endpoints_check(node)),
        (SERVICE_ENDPOINTS_CHECK, service_endpoints_check()),
        (CLUSTER_IPS_CHECK, cluster_ips_check()),
        (REJECT_CHAIN, Chain::new("refuses what nobody answers", vec![Rule::new([Statement::Reject])])),
        (MASQUERADING, masquerading(node)),
    ];
    let others = others.into_iter().chain(node.node_port_relay.map(|_| localhost_check(node)).into_iter().flatten());
    base.chain(others.map(|(name, chain)| (name.into(), chain))).collect()
}

/// Relays listen on a loopback address for TCP; what else has a node port refuses on that range, and is counted. On its way in: who sends
/// learns by an ICMP message that it was refused, where what is refused on its way out is an error of the call (EPERM).
fn localhost_check(node: &NodePlan) -> Vec<(&'static str, Chain)> {
    let to_loopback = Statement::Range { side: Side::Destination, range: node.family.loopback_range(), negated: false };
    let look = Rule::new([to_loopback, Statement::Map { key: NODEPORT, map: LOCALHOST_NODEPORTS }]);
    let check = (LOCALHOST_NODEPORTS_CHECK, Chain::new("node ports on loopback addresses", vec![look]));
    let refuse = || Chain::new("", vec![Rule::new([Statement::Counter, Statement::Reject])]);
    let refused = Protocol::ALL.into_iter().filter_map(localhost_refused).map(|name| (name, refuse()));
    std::iter::once(check).chain(refused).collect()
}

/// The elements that follow from the node alone.
pub fn elements(node: &NodePlan) -> Vec<Element> {
    let mut elements = service_cidrs(&node.service_ranges);
    if let NodePortScope::Addresses(addresses) = &node.node_ports {
        let usable = addresses.iter().filter(|address| !address.is_loopback());
        elements.extend(usable.map(|address| Element::of(NODEPORT_IPS, Key::default().address(*address))));
    }
    elements
}

/// Of them, those that follow from [`NodePlan::service_ranges`], sorted.
pub fn service_cidrs(ranges: &[IpNet]) -> Vec<Element> {
    let mut elements: Vec<Element> =
        ranges.iter().map(|range| Element::range(SERVICE_CIDRS, Key::default(), *range)).collect();
    elements.sort_unstable();
    elements
}

fn in_set(key: &'static [Field], set: &str, negated: bool) -> Statement {
    Statement::InSet { key, set: set.into(), negated }
}

/// What comes from pods, or (`negated`) from elsewhere.
pub(super) fn from_pods(pods: &PodSource, negated: bool) -> Statement {
    match pods {
        PodSource::Range(range) => Statement::Range { side: Side::Source, range: *range, negated },
        PodSource::Interface(name) => Statement::Interface { name: name.clone(), prefix: false, negated },
        PodSource::InterfacePrefix(name) => Statement::Interface { name: name.clone(), prefix: true, negated },
    }
}

/// Sources that are not allowed are dropped before any translation, with or without endpoints.
fn firewall_check() -> Chain {
    let drop = [
        in_set(FRONTEND, RESTRICTED, false),
        in_set(FRONTEND_AND_SOURCE, ALLOWED, true),
        Statement::Verdict(Verdict::Drop),
    ];
    Chain::new("loadBalancerSourceRanges", vec![Rule::new(drop)])
}

fn services(node: &NodePlan) -> Chain {
    let to_service = Rule::new([Statement::Map { key: FRONTEND, map: SERVICE_IPS }]);
    let to_node_port = on_node(node).into_iter().chain([Statement::Map { key: NODEPORT, map: SERVICE_NODEPORTS }]);
    let rules = vec![to_service, Rule::new(to_node_port)];
    Chain::new("where connections to services are led to endpoints", rules)
}

/// Packets to addresses that accept node ports: never those of the loopback range.
fn on_node(node: &NodePlan) -> Vec<Statement> {
    let range = node.family.loopback_range();
    match &node.node_ports {
        NodePortScope::EveryLocalAddress { .. } => vec![
            Statement::Local(Side::Destination),
            Statement::Range { side: Side::Destination, range, negated: true },
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

/// What still has a cluster IP as destination behind the translation goes to a port that no service has, and what goes to another address of
/// their ranges to no service at all: it must not leave by the default route. What some program has translated has its destination already,
/// wherever that is.
fn cluster_ips_check() -> Chain {
    let other_port = Rule::new([in_set(ADDRESS, CLUSTER_IPS, false), Statement::Reject]);
    let unused = Rule::new([in_set(ADDRESS, SERVICE_CIDRS, false), Statement::Verdict(Verdict::Drop)]);
    let translated = Rule::new([Statement::Translated, Statement::Verdict(Verdict::Return)]);
    Chain::new("ports and addresses that no service has", vec![other_port, translated, unused])
}

fn masquerading(node: &NodePlan) -> Chain {
    let mark = node.masquerade_mark;
    // The mark is taken off again, so that a packet that comes by once more (IPsec, overlay) is not masqueraded twice.
    let marked = Rule::new([Statement::Marked(mark), Statement::Unmark(mark), Statement::Masquerade]);
    let hairpin = Rule::new([Statement::Translated, in_set(PAIR, HAIRPINS, false), Statement::Masquerade]);
    let rules = vec![marked, hairpin.commented("an endpoint that is its own client")];
    Chain::new("whose source becomes this node's", rules)
}

/// The probe: everything that the table may hold, so that what the kernel lacks is known before the first service.
pub fn probe_node(family: Family) -> NodePlan {
    NodePlan {
        family,
        masquerade_mark: 1,
        pods: Some(PodSource::Range(family.loopback_range())),
        internal_masquerade: Masquerade::NotPods,
        node_ports: NodePortScope::EveryLocalAddress { loopback: false },
        node_port_relay: Some(family.localhost()),
        primary: None,
        guard_loopback: false,
        drop_invalid: false,
        service_ranges: vec![family.loopback_range()],
    }
}
