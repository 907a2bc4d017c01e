//! xt targets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::XtExtension;

/// `NF_NAT_RANGE_MAP_IPS`, `NF_NAT_RANGE_PROTO_SPECIFIED`, `NF_NAT_RANGE_PROTO_RANDOM_FULLY` (`nf_nat.h`).
const ADDRESSES: u32 = 1 << 0;
const PORTS: u32 = 1 << 1;
const RANDOM_FULLY: u32 = 1 << 4;
/// `IPT_ICMP_PORT_UNREACHABLE`, `IPT_TCP_RESET` (`include/uapi/linux/netfilter_ipv4/ipt_REJECT.h`).
const PORT_UNREACHABLE_V4: u32 = 3;
const TCP_RESET_V4: u32 = 7;
/// `IP6T_ICMP6_PORT_UNREACH`, `IP6T_TCP_RESET` (`include/uapi/linux/netfilter_ipv6/ip6t_REJECT.h`).
const PORT_UNREACHABLE_V6: u32 = 4;
const TCP_RESET_V6: u32 = 6;

/// `-j MARK --set-xmark` (`xt_mark.h`, `struct xt_mark_tginfo2`): clears `mask` and inverts `mark`.
pub fn set_xmark(mark: u32, mask: u32) -> XtExtension<8> {
    XtExtension::new("MARK", 2).u32(0, mark).u32(4, mask)
}

fn random(fully: bool) -> u32 {
    if fully { RANDOM_FULLY } else { 0 }
}

/// `-j MASQUERADE` in IPv4 (`nf_nat.h`, `struct nf_nat_ipv4_multi_range_compat` of one range).
pub fn masquerade_v4(random_fully: bool) -> XtExtension<24> {
    XtExtension::new("MASQUERADE", 0).u32(0, 1).u32(4, random(random_fully))
}

/// `-j MASQUERADE` in IPv6 (`nf_nat.h`, `struct nf_nat_range`).
pub fn masquerade_v6(random_fully: bool) -> XtExtension<40> {
    XtExtension::new("MASQUERADE", 0).u32(0, random(random_fully))
}

/// `-j SNAT --to-source` in IPv4 (`nf_nat.h`, `struct nf_nat_ipv4_multi_range_compat` of one range).
pub fn snat_v4(to: Ipv4Addr, random_fully: bool) -> XtExtension<24> {
    let target = XtExtension::new("SNAT", 0).u32(0, 1).u32(4, ADDRESSES | random(random_fully));
    target.at(8, &to.octets()).at(12, &to.octets())
}

/// `-j SNAT --to-source` in IPv6 (`nf_nat.h`, `struct nf_nat_range`).
pub fn snat_v6(to: Ipv6Addr, random_fully: bool) -> XtExtension<40> {
    let target = XtExtension::new("SNAT", 1).u32(0, ADDRESSES | random(random_fully));
    target.at(4, &to.octets()).at(20, &to.octets())
}

/// `-j REDIRECT --to-ports` in IPv4 (`nf_nat.h`, `struct nf_nat_ipv4_multi_range_compat` of one range).
pub fn redirect_v4(port: u16) -> XtExtension<24> {
    let port = port.to_be_bytes();
    XtExtension::new("REDIRECT", 0).u32(0, 1).u32(4, PORTS).at(16, &port).at(18, &port)
}

/// `-j REDIRECT --to-ports` in IPv6 (`nf_nat.h`, `struct nf_nat_range`).
pub fn redirect_v6(port: u16) -> XtExtension<40> {
    let port = port.to_be_bytes();
    XtExtension::new("REDIRECT", 0).u32(0, PORTS).at(36, &port).at(38, &port)
}

/// `-j DNAT --to-destination` in either family (`nf_nat.h`, `struct nf_nat_range2`).
pub fn dnat(to: SocketAddr) -> XtExtension<48> {
    let (port, target) = (to.port().to_be_bytes(), XtExtension::new("DNAT", 2).u32(0, ADDRESSES | PORTS));
    let target = match to.ip() {
        IpAddr::V4(address) => target.at(4, &address.octets()).at(20, &address.octets()),
        IpAddr::V6(address) => target.at(4, &address.octets()).at(20, &address.octets()),
    };
    target.at(36, &port).at(38, &port)
}

/// `-j REJECT --reject-with icmp-port-unreachable` (`ipt_REJECT.h`).
pub fn reject_v4() -> XtExtension<8> {
    XtExtension::new("REJECT", 0).u32(0, PORT_UNREACHABLE_V4)
}

/// `-j REJECT --reject-with icmp6-port-unreachable` (`ip6t_REJECT.h`).
pub fn reject_v6() -> XtExtension<8> {
    XtExtension::new("REJECT", 0).u32(0, PORT_UNREACHABLE_V6)
}

/// `-j REJECT --reject-with tcp-reset` in IPv4 (`ipt_REJECT.h`).
pub fn reset_v4() -> XtExtension<8> {
    XtExtension::new("REJECT", 0).u32(0, TCP_RESET_V4)
}

/// `-j REJECT --reject-with tcp-reset` in IPv6 (`ip6t_REJECT.h`).
pub fn reset_v6() -> XtExtension<8> {
    XtExtension::new("REJECT", 0).u32(0, TCP_RESET_V6)
}
