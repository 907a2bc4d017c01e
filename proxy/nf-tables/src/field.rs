//! Fields of keys and values in the types of `nft`: how rules load them, and the user data that lets `nft` print a set.
//!
//! The kernel compares bytes without types. `nft` stores the types of a set's key and value in two numbers, or, if
//! numbers do not suffice, the expressions themselves in the set's user data (`typeof`).

use crate::family::Family;
use crate::rule::{Header, MetaKey, Numgen, Register, Rule};

/// Entries of a set's user data (`enum nftnl_udata_set_types` in libnftnl's `udata.h`).
const KEY_BYTE_ORDER: u8 = 0;
const DATA_BYTE_ORDER: u8 = 1;
const KEY_TYPEOF: u8 = 3;
const DATA_TYPEOF: u8 = 4;
const SET_COMMENT: u8 = 7;
/// `enum nftnl_udata_set_typeof_types`: the kind of an expression, and its parts.
const TYPEOF_EXPRESSION: u8 = 0;
const TYPEOF_DATA: u8 = 1;
/// Byte orders of `nft` in host order (`enum byteorder` in its `datatype.h`): none for concatenations, else network
/// order.
const NO_BYTE_ORDER: u32 = 0;
const BIG_ENDIAN: u32 = 2;
/// Kinds of expressions of `nft` (`enum expr_types` in its `expression.h`).
const PAYLOAD: u32 = 7;
const META: u32 = 9;
const CONCATENATION: u32 = 13;
const NUMGEN: u32 = 23;
/// Headers of `nft` (`enum proto_desc_id` in its `proto.h`).
const TRANSPORT: u32 = 11;
const IP: u32 = 12;
const IP6: u32 = 13;
/// Bits of each type in a concatenation's type (`TYPE_BITS` in `datatype.h` of `nft`).
const TYPE_BITS: u32 = 6;

/// A field of a key or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// `ip saddr` or `ip6 saddr`.
    Source,
    /// `ip daddr` or `ip6 daddr`.
    Destination,
    /// `meta l4proto`.
    Protocol,
    /// `th dport`.
    DestinationPort,
    /// `numgen random mod N`.
    Random(u32),
}

impl Field {
    /// Length in bytes, without padding.
    pub fn length(self, family: Family) -> u32 {
        match self {
            Field::Source | Field::Destination => address(family),
            Field::Protocol => 1,
            Field::DestinationPort => 2,
            Field::Random(_) => 4,
        }
    }

    /// `enum datatypes` in `datatype.h` of `nft`: `ipv4_addr`, `ipv6_addr`, `inet_proto`, `inet_service`, `integer`.
    fn datatype(self, family: Family) -> u32 {
        match (self, family) {
            (Field::Source | Field::Destination, Family::Ipv6) => 8,
            (Field::Source | Field::Destination, _) => 7,
            (Field::Protocol, _) => 12,
            (Field::DestinationPort, _) => 13,
            (Field::Random(_), _) => 4,
        }
    }

    /// Adds the expression that loads the field.
    pub fn load(self, family: Family, rule: &mut Rule, to: Register) {
        match self {
            Field::Source => rule.payload(Header::Network, source_offset(family), address(family), to),
            Field::Destination => {
                rule.payload(Header::Network, source_offset(family) + address(family), address(family), to)
            }
            Field::Protocol => rule.meta(MetaKey::L4PROTO, to),
            Field::DestinationPort => rule.payload(Header::Transport, 2, 2, to),
            Field::Random(modulus) => rule.numgen(Numgen::Random, modulus, 0, to),
        };
    }

    /// The `typeof` expression.
    fn expression(self, family: Family) -> Vec<u8> {
        let payload = |header, field| typeof_of(PAYLOAD, &[number(0, header), number(1, field)].concat());
        // `IPHDR_SADDR` and `IPHDR_DADDR`, `IP6HDR_SADDR` and `IP6HDR_DADDR`, `THDR_DPORT`.
        match (self, family) {
            (Field::Source, Family::Ipv6) => payload(IP6, 8),
            (Field::Source, _) => payload(IP, 11),
            (Field::Destination, Family::Ipv6) => payload(IP6, 9),
            (Field::Destination, _) => payload(IP, 12),
            (Field::Protocol, _) => typeof_of(META, &number(0, MetaKey::L4PROTO.0)),
            (Field::DestinationPort, _) => payload(TRANSPORT, 2),
            (Field::Random(modulus), _) => {
                let random = Numgen::Random as u32;
                typeof_of(NUMGEN, &[number(0, random), number(1, modulus), number(2, 0)].concat())
            }
        }
    }
}

fn address(family: Family) -> u32 {
    if family == Family::Ipv6 { 16 } else { 4 }
}

fn source_offset(family: Family) -> u32 {
    if family == Family::Ipv6 { 8 } else { 12 }
}

/// Adds expressions that load the fields into consecutive registers from `R1` on, each padded to four bytes.
pub fn load(fields: &[Field], family: Family, rule: &mut Rule) {
    let mut word = 0;
    for field in fields {
        field.load(family, rule, Register::word(word));
        word += field.length(family).div_ceil(4);
    }
}

/// The `nft` type of a key or value with these fields, for [`SetSpec::key_type`](crate::SetSpec::key_type).
pub fn datatype(fields: &[Field], family: Family) -> u32 {
    fields.iter().fold(0, |types, field| types << TYPE_BITS | field.datatype(family))
}

/// Bytes of a key or value with these fields, each padded to four bytes.
pub fn length(fields: &[Field], family: Family) -> u32 {
    fields.iter().map(|field| field.length(family).next_multiple_of(4)).sum()
}

/// The user data from which `nft` prints a set: key fields, value fields of a map, comment. Only a random field
/// ([`Field::Random`]) needs `typeof`.
pub fn set_user_data(key: &[Field], value: Option<&[Field]>, family: Family, comment: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let order = if key.len() > 1 { NO_BYTE_ORDER } else { BIG_ENDIAN };
    out.extend(number(KEY_BYTE_ORDER, order));
    if value.is_some() {
        out.extend(number(DATA_BYTE_ORDER, NO_BYTE_ORDER));
    }
    let by_typeof = key.iter().any(|field| matches!(field, Field::Random(_)));
    if by_typeof {
        put(&mut out, KEY_TYPEOF, &typeof_key(key, family));
        if let Some(value) = value {
            put(&mut out, DATA_TYPEOF, &typeof_key(value, family));
        }
    }
    if !comment.is_empty() {
        put(&mut out, SET_COMMENT, &[comment.as_bytes(), &[0]].concat());
    }
    out
}

/// The user data of a table or chain with a comment (`NFTNL_UDATA_TABLE_COMMENT`, `NFTNL_UDATA_CHAIN_COMMENT`).
pub fn comment_user_data(comment: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 0, &[comment.as_bytes(), &[0]].concat());
    out
}

/// A concatenation numbers its fields.
fn typeof_key(fields: &[Field], family: Family) -> Vec<u8> {
    if let [field] = fields {
        return field.expression(family);
    }
    let mut parts = Vec::new();
    for (index, field) in (0u8..).zip(fields) {
        put(&mut parts, index, &field.expression(family));
    }
    typeof_of(CONCATENATION, &parts)
}

fn typeof_of(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = number(TYPEOF_EXPRESSION, kind);
    put(&mut out, TYPEOF_DATA, data);
    out
}

/// libnftnl stores numbers in host order.
fn number(kind: u8, value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, kind, &value.to_ne_bytes());
    out
}

/// `struct nftnl_udata`: type, length, value. Truncates a longer value; the kernel accepts 256 bytes in all.
fn put(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
    out.extend([kind, length]);
    out.extend(value.iter().take(usize::from(length)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: [Field; 4] = [Field::Destination, Field::Protocol, Field::DestinationPort, Field::Random(2)];
    const ENDPOINT: [Field; 2] = [Field::Destination, Field::DestinationPort];

    /// What nft 1.0.6 stores for `map endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip
    /// daddr . th dport; }`, on a little-endian machine.
    #[cfg(target_endian = "little")]
    #[test]
    fn user_data_is_that_of_nft() {
        let expected = [
            0, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 3, 96, 0, 4, 13, 0, 0, 0, 1, 88, 0, 20, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4,
            12, 0, 0, 0, 1, 4, 12, 0, 0, 0, 1, 14, 0, 4, 9, 0, 0, 0, 1, 6, 0, 4, 16, 0, 0, 0, 2, 20, 0, 4, 7, 0, 0, 0,
            1, 12, 0, 4, 11, 0, 0, 0, 1, 4, 2, 0, 0, 0, 3, 26, 0, 4, 23, 0, 0, 0, 1, 18, 0, 4, 1, 0, 0, 0, 1, 4, 2, 0,
            0, 0, 2, 4, 0, 0, 0, 0, 4, 52, 0, 4, 13, 0, 0, 0, 1, 44, 0, 20, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 12, 0, 0, 0,
            1, 4, 12, 0, 0, 0, 1, 20, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 11, 0, 0, 0, 1, 4, 2, 0, 0, 0,
        ];
        assert_eq!(set_user_data(&SLOT, Some(&ENDPOINT), Family::Ipv4, ""), expected);
        assert_eq!(set_user_data(&[Field::Source], None, Family::Ipv4, "x"), [0, 4, 2, 0, 0, 0, 7, 2, b'x', 0]);
    }

    #[test]
    fn types_and_lengths_are_those_of_nft() {
        for (family, key_type, key_length, value_type, value_length) in
            [(Family::Ipv4, 1_884_996, 16, 461, 8), (Family::Ipv6, 2_147_140, 28, 525, 20)]
        {
            assert_eq!((datatype(&SLOT, family), length(&SLOT, family)), (key_type, key_length));
            assert_eq!((datatype(&ENDPOINT, family), length(&ENDPOINT, family)), (value_type, value_length));
        }
    }
}
