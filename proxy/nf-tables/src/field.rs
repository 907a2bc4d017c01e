//! Keys and values in `nft`'s types, and the user data from which `nft` prints sets.
//!
//! `nft` stores types in two numbers, or as expressions (`typeof`) in user data; the kernel ignores them.

use crate::family::Family;
use crate::rule::{CtDirection, CtKey, MetaKey, Numgen, PayloadBase, Register, Rule};

/// `enum nftnl_udata_set_types` in libnftnl's `udata.h`.
const KEY_BYTE_ORDER: u8 = 0;
const DATA_BYTE_ORDER: u8 = 1;
const KEY_TYPEOF: u8 = 3;
const DATA_TYPEOF: u8 = 4;
const SET_COMMENT: u8 = 7;
/// `enum nftnl_udata_set_typeof_types`.
const TYPEOF_EXPRESSION: u8 = 0;
const TYPEOF_DATA: u8 = 1;
/// `enum byteorder` in `datatype.h` of `nft`.
const NO_BYTE_ORDER: u32 = 0;
const BIG_ENDIAN: u32 = 2;
/// `enum expr_types` in `expression.h` of `nft`.
const PAYLOAD: u32 = 7;
const META: u32 = 9;
const CT: u32 = 12;
const CONCATENATION: u32 = 13;
const NUMGEN: u32 = 23;
/// `enum proto_desc_id` in `proto.h` of `nft`.
const TRANSPORT: u32 = 11;
const IP: u32 = 12;
const IP6: u32 = 13;
/// `TYPE_BITS` in `datatype.h` of `nft`.
const TYPE_BITS: u32 = 6;

/// A field of a key or value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyField {
    /// `ip saddr` or `ip6 saddr`.
    Source,
    /// `ip daddr` or `ip6 daddr`.
    Destination,
    /// `meta l4proto`.
    Protocol,
    /// `th sport`.
    SourcePort,
    /// `th dport`.
    DestinationPort,
    /// `ct original ip daddr` or `ct original ip6 daddr`.
    OriginalDestination,
    /// `ct original proto-dst`.
    OriginalDestinationPort,
    /// `ct direction`.
    Direction,
    /// `ct reply ip saddr` or `ct reply ip6 saddr`.
    ReplySource,
    /// `ct reply proto-src`.
    ReplySourcePort,
    /// `numgen random mod N`.
    Random(u32),
}

impl KeyField {
    /// Returns the bytes without padding.
    pub fn length(self, family: Family) -> u32 {
        match self {
            KeyField::Source | KeyField::Destination | KeyField::OriginalDestination | KeyField::ReplySource => {
                address(family)
            }
            KeyField::Protocol | KeyField::Direction => 1,
            KeyField::SourcePort
            | KeyField::DestinationPort
            | KeyField::OriginalDestinationPort
            | KeyField::ReplySourcePort => 2,
            KeyField::Random(_) => 4,
        }
    }

    /// `enum datatypes` in `datatype.h` of `nft`.
    fn datatype(self, family: Family) -> u32 {
        match (self, family) {
            (
                KeyField::Source | KeyField::Destination | KeyField::OriginalDestination | KeyField::ReplySource,
                Family::Ipv6,
            ) => 8,
            (KeyField::Source | KeyField::Destination | KeyField::OriginalDestination | KeyField::ReplySource, _) => 7,
            (KeyField::Protocol, _) => 12,
            (
                KeyField::SourcePort
                | KeyField::DestinationPort
                | KeyField::OriginalDestinationPort
                | KeyField::ReplySourcePort,
                _,
            ) => 13,
            (KeyField::Direction, _) => 27,
            (KeyField::Random(_), _) => 4,
        }
    }

    /// Loads the field.
    pub fn load(self, family: Family, rule: &mut Rule, to: Register) {
        match self {
            KeyField::Source => rule.payload(PayloadBase::Network, source_offset(family), address(family), to),
            KeyField::Destination => {
                rule.payload(PayloadBase::Network, source_offset(family) + address(family), address(family), to)
            }
            KeyField::Protocol => rule.meta(MetaKey::L4PROTO, to),
            KeyField::SourcePort => rule.payload(PayloadBase::Transport, 0, 2, to),
            KeyField::DestinationPort => rule.payload(PayloadBase::Transport, 2, 2, to),
            KeyField::Direction => rule.ct(CtKey::DIRECTION, to),
            KeyField::OriginalDestination
            | KeyField::OriginalDestinationPort
            | KeyField::ReplySource
            | KeyField::ReplySourcePort => {
                let (key, direction) = self.connection(family);
                rule.ct_of(key, direction, to)
            }
            KeyField::Random(modulus) => rule.numgen(Numgen::Random, modulus, 0, to),
        };
    }

    /// Returns key and direction of a connection's field.
    fn connection(self, family: Family) -> (CtKey, CtDirection) {
        match (self, family) {
            (KeyField::ReplySource, Family::Ipv6) => (CtKey::SRC_IP6, CtDirection::Reply),
            (KeyField::ReplySource, _) => (CtKey::SRC_IP, CtDirection::Reply),
            (KeyField::ReplySourcePort, _) => (CtKey::PROTO_SRC, CtDirection::Reply),
            (KeyField::OriginalDestinationPort, _) => (CtKey::PROTO_DST, CtDirection::Original),
            (_, Family::Ipv6) => (CtKey::DST_IP6, CtDirection::Original),
            (_, _) => (CtKey::DST_IP, CtDirection::Original),
        }
    }

    /// Encodes the field for `typeof`.
    fn expression(self, family: Family) -> Vec<u8> {
        let payload = |header, field| typeof_of(PAYLOAD, &[number(0, header), number(1, field)].concat());
        // Numbers of `saddr`, `daddr`, `sport` and `dport` in `nft`'s descriptions of headers.
        match (self, family) {
            (KeyField::Source, Family::Ipv6) => payload(IP6, 8),
            (KeyField::Source, _) => payload(IP, 11),
            (KeyField::Destination, Family::Ipv6) => payload(IP6, 9),
            (KeyField::Destination, _) => payload(IP, 12),
            (KeyField::Protocol, _) => typeof_of(META, &number(0, MetaKey::L4PROTO.0)),
            (KeyField::SourcePort, _) => payload(TRANSPORT, 1),
            (KeyField::DestinationPort, _) => payload(TRANSPORT, 2),
            (KeyField::Direction, _) => typeof_of(CT, &[number(0, CtKey::DIRECTION.0), number(1, 0)].concat()),
            (
                KeyField::OriginalDestination
                | KeyField::OriginalDestinationPort
                | KeyField::ReplySource
                | KeyField::ReplySourcePort,
                _,
            ) => {
                let (key, direction) = self.connection(family);
                typeof_of(CT, &[number(0, key.0), number(1, u32::from(direction as u8))].concat())
            }
            (KeyField::Random(modulus), _) => {
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

/// Loads fields into consecutive registers from `R1` on, padded to four bytes each.
pub fn load(fields: &[KeyField], family: Family, rule: &mut Rule) {
    load_from(0, fields, family, rule);
}

/// Loads fields like [`load`], from the register of four bytes `word` on.
pub fn load_from(mut word: u32, fields: &[KeyField], family: Family, rule: &mut Rule) {
    for field in fields {
        field.load(family, rule, Register::word(word));
        word += field.length(family).div_ceil(4);
    }
}

/// Returns the [`SetSpec::key_type`](crate::SetSpec::key_type).
pub fn datatype(fields: &[KeyField], family: Family) -> u32 {
    fields.iter().fold(0, |types, field| types << TYPE_BITS | field.datatype(family))
}

/// Returns the bytes, padded to four per field.
pub fn length(fields: &[KeyField], family: Family) -> u32 {
    fields.iter().map(|field| field.length(family).next_multiple_of(4)).sum()
}

/// Returns the user data from which `nft` prints a set. Only [`KeyField::Random`] needs `typeof`.
pub fn set_user_data(key: &[KeyField], value: Option<&[KeyField]>, family: Family, comment: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let order = if key.len() > 1 { NO_BYTE_ORDER } else { BIG_ENDIAN };
    out.extend(number(KEY_BYTE_ORDER, order));
    if value.is_some() {
        out.extend(number(DATA_BYTE_ORDER, NO_BYTE_ORDER));
    }
    let by_typeof = key.iter().any(|field| matches!(field, KeyField::Random(_)));
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

/// Returns the user data of tables and chains.
pub fn comment_user_data(comment: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 0, &[comment.as_bytes(), &[0]].concat());
    out
}

/// Encodes fields for `typeof`; a concatenation numbers its fields.
fn typeof_key(fields: &[KeyField], family: Family) -> Vec<u8> {
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

/// Encodes a number like libnftnl, in host order.
fn number(kind: u8, value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, kind, &value.to_ne_bytes());
    out
}

/// Appends a `struct nftnl_udata`: type, length, value. Truncates the value; the kernel accepts 256 bytes in all.
fn put(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
    out.extend([kind, length]);
    out.extend(value.iter().take(usize::from(length)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: [KeyField; 4] =
        [KeyField::Destination, KeyField::Protocol, KeyField::DestinationPort, KeyField::Random(2)];
    const ENDPOINT: [KeyField; 2] = [KeyField::Destination, KeyField::DestinationPort];

    /// From little-endian nft 1.0.6 for `map endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod
    /// 2 : ip daddr . th dport; }`.
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
        assert_eq!(set_user_data(&[KeyField::Source], None, Family::Ipv4, "x"), [0, 4, 2, 0, 0, 0, 7, 2, b'x', 0]);
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
