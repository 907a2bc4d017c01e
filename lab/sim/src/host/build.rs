use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::policy::{MAIN_TABLE, PolicyRule, RoutingPolicy};
use super::route::{ResolvedRoute, Route, RouteKind};
use super::route_table::RouteTable;
use super::{Address, Host, HostInterface, IpsecPolicy, LOOPBACK, Listener, Scope, Sysctls};
use crate::assume::Assumptions;
use crate::ipvs::VirtualServices;
use crate::masked::Masked;
use crate::nft::Ruleset;
use crate::program::iptables::CompileError;
use crate::program::iptables::compile::{self as rules, MachineNames};
use crate::program::nft::compile::{self, MissingReference};
use crate::protocol::{Family, Protocol};
use crate::rules::Rules;
use crate::set::{CompiledIpSet, Sets};

/// Why a host cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("host {host}: {problem}")]
pub struct HostError {
    /// The host's name.
    pub host: String,
    /// The inconsistency.
    pub problem: HostProblem,
}

/// An inconsistency of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostProblem {
    /// A reference to a missing interface: referrer and interface.
    #[error("{0} names the missing interface {1:?}")]
    NoInterface(String, String),
    /// Two interfaces have the same name.
    #[error("interface {0:?} exists twice")]
    Twice(String),
    /// A prefix is longer than its address.
    #[error("address {0}/{1} has too long a prefix")]
    Prefix(IpAddr, u8),
    /// nftables rules refer to missing chains or sets.
    #[error(transparent)]
    Nft(#[from] MissingReference),
    /// iptables rules have loops, or refer to missing chains or sets.
    #[error(transparent)]
    Rules(#[from] CompileError),
}

const SECOND_COUNTERS: usize = 1 << 32;

/// Builds a host, which always has loopback with 127.0.0.1 and ::1.
#[derive(Debug, Clone)]
pub struct HostBuilder {
    name: String,
    interfaces: Vec<HostInterface>,
    routes: Vec<Route>,
    all_routes: bool,
    policy: Vec<PolicyRule>,
    ipsec: Vec<IpsecPolicy>,
    sysctls: Sysctls,
    neighbours: Vec<(String, IpAddr)>,
    resolved: Vec<(String, IpAddr)>,
    listeners: Vec<Listener>,
    v4: Arc<Rules>,
    v6: Arc<Rules>,
    second_v4: Option<Arc<Rules>>,
    second_v6: Option<Arc<Rules>>,
    nft: Arc<Ruleset>,
    sets: Sets,
    services: VirtualServices,
    assumptions: Assumptions,
    other_sets: bool,
}

impl HostBuilder {
    pub(super) fn new(name: &str) -> HostBuilder {
        let loopback = HostInterface::new("lo").address(Ipv4Addr::LOCALHOST.into(), 8);
        HostBuilder {
            name: name.to_owned(),
            interfaces: vec![loopback.address(Ipv6Addr::LOCALHOST.into(), 128)],
            routes: Vec::new(),
            all_routes: false,
            policy: Vec::new(),
            ipsec: Vec::new(),
            sysctls: Sysctls::default(),
            neighbours: Vec::new(),
            resolved: Vec::new(),
            listeners: Vec::new(),
            v4: Arc::new(Rules::empty(Family::V4)),
            v6: Arc::new(Rules::empty(Family::V6)),
            second_v4: None,
            second_v6: None,
            nft: Arc::new(Ruleset::default()),
            sets: Sets::default(),
            services: VirtualServices::default(),
            assumptions: Assumptions::default(),
            other_sets: false,
        }
    }

    /// Adds an interface.
    #[must_use]
    pub fn interface(mut self, interface: HostInterface) -> HostBuilder {
        self.interfaces.push(interface);
        self
    }

    /// Adds a route. Addresses add the routes to their networks.
    #[must_use]
    pub fn route(mut self, route: Route) -> HostBuilder {
        self.routes.push(route);
        self
    }

    /// Adds an address of the loopback interface.
    #[must_use]
    pub fn loopback_address(mut self, address: Address) -> HostBuilder {
        if let Some(loopback) = self.interfaces.first_mut() {
            loopback.addresses.push(address);
        }
        self
    }

    /// Prevents addresses from adding routes to their networks.
    #[must_use]
    pub fn all_routes(mut self) -> HostBuilder {
        self.all_routes = true;
        self
    }

    /// Adds a policy routing rule, which replaces the defaults (local and main table).
    #[must_use]
    pub fn policy(mut self, rule: PolicyRule) -> HostBuilder {
        self.policy.push(rule);
        self
    }

    /// Adds a policy of IPsec; lower priorities must be added first.
    #[must_use]
    pub fn ipsec(mut self, policy: IpsecPolicy) -> HostBuilder {
        self.ipsec.push(policy);
        self
    }

    /// Sets the kernel settings.
    #[must_use]
    pub fn sysctls(mut self, sysctls: Sysctls) -> HostBuilder {
        self.sysctls = sysctls;
        self
    }

    /// Adds a permanent neighbour entry for the first other end of the link.
    #[must_use]
    pub fn neighbour(mut self, interface: &str, address: IpAddr) -> HostBuilder {
        self.neighbours.push((interface.to_owned(), address));
        self
    }

    /// Adds a neighbour whose hardware address is configured: no ARP request and no neighbour solicitation is sent for it.
    #[must_use]
    pub fn resolved(mut self, interface: &str, address: IpAddr) -> HostBuilder {
        self.resolved.push((interface.to_owned(), address));
        self
    }

    /// Adds a socket that listens on all addresses.
    #[must_use]
    pub fn listen(mut self, protocol: Protocol, port: u16) -> HostBuilder {
        self.listeners.push(Listener { protocol, address: None, port: Some(port) });
        self
    }

    /// Adds a socket.
    #[must_use]
    pub fn listener(mut self, listener: Listener) -> HostBuilder {
        self.listeners.push(listener);
        self
    }

    /// Sets the iptables rules of one family.
    #[must_use]
    pub fn rules(mut self, rules: impl Into<Arc<Rules>>) -> HostBuilder {
        let rules = rules.into();
        match rules.family {
            Family::V4 => self.v4 = rules,
            Family::V6 => self.v6 = rules,
        }
        self
    }

    /// Sets the second iptables variant's rules, which run last. The kernel orders by registration, which no dump
    /// shows.
    #[must_use]
    pub fn second_rules(mut self, rules: impl Into<Arc<Rules>>) -> HostBuilder {
        let rules = rules.into();
        match rules.family {
            Family::V4 => self.second_v4 = Some(rules),
            Family::V6 => self.second_v6 = Some(rules),
        }
        self
    }

    /// Sets the nftables rules. Skips tables of iptables-nft in families with iptables rules.
    #[must_use]
    pub fn nft(mut self, ruleset: impl Into<Arc<Ruleset>>) -> HostBuilder {
        self.nft = ruleset.into();
        self
    }

    /// Sets the IP sets.
    #[must_use]
    pub fn sets(mut self, sets: Sets) -> HostBuilder {
        self.sets = sets;
        self
    }

    /// Sets the virtual services of IPVS.
    #[must_use]
    pub fn virtual_services(mut self, services: VirtualServices) -> HostBuilder {
        self.services = services;
        self
    }

    /// Makes matches on missing sets unknown facts instead of errors.
    #[must_use]
    pub fn other_sets(mut self) -> HostBuilder {
        self.other_sets = true;
        self
    }

    /// Sets the answers to unknown facts.
    #[must_use]
    pub fn assume(mut self, assumptions: Assumptions) -> HostBuilder {
        self.assumptions = assumptions;
        self
    }

    /// Builds the host. Fails on dangling references and unmodelled parts.
    pub fn build(self) -> Result<Host, HostError> {
        let host = self.name.clone();
        self.try_build().map_err(|problem| HostError { host, problem })
    }

    fn try_build(self) -> Result<Host, HostProblem> {
        let places = self.places()?;
        let place = |what: &str, interface: &str| {
            let missing = || HostProblem::NoInterface(what.to_owned(), interface.to_owned());
            places.get(interface).copied().ok_or_else(missing)
        };
        let bridges = self
            .interfaces
            .iter()
            .map(|one| one.bridge.as_ref().map(|bridge| place(&format!("port {}", one.name), bridge)).transpose());
        let bridge_of = bridges.collect::<Result<Vec<_>, _>>()?;
        let mut tables = BTreeMap::from([(MAIN_TABLE, if self.all_routes { Vec::new() } else { self.connected() })]);
        let mut encaps = Vec::new();
        for route in &self.routes {
            let interface = match &route.interface {
                Some(name) => place(&format!("route {}", route.to), name)?,
                None => LOOPBACK,
            };
            let Route { to, via, source, metric, kind, .. } = *route;
            let scope = route.scope();
            let encap = route.encap.as_ref().map(|kind| {
                encaps.push(format!("the route to {to} adds a tunnel header (encap {kind}), which").into());
                encaps.len() - 1
            });
            let resolved = ResolvedRoute { to, via, interface, source, metric, kind, scope, encap };
            tables.entry(route.table).or_default().push(resolved);
        }
        let mut tables: BTreeMap<u32, RouteTable> =
            tables.into_iter().map(|(table, routes)| (table, RouteTable::new(routes))).collect();
        let routes = tables.remove(&MAIN_TABLE).unwrap_or_default();
        let policy = RoutingPolicy::new(&self.policy, tables, |name| places.get(name).copied());
        let entries = |listed: &[(String, IpAddr)]| {
            let entries = listed.iter().map(|(interface, address)| {
                place(&format!("neighbour {address}"), interface).map(|interface| (interface, *address))
            });
            entries.collect::<Result<BTreeSet<_>, _>>()
        };
        let (neighbours, resolved) = (entries(&self.neighbours)?, entries(&self.resolved)?);
        let sets = CompiledIpSet::all(&self.sets);
        let names: Vec<Arc<str>> = self.interfaces.iter().map(|one| one.name.as_str().into()).collect();
        let invented = self.interfaces.iter().map(|one| one.invented).collect();
        let all = [Some(&self.v4), Some(&self.v6), self.second_v4.as_ref(), self.second_v6.as_ref()];
        let changing = all.into_iter().flatten().flat_map(|rules| MachineNames::changing(rules)).collect();
        let machine = MachineNames { names: &names, invented, sets: &sets, changing, other_sets: self.other_sets };
        let compile = |rules: &Arc<Rules>, first_counter| rules::compile(rules, &machine, first_counter);
        let second =
            |rules: &Option<Arc<Rules>>| rules.as_ref().map(|rules| compile(rules, SECOND_COUNTERS)).transpose();
        let v4 = (compile(&self.v4, 0)?, second(&self.second_v4)?);
        let v6 = (compile(&self.v6, 0)?, second(&self.second_v6)?);
        let beside_iptables = |family| {
            let rules = if family == Family::V4 { &self.v4 } else { &self.v6 };
            !rules.tables.is_empty()
        };
        let nft = compile::compile(&self.nft, &names, beside_iptables)?;
        let broadcasts = self.interfaces.iter().flat_map(|one| &one.addresses).filter_map(Address::broadcast).collect();
        let local = self.interfaces.iter().flat_map(|one| &one.addresses).map(|address| address.ip).collect();
        Ok(Host {
            name: self.name.as_str().into(),
            interfaces: self.interfaces,
            names,
            bridge_of,
            routes,
            policy,
            encaps,
            ipsec: self.ipsec,
            local,
            broadcasts,
            sysctls: self.sysctls,
            neighbours,
            resolved,
            listeners: self.listeners,
            v4,
            v6,
            nft,
            sets,
            services: self.services,
            assumptions: self.assumptions,
        })
    }

    fn places(&self) -> Result<BTreeMap<&str, usize>, HostProblem> {
        let mut places = BTreeMap::new();
        for (at, interface) in self.interfaces.iter().enumerate() {
            if places.insert(interface.name.as_str(), at).is_some() {
                return Err(HostProblem::Twice(interface.name.clone()));
            }
            for Address { ip, prefix, .. } in &interface.addresses {
                if Masked::network(*ip, *prefix).is_none() {
                    return Err(HostProblem::Prefix(*ip, *prefix));
                }
            }
        }
        Ok(places)
    }

    fn connected(&self) -> Vec<ResolvedRoute> {
        let all = self.interfaces.iter().enumerate().skip(1);
        let networks = all.flat_map(|(interface, one)| {
            one.addresses.iter().filter_map(move |address| {
                let single = address.prefix == Family::of(address.ip).bits();
                let to = if single { None } else { Masked::network(address.ip, address.prefix) }?;
                let source = address.ip.is_ipv4().then_some(address.ip);
                let (metric, kind, scope) = (0, RouteKind::Unicast, Scope::LINK);
                Some(ResolvedRoute { to, via: None, interface, source, metric, kind, scope, encap: None })
            })
        });
        networks.collect()
    }
}
