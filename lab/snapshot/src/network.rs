//! A network namespace's interfaces, addresses, routes, rules of policy routing, and neighbours, as route netlink tells of them
//! (rtnetlink(7)).

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Everything, in the kernel's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Interfaces.
    pub links: Vec<Link>,
    /// Addresses, in the order in which the kernel lists them.
    pub addresses: Vec<Address>,
    /// Routes of all tables, the local one too.
    pub routes: Vec<Route>,
    /// Rules of policy routing, by priority.
    pub rules: Vec<Rule>,
    /// Neighbours with a hardware address.
    pub neighbours: Vec<Neighbour>,
    /// Which port of a bridge a hardware address is behind.
    pub forwarding: Vec<Forwarding>,
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind (`veth`, `bridge`, `vxlan`, …; `IFLA_INFO_KIND`); none for hardware and loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it is set up (`IFF_UP`).
    pub up: bool,
    /// Its hardware address, in lower-case hexadecimal with colons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its largest packet.
    #[serde(default)]
    pub mtu: u32,
    /// The bridge, bond or VRF that it is a port of (`IFLA_MASTER`), by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Of a bridge's port: whether it is in hairpin mode.
    #[serde(default)]
    pub hairpin: bool,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address with its network's prefix length (`IFA_LOCAL`, else `IFA_ADDRESS`).
    pub address: IpNet,
    /// Of IPv4: after another of its network (`IFA_F_SECONDARY`).
    #[serde(default)]
    pub secondary: bool,
    /// Of IPv6: deprecated.
    #[serde(default)]
    pub deprecated: bool,
    /// `global`, `link`, `host` or a number.
    pub scope: String,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The table: 254 is main, 255 local.
    pub table: u32,
    /// Where to.
    pub to: IpNet,
    /// `unicast`, `local`, `broadcast`, `blackhole`, `unreachable`, `prohibit`, `throw`, …
    pub kind: String,
    /// The first way; none of a route that sends nothing on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
    /// The source address for what starts here (`RTA_PREFSRC`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The lower wins (`RTA_PRIORITY`).
    #[serde(default)]
    pub metric: u32,
}

/// One of a route's ways: most routes have one, multipath routes several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The gateway; none is a neighbour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its weight among the route's ways, from 1.
    pub weight: u32,
}

/// A rule of policy routing (ip-rule(8)). A rule that asks for something else than these fields has it in `unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// `ipv4` or `ipv6`: each family has its own rules.
    pub family: String,
    /// The lower comes first.
    pub priority: u32,
    /// Source range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNet>,
    /// Destination range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNet>,
    /// Interface that the packet came in by; `lo` is what starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Interface that a socket is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Value and mask of the packet's mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// Holds for what it does not describe (`not`).
    #[serde(default)]
    pub invert: bool,
    /// `lookup`, `goto`, `nop`, `blackhole`, `unreachable` or `prohibit`.
    pub action: String,
    /// The table of a `lookup`, or the priority of a `goto`.
    #[serde(default)]
    pub table: u32,
    /// Of a `lookup`: routes with a prefix of this length or shorter do not count (`suppress_prefixlength`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefix: Option<u32>,
    /// Attributes that are none of these, by name (`uidrange`, `dport`, `tos`, …).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The interface.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address.
    pub mac: String,
    /// Whether it was set by hand (`NUD_PERMANENT`).
    #[serde(default)]
    pub permanent: bool,
}

/// An entry of a bridge's forwarding table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    /// The port.
    pub port: String,
    /// The hardware address behind it.
    pub mac: String,
}
