//! A machine or network namespace. [`Host`]s are immutable; [`crate::Network`] holds the state that packets leave.

mod address;
mod build;
mod ipsec;
pub(crate) mod policy;
pub(crate) mod route;
mod route_table;
mod route_to;
mod source_address;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::link_state::LinkState;
pub use crate::sysctl::{InterfaceSysctls, Sysctls};
pub use address::{Address, AddressError, Scope};
pub use build::{HostBuilder, HostError, HostProblem};
pub use ipsec::{IpsecDirection, IpsecPolicy};
pub use policy::{LOCAL_TABLE, MAIN_TABLE, PolicyAction, PolicyRule};
pub use route::{Route, RouteKind};
pub use route_to::RouteTo;

use crate::assume::Assumptions;
use crate::ipvs::VirtualServices;
use crate::masked::Masked;
use crate::program::iptables::IptablesProgram;
use crate::protocol::{Family, Protocol};
use crate::set::CompiledIpSet;
use crate::trace::DropReason;

/// A network interface of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct HostInterface {
    pub name: String,
    /// Addresses in the order of addition.
    pub addresses: Vec<Address>,
    /// The bridge of which the interface is a port.
    pub bridge: Option<String>,
    /// Whether the bridge may send packets back through this port.
    pub hairpin: bool,
    /// Whether the bridge port exchanges no frames with other isolated ports.
    pub isolated: bool,
    pub state: LinkState,
    /// Settings that replace the host's for this interface.
    pub sysctls: Option<InterfaceSysctls>,
    /// Whether the name is a placeholder: matches on it are unknown facts.
    pub invented: bool,
    /// Whether the link has hardware addresses, so that neighbours are searched.
    pub searches: bool,
}

impl HostInterface {
    /// Returns an interface without addresses.
    #[must_use]
    pub fn new(name: &str) -> HostInterface {
        HostInterface {
            name: name.to_owned(),
            addresses: Vec::new(),
            bridge: None,
            hairpin: false,
            isolated: false,
            state: LinkState::Up,
            sysctls: None,
            invented: false,
            searches: true,
        }
    }

    /// Adds an address; an IPv4 address is secondary if its network already has one.
    #[must_use]
    pub fn address(mut self, ip: IpAddr, prefix: u8) -> HostInterface {
        let network = Masked::network(ip, prefix);
        let follows = self
            .addresses
            .iter()
            .any(|known| ip.is_ipv4() && known.prefix == prefix && Masked::network(known.ip, prefix) == network);
        self.addresses.push(Address { secondary: follows, ..Address::new(ip, prefix) });
        self
    }

    /// Adds an address that is not chosen as source: secondary (IPv4) or deprecated (IPv6).
    #[must_use]
    pub fn secondary(self, ip: IpAddr, prefix: u8) -> HostInterface {
        self.with(Address { secondary: true, ..Address::new(ip, prefix) })
    }

    /// Adds an address.
    #[must_use]
    pub fn with(mut self, address: Address) -> HostInterface {
        self.addresses.push(address);
        self
    }

    /// Replaces the host's settings for this interface.
    #[must_use]
    pub fn sysctls(mut self, sysctls: InterfaceSysctls) -> HostInterface {
        self.sysctls = Some(sysctls);
        self
    }

    /// Marks a link without hardware addresses.
    #[must_use]
    pub fn without_search(mut self) -> HostInterface {
        self.searches = false;
        self
    }

    /// Marks the name as a placeholder.
    #[must_use]
    pub fn invented(mut self) -> HostInterface {
        self.invented = true;
        self
    }

    /// Makes the interface a port of `bridge`.
    #[must_use]
    pub fn port_of(mut self, bridge: &str, hairpin: bool) -> HostInterface {
        self.bridge = Some(bridge.to_owned());
        self.hairpin = hairpin;
        self
    }

    /// Isolates the bridge port from other isolated ports.
    #[must_use]
    pub fn isolated(mut self, isolated: bool) -> HostInterface {
        self.isolated = isolated;
        self
    }

    /// Sets the state; interfaces are up by default.
    #[must_use]
    pub fn state(mut self, state: LinkState) -> HostInterface {
        self.state = state;
        self
    }
}

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Listener {
    pub protocol: Protocol,
    /// `None`: all addresses of the host.
    pub address: Option<IpAddr>,
    /// `None`: all ports.
    pub port: Option<u16>,
}

/// A machine or network namespace, built by [`Host::builder`].
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) name: Arc<str>,
    pub(crate) interfaces: Vec<HostInterface>,
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) bridge_of: Vec<Option<usize>>,
    pub(crate) routes: route_table::RouteTable,
    pub(crate) policy: policy::RoutingPolicy,
    pub(crate) encaps: Vec<Arc<str>>,
    pub(crate) ipsec: Vec<IpsecPolicy>,
    pub(crate) local: BTreeSet<IpAddr>,
    pub(crate) broadcasts: BTreeSet<IpAddr>,
    pub(crate) sysctls: Sysctls,
    pub(crate) neighbours: BTreeSet<(usize, IpAddr)>,
    pub(crate) resolved: BTreeSet<(usize, IpAddr)>,
    pub(crate) listeners: Vec<Listener>,
    /// Rules of the first and second iptables variant.
    pub(crate) v4: (IptablesProgram, Option<IptablesProgram>),
    pub(crate) v6: (IptablesProgram, Option<IptablesProgram>),
    pub(crate) nft: crate::program::nft::NftProgram,
    pub(crate) sets: Vec<CompiledIpSet>,
    pub(crate) services: VirtualServices,
    pub(crate) assumptions: Assumptions,
}

pub(crate) const LOOPBACK: usize = 0;

impl Host {
    /// Returns a builder with a loopback interface only.
    #[must_use]
    pub fn builder(name: &str) -> HostBuilder {
        HostBuilder::new(name)
    }

    /// The name, unique per network.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `address` belongs to this host, loopback included.
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        let loopback = match address {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        };
        loopback || self.local.contains(&address)
    }

    pub(crate) fn settings(&self, interface: usize) -> InterfaceSysctls {
        self.interfaces.get(interface).and_then(|one| one.sysctls).unwrap_or_else(|| self.sysctls.of_interfaces())
    }

    /// Returns why the interface, or its bridge, passes no packets.
    pub(crate) fn blocked(&self, interface: usize) -> Option<DropReason> {
        let both = [Some(interface), self.bridge_of[interface]];
        let down = both.into_iter().flatten().find(|at| self.interfaces[*at].state != LinkState::Up)?;
        Some(DropReason::Link(self.names[down].clone(), self.interfaces[down].state))
    }

    pub(crate) fn interface(&self, name: &str) -> Option<usize> {
        self.interfaces.iter().position(|interface| interface.name == name)
    }

    pub(crate) fn programs(&self, family: Family) -> impl Iterator<Item = &IptablesProgram> {
        let (first, second) = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        std::iter::once(first).chain(second)
    }

    pub(crate) fn listens(&self, protocol: Protocol, address: IpAddr, port: u16) -> bool {
        self.listeners.iter().any(|listener| {
            listener.protocol == protocol
                && listener.address.is_none_or(|own| own == address)
                && listener.port.is_none_or(|own| own == port)
        })
    }
}
