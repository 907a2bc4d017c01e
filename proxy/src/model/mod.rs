mod annotations;
mod changes;
mod flow_fate;
mod labels;
mod load_balancing;
mod selection;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use compact_str::CompactString;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use annotations::{ANNOTATION_PREFIX, ServiceAnnotation, affinity_across_ports, local_fallback, source_ranges};
pub use changes::{Batch, Change, ResourceVersions};
pub use flow_fate::FlowFate;
pub use labels::{LABEL_HEADLESS, LABEL_PROXY_NAME, LABEL_SERVICE_NAME};
pub use load_balancing::LoadBalancing;

/// A name of at most 24 bytes needs no memory of its own. A large cluster's names are kept some twenty times.
pub type ShortString = CompactString;
pub use selection::ServiceSelection;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: ShortString,
    pub name: ShortString,
}

impl ObjectKey {
    pub fn new(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    /// Returns an empty name or namespace where the metadata has none.
    pub fn of(metadata: &ObjectMeta) -> ObjectKey {
        ObjectKey::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Each family has its own kernel tables and is proxied separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    pub fn of(address: &IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub fn of_net(net: &IpNet) -> Family {
        Family::of(&net.addr())
    }

    /// The name is also a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub fn address_bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    pub fn unspecified(self) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    pub fn localhost(self) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        }
    }

    /// RFC 1122 §3.2.1.3, RFC 4291 §2.5.3.
    pub fn loopback_range(self) -> IpNet {
        match self {
            Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(),
            Family::V6 => Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128).into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// A missing protocol means TCP.
    pub fn from_api(value: Option<&str>) -> Option<Protocol> {
        match value {
            None | Some("" | "TCP") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some("SCTP") => Some(Protocol::Sctp),
            Some(_) => None,
        }
    }

    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// Returns the protocol's number (`IPPROTO_*`).
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// Returns the name in lower case, as in iptables and in the hashes of chain names.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A service port is the unit of planning, rendering and change tracking.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePortName {
    pub service: ObjectKey,
    /// Empty for a single unnamed port.
    pub port: ShortString,
    /// A port name is unique per protocol.
    pub protocol: Protocol,
}

/// The form that kube-proxy hashes into chain names and writes into rule comments.
impl fmt::Display for ServicePortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if !self.port.is_empty() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

pub fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// As in Kubernetes, an IPv4 octet with leading zeros is decimal (CVE-2021-29923): `010.0.0.1` is `10.0.0.1`.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let octets: Vec<&str> = text.split('.').collect();
    let decimal = |octet: &&str| !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit());
    if octets.len() != 4 || !octets.iter().all(decimal) {
        return None;
    }
    let trimmed: Vec<&str> = octets
        .iter()
        .map(|octet| match octet.trim_start_matches('0') {
            "" => "0",
            rest => rest,
        })
        .collect();
    trimmed.join(".").parse().ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frontend {
    /// A cluster, external or load-balancer IP with its port.
    Address(SocketAddr),
    NodePort(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    pub protocol: Protocol,
    pub client: IpAddr,
    /// The destination before DNAT.
    pub destination: SocketAddr,
    /// The address that sends the replies.
    pub server: SocketAddr,
    pub translated: bool,
    /// Whether IPVS, and not a rule, performed the DNAT.
    pub by_ipvs: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_leading_zeros_are_decimal() {
        let table = [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.00.1", Some("10.0.0.1")),
            ("fd00::1", Some("fd00::1")),
            ("256.0.0.1", None),
            ("0x7f.0.0.1", None),
            ("1.2.3", None),
            ("1.2.3.4 -j ACCEPT", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_ip(text).map(|ip| ip.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn unnamed_ports_have_no_colon() {
        let service = ObjectKey { namespace: "default".into(), name: "web".into() };
        let name =
            |port: &str| ServicePortName { service: service.clone(), port: port.into(), protocol: Protocol::Tcp };
        assert_eq!(name("").to_string(), "default/web");
        assert_eq!(name("http").to_string(), "default/web:http");
    }
}
