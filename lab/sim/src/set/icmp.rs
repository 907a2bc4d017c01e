//! The names that ipset prints for types and codes of ICMP (`lib/icmp.c` and `lib/icmpv6.c` of ipset).

use crate::names;
use crate::protocol::Protocol;

const V4: [(&str, u16); 32] = [
    ("echo-reply", 0x0000),
    ("network-unreachable", 0x0300),
    ("host-unreachable", 0x0301),
    ("protocol-unreachable", 0x0302),
    ("port-unreachable", 0x0303),
    ("fragmentation-needed", 0x0304),
    ("source-route-failed", 0x0305),
    ("network-unknown", 0x0306),
    ("host-unknown", 0x0307),
    ("network-prohibited", 0x0309),
    ("host-prohibited", 0x030a),
    ("TOS-network-unreachable", 0x030b),
    ("TOS-host-unreachable", 0x030c),
    ("communication-prohibited", 0x030d),
    ("host-precedence-violation", 0x030e),
    ("precedence-cutoff", 0x030f),
    ("source-quench", 0x0400),
    ("network-redirect", 0x0500),
    ("host-redirect", 0x0501),
    ("TOS-network-redirect", 0x0502),
    ("TOS-host-redirect", 0x0503),
    ("echo-request", 0x0800),
    ("router-advertisement", 0x0900),
    ("router-solicitation", 0x0a00),
    ("ttl-zero-during-transit", 0x0b00),
    ("ttl-zero-during-reassembly", 0x0b01),
    ("ip-header-bad", 0x0c00),
    ("required-option-missing", 0x0c01),
    ("timestamp-request", 0x0d00),
    ("timestamp-reply", 0x0e00),
    ("address-mask-request", 0x1100),
    ("address-mask-reply", 0x1200),
];

const V6: [(&str, u16); 17] = [
    ("no-route", 0x0100),
    ("communication-prohibited", 0x0101),
    ("address-unreachable", 0x0103),
    ("port-unreachable", 0x0104),
    ("packet-too-big", 0x0200),
    ("ttl-zero-during-transit", 0x0300),
    ("ttl-zero-during-reassembly", 0x0301),
    ("bad-header", 0x0400),
    ("unknown-header-type", 0x0401),
    ("unknown-option", 0x0402),
    ("echo-request", 0x8000),
    ("echo-reply", 0x8100),
    ("router-solicitation", 0x8500),
    ("router-advertisement", 0x8600),
    ("neighbour-solicitation", 0x8700),
    ("neighbour-advertisement", 0x8800),
    ("redirect", 0x8900),
];

/// Returns type × 256 + code.
pub(super) fn parse(protocol: Protocol, name: &str) -> Option<u16> {
    match protocol {
        Protocol::ICMP => names::value(&V4, name),
        Protocol::ICMPV6 => names::value(&V6, name),
        _ => None,
    }
}
