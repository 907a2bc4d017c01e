use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use svclab_sim::cluster::NodeState;
use svclab_sim::host::{
    Address, Host, HostBuilder, HostInterface, InterfaceSysctls, IpsecDirection, IpsecPolicy, LinkState, PolicyAction,
    PolicyRule, Route, RouteKind, Scope, Sysctls,
};
use svclab_sim::masked::Masked;
use svclab_sim::protocol::{Family, Protocol};
use svclab_snapshot::Snapshot;
use svclab_snapshot::network::{Hop, IpsecPolicy as ListedPolicy, Link, Network, Route as Listed, Rule};

use super::Around;

pub(super) const LOOPBACK: &str = "lo";

pub(super) struct NodeInputs<'a> {
    pub(super) name: &'a str,
    pub(super) snapshot: &'a Snapshot,
    pub(super) listed: &'a Network,
    pub(super) state: &'a NodeState,
    pub(super) around: &'a Around,
}

impl NodeInputs<'_> {
    pub(super) fn builder(&self, assumed: &mut BTreeSet<String>) -> HostBuilder {
        let NodeInputs { name, snapshot, listed: network, state, around } = self;
        let settings = NodeSysctls(&snapshot.sysctls);
        if snapshot.sysctls.is_empty() {
            assumed.insert("kernel settings: those of a node of Kubernetes (forwarding on, rp_filter off)".to_owned());
        }
        if network.links.iter().any(|link| link.name != LOOPBACK && link.carrier.is_none()) {
            let unknown =
                "interfaces have a carrier, and no port of a bridge is isolated: the archive does not list it";
            assumed.insert(unknown.to_owned());
        }
        let mut host = Host::builder(name).all_routes().sysctls(settings.machine());
        for link in in_order(network) {
            if link.name == LOOPBACK {
                for address in addresses(network, LOOPBACK).filter(|address| !address.ip.is_loopback()) {
                    host = host.loopback_address(address);
                }
                continue;
            }
            let interface = interface(network, link, &settings);
            let invented = around.invented.contains(&link.name);
            host = host.interface(if invented { interface.invented() } else { interface });
        }
        host = network.routes.iter().flat_map(|route| routes(network, route, assumed)).fold(host, HostBuilder::route);
        host = network.rules.iter().filter_map(|rule| policy(rule, assumed)).fold(host, HostBuilder::policy);
        host = ipsec(network).into_iter().fold(host, HostBuilder::ipsec);
        let listed = |name: &str| network.links.iter().any(|link| link.name == name);
        let permanent = network.neighbours.iter().filter(|one| one.permanent && listed(&one.interface));
        host = permanent.fold(host, |host, one| host.resolved(&one.interface, one.address));
        host = host.rules(state.v4.clone()).rules(state.v6.clone()).nft(state.nft.clone());
        if !state.second.is_empty() {
            let order =
                "rules of iptables-nft are met before those of iptables-legacy: which were there first is not known";
            assumed.insert(order.to_owned());
        }
        host = state.second.iter().cloned().fold(host, HostBuilder::second_rules);
        host = host.sets(state.sets.clone()).virtual_services(state.servers.clone());
        if snapshot.sets.is_none() {
            host = host.other_sets();
        }
        host.assume(around.assumptions.clone())
    }
}

/// Whether the link has hardware addresses of six bytes; tunnels and point-to-point links have others or none.
fn is_ethernet(link: &Link) -> bool {
    link.mac.as_deref().is_some_and(|mac| mac.split(':').count() == 6)
}

/// Returns interfaces in the kernel's order of registration (`for_each_netdev`), then the others: by number, dummies
/// last, because proxies add kube-ipvs0 last.
fn in_order(network: &Network) -> Vec<&Link> {
    let place = |link: &&Link| {
        let known = network.registered.iter().position(|name| *name == link.name);
        (known.unwrap_or(usize::MAX), known.is_none() && link.kind.as_deref() == Some("dummy"))
    };
    let mut links: Vec<&Link> = network.links.iter().collect();
    links.sort_by_key(place);
    links
}

/// Returns addresses as they were added: the kernel lists IPv6 addresses in reverse (`ipv6_link_dev_addr`).
fn addresses<'a>(network: &'a Network, interface: &'a str) -> impl Iterator<Item = Address> + 'a {
    let of = move |v4: bool| {
        let own = network.addresses.iter().filter(move |one| one.interface == interface);
        own.filter(move |one| one.address.addr().is_ipv4() == v4).map(|one| Address {
            secondary: one.secondary || one.deprecated,
            scope: scope(&one.scope),
            temporary: one.temporary,
            tentative: one.tentative,
            ..Address::new(one.address.addr(), one.address.prefix_len())
        })
    };
    let last_first: Vec<Address> = of(false).collect();
    of(true).chain(last_first.into_iter().rev())
}

fn interface(network: &Network, link: &Link, settings: &NodeSysctls<'_>) -> HostInterface {
    let mut interface = HostInterface::new(&link.name);
    if let Some(own) = settings.interface(&link.name) {
        interface = interface.sysctls(own);
    }
    interface = addresses(network, &link.name).fold(interface, HostInterface::with);
    if !is_ethernet(link) {
        interface = interface.without_search();
    }
    match link.controller.as_deref().filter(|controller| is_bridge(network, controller)) {
        Some(bridge) => interface.port_of(bridge, link.hairpin).isolated(link.isolated),
        None => interface,
    }
    .state(state(network, link))
}

fn state(network: &Network, link: &Link) -> LinkState {
    let is_port = |other: &Link| other.controller.as_ref() == Some(&link.name);
    match (link.up, link.carrier, link.port_state.as_deref()) {
        (false, _, _) => LinkState::Down,
        // A node without pods: the pod that calls is the bridge's first port, and gives it a carrier.
        (true, Some(false), _) if is_bridge(network, &link.name) && !network.links.iter().any(is_port) => LinkState::Up,
        (true, Some(false), _) => LinkState::NoCarrier,
        (true, _, Some(state)) if state != "forwarding" => LinkState::Blocked,
        (true, _, _) => LinkState::Up,
    }
}

fn scope(name: &str) -> Scope {
    match name {
        "site" => Scope::SITE,
        "link" => Scope::LINK,
        "host" => Scope::HOST,
        number => number.parse().map_or(Scope::GLOBAL, Scope),
    }
}

pub(super) fn is_bridge(network: &Network, name: &str) -> bool {
    network.links.iter().any(|link| link.name == name && link.kind.as_deref() == Some("bridge"))
}

fn routes(network: &Network, route: &Listed, assumed: &mut BTreeSet<String>) -> Option<Route> {
    let to = Masked::from(route.to);
    let kind = match route.kind.as_str() {
        "unicast" => RouteKind::Unicast,
        "blackhole" => RouteKind::Blackhole,
        "unreachable" => RouteKind::Unreachable,
        "prohibit" => RouteKind::Prohibit,
        "throw" => RouteKind::Throw,
        // Own addresses imply their local routes.
        "local" if !is_own(network, route.to) => RouteKind::Local,
        _ => return None,
    };
    let made = if kind == RouteKind::Unicast {
        // The kernel leaves out ways by interfaces that are down.
        let is_up = |hop: &&Hop| {
            let link = network.links.iter().find(|link| hop.interface.as_ref() == Some(&link.name));
            link.is_some_and(|link| state(network, link) == LinkState::Up)
        };
        let hop = route.hops.iter().find(is_up).or_else(|| route.hops.first())?;
        let Some(interface) =
            hop.interface.as_deref().filter(|name| network.links.iter().any(|link| link.name == *name))
        else {
            assumed.insert(format!(
                "the route to {} in table {} leads nowhere: its interface is not listed",
                route.to, route.table
            ));
            return None;
        };
        if route.hops.len() > 1 {
            let via = hop.via.map(|via| format!(" via {via}")).unwrap_or_default();
            let (all, to) = (route.hops.len(), route.to);
            assumed.insert(format!("of the {all} ways of the route to {to} the one{via} dev {interface} is taken"));
        }
        // A local address as gateway means that destinations are neighbours (`fib_check_nh_v4_gw`).
        let made = match hop.via.filter(|gateway| !is_local(network, interface, *gateway)) {
            Some(gateway) => Route::via(to, gateway, interface),
            None => Route::link(to, interface),
        };
        Route { encap: hop.encap.clone(), ..made }
    } else {
        Route::nowhere(to, kind)
    };
    let scope = route.scope.as_deref().map(scope);
    Some(Route { source: route.source, metric: route.metric, table: route.table, scope, ..made })
}

fn ipsec(network: &Network) -> Vec<IpsecPolicy> {
    let mut listed: Vec<&ListedPolicy> = network.ipsec.iter().collect();
    listed.sort_by_key(|policy| policy.priority);
    let policies = listed.into_iter().map(|policy| IpsecPolicy {
        direction: match policy.direction.as_str() {
            "in" => IpsecDirection::In,
            "fwd" => IpsecDirection::Forward,
            _ => IpsecDirection::Out,
        },
        from: Masked::from(policy.from),
        to: Masked::from(policy.to),
        protocol: policy.protocol.map(Protocol),
        narrower: policy.narrower,
        bypass: policy.action == "allow" && !policy.transforms,
    });
    policies.collect()
}

fn is_local(network: &Network, interface: &str, address: IpAddr) -> bool {
    let is_here = |hop: &Hop| hop.interface.as_deref() == Some(interface);
    let mut local = network.routes.iter().filter(|route| route.kind == "local" && route.hops.iter().any(is_here));
    network.addresses.iter().any(|own| own.interface == interface && own.address.addr() == address)
        || local.any(|route| route.to.contains(&address))
}

fn is_own(network: &Network, to: IpNet) -> bool {
    let loopback = to.addr().is_loopback();
    loopback
        || (to.prefix_len() == to.max_prefix_len()
            && network.addresses.iter().any(|own| own.address.addr() == to.addr()))
}

/// Returns `None`, and adds an assumption, if a condition is not modelled.
fn policy(rule: &Rule, assumed: &mut BTreeSet<String>) -> Option<PolicyRule> {
    let mut left_out = |what: &str| {
        assumed.insert(format!(
            "the {} routing rule with priority {} holds for no packet: {what} is not modelled",
            rule.family, rule.priority
        ));
        None
    };
    if !rule.unknown.is_empty() {
        return left_out(&rule.unknown.join(", "));
    }
    let action = match rule.action.as_str() {
        "lookup" => PolicyAction::Lookup {
            table: rule.table,
            suppress: rule.suppress_prefix.and_then(|length| u8::try_from(length).ok()),
        },
        "goto" => PolicyAction::Goto(rule.table),
        "nop" => PolicyAction::Nop,
        "blackhole" => PolicyAction::Refuse(RouteKind::Blackhole),
        "unreachable" => PolicyAction::Refuse(RouteKind::Unreachable),
        "prohibit" => PolicyAction::Refuse(RouteKind::Prohibit),
        other => return left_out(other),
    };
    Some(PolicyRule {
        family: if rule.family == "ipv6" { Family::V6 } else { Family::V4 },
        priority: rule.priority,
        from: rule.from.map(Masked::from),
        to: rule.to.map(Masked::from),
        input: rule.input.clone(),
        output: rule.output.clone(),
        mark: rule.mark,
        invert: rule.invert,
        action,
    })
}

struct NodeSysctls<'a>(&'a BTreeMap<String, String>);

impl NodeSysctls<'_> {
    fn number(&self, name: &str) -> Option<u8> {
        self.0.get(name)?.trim().parse().ok()
    }

    fn on(&self, name: &str, otherwise: bool) -> bool {
        self.number(name).map_or(otherwise, |value| value != 0)
    }

    fn machine(&self) -> Sysctls {
        let node = if self.0.is_empty() { Sysctls::node() } else { Sysctls::default() };
        Sysctls {
            ip_forward: self.on("net.ipv4.ip_forward", node.ip_forward),
            ipv6_forward: self.on("net.ipv6.conf.all.forwarding", node.ipv6_forward),
            route_localnet: self.on("net.ipv4.conf.all.route_localnet", node.route_localnet),
            rp_filter: self.number("net.ipv4.conf.all.rp_filter").unwrap_or(node.rp_filter),
            accept_local: self.on("net.ipv4.conf.all.accept_local", node.accept_local),
            arp_ignore: self.number("net.ipv4.conf.all.arp_ignore").unwrap_or(node.arp_ignore),
            bridge_nf_call_iptables: self.on("net.bridge.bridge-nf-call-iptables", node.bridge_nf_call_iptables),
            bridge_nf_call_ip6tables: self.on("net.bridge.bridge-nf-call-ip6tables", node.bridge_nf_call_ip6tables),
            tcp_be_liberal: self.on("net.netfilter.nf_conntrack_tcp_be_liberal", node.tcp_be_liberal),
            tcp_loose: self.on("net.netfilter.nf_conntrack_tcp_loose", node.tcp_loose),
            vs_conntrack: self.on("net.ipv4.vs.conntrack", node.vs_conntrack),
            vs_sloppy_tcp: self.on("net.ipv4.vs.sloppy_tcp", node.vs_sloppy_tcp),
            vs_conn_reuse_mode: self.number("net.ipv4.vs.conn_reuse_mode").unwrap_or(node.vs_conn_reuse_mode),
            vs_expire_nodest_conn: self.on("net.ipv4.vs.expire_nodest_conn", node.vs_expire_nodest_conn),
            vs_expire_quiescent_template: self
                .on("net.ipv4.vs.expire_quiescent_template", node.vs_expire_quiescent_template),
        }
    }

    /// Combines the interface's and `all`'s settings by `include/linux/inetdevice.h`: the greater value, or either.
    fn interface(&self, name: &str) -> Option<InterfaceSysctls> {
        let own = |key: &str| self.number(&format!("net.ipv4.conf.{name}.{key}"));
        own("rp_filter").or_else(|| own("forwarding"))?;
        let all = |key: &str| self.number(&format!("net.ipv4.conf.all.{key}")).unwrap_or(0);
        let v6 = |key: &str| self.number(&format!("net.ipv6.conf.{name}.{key}")).unwrap_or(0);
        let greater = |key: &str| own(key).unwrap_or(0).max(all(key));
        Some(InterfaceSysctls {
            forwarding: own("forwarding").unwrap_or_else(|| u8::from(self.on("net.ipv4.ip_forward", false))) != 0,
            ipv6_forwarding: self.on("net.ipv6.conf.all.forwarding", false) || v6("force_forwarding") != 0,
            oif_addresses_only: v6("use_oif_addrs_only") != 0,
            prefer_temporary: v6("use_tempaddr") >= 2,
            route_localnet: greater("route_localnet") != 0,
            accept_local: greater("accept_local") != 0,
            rp_filter: greater("rp_filter"),
            src_valid_mark: greater("src_valid_mark") != 0,
            arp_ignore: greater("arp_ignore"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_have_made_comes_after_the_nodes_own() {
        let link = |index, name: &str, kind: Option<&str>| Link {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            ..Link::default()
        };
        let links = [
            link(1, "lo", None),
            link(2, "kube-ipvs0", Some("dummy")),
            link(9, "eth0", Some("veth")),
            link(10, "cali1", Some("veth")),
        ];
        let names = |registered: &[&str]| {
            let registered = registered.iter().map(|name| (*name).to_owned()).collect();
            let network = Network { links: links.to_vec(), registered, ..Network::default() };
            in_order(&network).iter().map(|link| link.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["lo", "eth0", "cali1", "kube-ipvs0"]);
        assert_eq!(names(&["lo", "cali1", "eth0"]), ["lo", "cali1", "eth0", "kube-ipvs0"], "that is down");
    }

    #[test]
    fn a_bridge_without_ports_gets_its_carrier_from_the_first_pod() {
        let link = |name: &str, kind: &str, controller: Option<&str>| Link {
            name: name.to_owned(),
            kind: Some(kind.to_owned()),
            up: true,
            carrier: Some(false),
            controller: controller.map(str::to_owned),
            ..Link::default()
        };
        let mut network = Network { links: vec![link("cni0", "bridge", None)], ..Network::default() };
        assert_eq!(state(&network, &network.links[0]), LinkState::Up);
        network.links.push(link("veth1", "veth", Some("cni0")));
        assert_eq!(state(&network, &network.links[0]), LinkState::NoCarrier);
        assert_eq!(state(&network, &network.links[1]), LinkState::NoCarrier);
    }
}
