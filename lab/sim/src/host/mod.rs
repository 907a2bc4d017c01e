//! One machine (or network namespace): interfaces, routes, kernel settings, rules, sets and virtual services.
//!
//! A [`Host`] never changes while packets walk; what they leave behind (connections, lists of recent addresses,
//! rotations) is kept beside it, by [`crate::Network`].

mod address;
mod build;
pub(crate) mod policy;
pub(crate) mod route;
mod route_to;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::sysctl::{InterfaceSysctls, Sysctls};
pub use address::{Address, AddressError};
pub use build::{HostBuilder, HostError};
pub use policy::{LOCAL_TABLE, MAIN_TABLE, PolicyAction, PolicyRule};
pub use route::{Route, RouteKind};
pub use route_to::RouteTo;

use crate::assume::Assumptions;
use crate::ipvs::VirtualServices;
use crate::masked::Masked;
use crate::program::iptables::IptablesProgram;
use crate::protocol::{Family, Protocol};
use crate::set::{CompiledIpSet, IpSet, Sets};

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInterface {
    /// Its name.
    pub name: String,
    /// Its addresses, in the order in which they were added.
    pub addresses: Vec<Address>,
    /// The bridge that it is a port of.
    pub bridge: Option<String>,
    /// Whether the bridge may send a packet back through this port.
    pub hairpin: bool,
    /// Kernel settings of its own; without them the machine's hold.
    pub sysctls: Option<InterfaceSysctls>,
    /// Whether only its place is known, not its name: nobody knows the answer of a rule that asks for the name.
    pub invented: bool,
}

impl HostInterface {
    /// An interface with nothing on it.
    #[must_use]
    pub fn new(name: &str) -> HostInterface {
        HostInterface {
            name: name.to_owned(),
            addresses: Vec::new(),
            bridge: None,
            hairpin: false,
            sysctls: None,
            invented: false,
        }
    }

    /// Adds an address; a prefix that is too long is reported when the host is built. An IPv4 address of a network that
    /// has one here already is secondary, as in the kernel.
    #[must_use]
    pub fn address(mut self, ip: IpAddr, prefix: u8) -> HostInterface {
        let network = Masked::network(ip, prefix);
        let follows = self
            .addresses
            .iter()
            .any(|known| ip.is_ipv4() && known.prefix == prefix && Masked::network(known.ip, prefix) == network);
        self.addresses.push(Address { ip, prefix, secondary: follows });
        self
    }

    /// Adds an address that is not chosen as a source: secondary in IPv4, deprecated in IPv6.
    #[must_use]
    pub fn secondary(self, ip: IpAddr, prefix: u8) -> HostInterface {
        self.with(Address { ip, prefix, secondary: true })
    }

    /// Adds an address as it is.
    #[must_use]
    pub fn with(mut self, address: Address) -> HostInterface {
        self.addresses.push(address);
        self
    }

    /// Gives it kernel settings of its own.
    #[must_use]
    pub fn sysctls(mut self, sysctls: InterfaceSysctls) -> HostInterface {
        self.sysctls = Some(sysctls);
        self
    }

    /// Says that its name is invented.
    #[must_use]
    pub fn invented(mut self) -> HostInterface {
        self.invented = true;
        self
    }

    /// Makes it a port of a bridge.
    #[must_use]
    pub fn port_of(mut self, bridge: &str, hairpin: bool) -> HostInterface {
        self.bridge = Some(bridge.to_owned());
        self.hairpin = hairpin;
        self
    }
}

/// Where a socket waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its address; none is all of the host's.
    pub address: Option<IpAddr>,
    /// Its port; none is every port.
    pub port: Option<u16>,
}

/// A machine. Made by [`Host::builder`].
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) name: Arc<str>,
    pub(crate) interfaces: Vec<HostInterface>,
    pub(crate) names: Vec<Arc<str>>,
    /// For each interface, the bridge that it is a port of.
    pub(crate) bridge_of: Vec<Option<usize>>,
    /// The main table.
    pub(crate) routes: Vec<route::ResolvedRoute>,
    pub(crate) policy: policy::RoutingPolicy,
    pub(crate) local: BTreeSet<IpAddr>,
    pub(crate) sysctls: Sysctls,
    pub(crate) neighbours: BTreeSet<(usize, IpAddr)>,
    pub(crate) listeners: Vec<Listener>,
    /// Rules of IPv4; those of the other variant of iptables, if there are any.
    pub(crate) v4: (IptablesProgram, Option<IptablesProgram>),
    pub(crate) v6: (IptablesProgram, Option<IptablesProgram>),
    pub(crate) nft: crate::program::nft::NftProgram,
    pub(crate) sets: Vec<CompiledIpSet>,
    pub(crate) services: VirtualServices,
    pub(crate) assumptions: Assumptions,
}

/// The loopback interface's place: it is always the first.
pub(crate) const LOOPBACK: usize = 0;

impl Host {
    /// Begins a machine.
    #[must_use]
    pub fn builder(name: &str) -> HostBuilder {
        HostBuilder::new(name)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the address is one of this machine's.
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        let loopback = match address {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        };
        loopback || self.local.contains(&address)
    }

    /// The settings that hold for an interface.
    pub(crate) fn settings(&self, interface: usize) -> InterfaceSysctls {
        self.interfaces.get(interface).and_then(|one| one.sysctls).unwrap_or_else(|| self.sysctls.of_interfaces())
    }

    /// The interface of that name.
    pub(crate) fn interface(&self, name: &str) -> Option<usize> {
        self.interfaces.iter().position(|interface| interface.name == name)
    }

    /// The rules of a family, in the order in which packets meet them.
    pub(crate) fn programs(&self, family: Family) -> impl Iterator<Item = &IptablesProgram> {
        let (first, second) = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        std::iter::once(first).chain(second)
    }

    /// Whether a socket takes what is sent to there.
    pub(crate) fn listens(&self, protocol: Protocol, address: IpAddr, port: u16) -> bool {
        self.listeners.iter().any(|listener| {
            listener.protocol == protocol
                && listener.address.is_none_or(|own| own == address)
                && listener.port.is_none_or(|own| own == port)
        })
    }

    fn set_lookups(sets: &Sets) -> Vec<CompiledIpSet> {
        sets.sets.iter().map(|set: &IpSet| CompiledIpSet::new(set)).collect()
    }
}
