//! A network namespace from route netlink (rtnetlink(7)).

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The lists are in the kernel's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Interfaces.
    pub links: Vec<Link>,
    /// Addresses.
    pub addresses: Vec<Address>,
    /// Routes of all tables, the local one too.
    pub routes: Vec<Route>,
    /// Rules of policy routing, by priority.
    pub rules: Vec<Rule>,
    /// Neighbours with a hardware address.
    pub neighbours: Vec<Neighbour>,
    /// The forwarding tables of bridges.
    pub forwarding: Vec<Forwarding>,
    /// Neighbours that do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<UnresolvedNeighbour>,
    /// Policies of IPsec (ip-xfrm(8)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipsec: Vec<IpsecPolicy>,
    /// Names of interfaces in the order of their registration, in which the kernel looks for source addresses
    /// (`/proc/net/igmp`). Lacks interfaces that are down; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registered: Vec<String>,
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The interface's number.
    pub index: u32,
    /// The interface's name.
    pub name: String,
    /// `IFLA_INFO_KIND` (`veth`, `bridge`, `vxlan`, …); `None` for hardware and loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it is set up (`IFF_UP`).
    pub up: bool,
    /// Whether it has a carrier (`IFF_LOWER_UP`); `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<bool>,
    /// Lower-case hexadecimal with colons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The MTU in bytes.
    #[serde(default)]
    pub mtu: u32,
    /// The bridge, bond or VRF of the port (`IFLA_MASTER`), by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The interface below a VLAN, macvlan or tunnel (`IFLA_LINK`), by name; `None` if it is in another namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<String>,
    /// Whether the bridge port is in hairpin mode.
    #[serde(default)]
    pub hairpin: bool,
    /// Whether the bridge port exchanges no frames with other isolated ports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// The bridge port's state in the spanning tree: `forwarding`, `blocking`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_state: Option<String>,
}

/// An address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address with its network's prefix length (`IFA_LOCAL`, else `IFA_ADDRESS`).
    pub address: IpNet,
    /// IPv4: whether an earlier address has the same network (`IFA_F_SECONDARY`).
    #[serde(default)]
    pub secondary: bool,
    /// IPv6: whether new connections do not use the address as their source.
    #[serde(default)]
    pub deprecated: bool,
    /// IPv6: a privacy address (`IFA_F_TEMPORARY`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// IPv6: duplicate address detection has not ended or has failed (`IFA_F_TENTATIVE`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tentative: bool,
    /// `global`, `site`, `link`, `host`, `nowhere` or a number.
    pub scope: String,
}

/// A route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The table: 254 is main, 255 local.
    pub table: u32,
    /// The destination range.
    pub to: IpNet,
    /// `unicast`, `local`, `broadcast`, `blackhole`, `unreachable`, `prohibit`, `throw`, …
    pub kind: String,
    /// The next hops; empty if the route forwards nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
    /// The source address of local packets (`RTA_PREFSRC`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The route's priority (`RTA_PRIORITY`): the lowest wins.
    #[serde(default)]
    pub metric: u32,
    /// IPv4: the scope, as of an address; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// A next hop: most routes have one, multipath routes several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The gateway; `None` if destinations are neighbours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The weight among the route's hops, from 1.
    pub weight: u32,
    /// The kind of tunnel header that the route adds (`RTA_ENCAP_TYPE`): `mpls`, `ip`, `ip6`, `seg6`, `bpf`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encap: Option<String>,
}

/// A rule of policy routing (ip-rule(8)). `unknown` has the conditions without a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Lower priorities are evaluated first.
    pub priority: u32,
    /// Source range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNet>,
    /// Destination range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNet>,
    /// The ingress interface; `lo` for local packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The interface that the socket is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Value and mask of the packet's mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// Whether the conditions are inverted (`not`).
    #[serde(default)]
    pub invert: bool,
    /// `lookup`, `goto`, `nop`, `blackhole`, `unreachable` or `prohibit`.
    pub action: String,
    /// The table of a `lookup`, or the priority of a `goto`.
    #[serde(default)]
    pub table: u32,
    /// `lookup`: ignores routes with a prefix of this length or shorter (`suppress_prefixlength`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefix: Option<u32>,
    /// Names of other attributes (`uidrange`, `dport`, `tos`, …).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The interface.
    pub interface: String,
    /// The neighbour's address.
    pub address: IpAddr,
    /// The neighbour's hardware address.
    pub mac: String,
    /// Whether the entry is static (`NUD_PERMANENT`).
    #[serde(default)]
    pub permanent: bool,
}

/// An entry of a bridge's forwarding table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    /// The bridge port.
    pub port: String,
    /// The hardware address behind the port.
    pub mac: String,
}

/// A neighbour that did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresolvedNeighbour {
    /// The interface.
    pub interface: String,
    /// The neighbour's address.
    pub address: IpAddr,
    /// `failed` or `incomplete`.
    pub state: String,
}

/// A policy of IPsec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpsecPolicy {
    /// `out`: packets that leave; `in`: packets for this machine; `fwd`: packets that are forwarded.
    pub direction: String,
    /// Source range.
    pub from: IpNet,
    /// Destination range.
    pub to: IpNet,
    /// IP protocol; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Whether ports, an interface, a mark or other conditions narrow the policy further.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub narrower: bool,
    /// Lower priorities are evaluated first.
    pub priority: u32,
    /// `allow`: packets pass, transformed if there are templates; `block`: packets are dropped.
    pub action: String,
    /// Whether the policy has templates of transformations.
    pub transforms: bool,
}
