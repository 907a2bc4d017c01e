//! Interfaces, protocol and addresses.

use std::net::IpAddr;

use crate::error::EncodeError;
use crate::family::Family;
use crate::rule::{Bitwise, CmpOp, MetaKey, PayloadBase, Register, Rule};

/// `IFNAMSIZ` without the final zero.
const INTERFACE_MAX: usize = 15;

/// `-i` or `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceMatch<'a> {
    /// Whole name or prefix.
    pub name: &'a str,
    /// `name` is a prefix (`cni+`).
    pub prefix: bool,
    /// Matches any other interface.
    pub negated: bool,
}

/// `-s` or `-d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// An address in the network.
    pub address: IpAddr,
    /// In bits; 0 matches all.
    pub length: u8,
    /// Matches any other address.
    pub negated: bool,
}

impl Prefix {
    /// Returns the prefix of one address.
    pub fn host(address: IpAddr) -> Prefix {
        Prefix { address, length: if address.is_ipv4() { 32 } else { 128 }, negated: false }
    }
}

/// A rule's part before the matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleHeader<'a> {
    /// `-i`.
    pub input: Option<InterfaceMatch<'a>>,
    /// `-o`.
    pub output: Option<InterfaceMatch<'a>>,
    /// `-p`: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: Option<u8>,
    /// `-s`.
    pub source: Option<Prefix>,
    /// `-d`.
    pub destination: Option<Prefix>,
}

impl RuleHeader<'_> {
    /// Writes in the order of iptables-nft 1.8.9.
    pub(super) fn write(&self, family: Family, rule: &mut Rule) {
        if let Some(interface) = &self.input {
            write_interface(interface, MetaKey::IIFNAME, rule);
        }
        if let Some(interface) = &self.output {
            write_interface(interface, MetaKey::OIFNAME, rule);
        }
        if let Some(protocol) = self.protocol {
            rule.meta(MetaKey::L4PROTO, Register::R1).cmp(Register::R1, CmpOp::Equal, &[protocol]);
        }
        // Offsets in `struct iphdr` and `struct ipv6hdr`.
        let (source, destination) = if family == Family::Ipv6 { (8, 24) } else { (12, 16) };
        if let Some(prefix) = &self.source {
            write_prefix(prefix, family, source, rule);
        }
        if let Some(prefix) = &self.destination {
            write_prefix(prefix, family, destination, rule);
        }
    }
}

/// Writes whole names with a final zero, prefixes without.
fn write_interface(interface: &InterfaceMatch<'_>, key: MetaKey, rule: &mut Rule) {
    let name = interface.name.as_bytes();
    let most = INTERFACE_MAX - usize::from(interface.prefix);
    if name.is_empty() || name.len() > most || name.contains(&0) {
        let name = interface.name.to_owned();
        return rule.fail(EncodeError::Name { what: "network interface", name, most });
    }
    let mut bytes = [0; INTERFACE_MAX + 1];
    let length = name.len() + usize::from(!interface.prefix);
    bytes.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    let compare = CmpOp::equal(!interface.negated);
    rule.meta(key, Register::R1).cmp(Register::R1, compare, bytes.get(..length).unwrap_or(name));
}

/// A mask of whole bytes shortens the load.
fn write_prefix(prefix: &Prefix, family: Family, offset: u32, rule: &mut Rule) {
    let (v4, v6);
    let address: &[u8] = match prefix.address {
        IpAddr::V4(address) => {
            v4 = address.octets();
            &v4
        }
        IpAddr::V6(address) => {
            v6 = address.octets();
            &v6
        }
    };
    let bits = u32::from(prefix.length);
    let text = || format!("{}/{}", prefix.address, prefix.length);
    if Family::of(prefix.address) != family {
        return rule.fail(EncodeError::Value { what: "the address is not of the rule's family", value: text() });
    }
    if bits as usize > address.len() * 8 {
        return rule.fail(EncodeError::Value { what: "the prefix is longer than the address", value: text() });
    }
    if bits == 0 && prefix.negated {
        return rule.fail(EncodeError::Value { what: "no address is outside of this prefix", value: text() });
    }
    let compare = CmpOp::equal(!prefix.negated);
    let mut mask = [0; 16];
    for (at, byte) in (0u32..).zip(&mut mask) {
        *byte = u8::try_from(0xff00_u32 >> bits.saturating_sub(at * 8).min(8) & 0xff).unwrap_or_default();
    }
    let whole = (bits / 8) as usize;
    match (address.get(..whole), mask.get(..address.len())) {
        (Some([]), _) if bits == 0 => {}
        (Some(bytes), _) if bits % 8 == 0 => {
            rule.payload(PayloadBase::Network, offset, bits / 8, Register::R1).cmp(Register::R1, compare, bytes);
        }
        (_, Some(mask)) => {
            let mut network = [0; 16];
            let masked = address.iter().zip(mask).map(|(byte, mask)| byte & mask);
            network.iter_mut().zip(masked).for_each(|(to, from)| *to = from);
            let length = u32::try_from(address.len()).unwrap_or_default();
            let bits = Bitwise { mask, xor: &[0; 16][..address.len()] };
            rule.payload(PayloadBase::Network, offset, length, Register::R1);
            rule.bitwise(Register::R1, Register::R1, bits);
            rule.cmp(Register::R1, compare, &network[..address.len()]);
        }
        _ => {}
    }
}
