//! Rules as bytes that compare: what was sent against what the kernel tells of it.
//!
//! The kernel puts attributes in an order of its own, leaves flags out, adds what has a default, and counts. The canonical
//! form has the attributes of an expression by type, without flags and padding, without counters' values, and without what
//! equals the kernel's default.

use crate::attributes::{Attribute, Attributes};
use crate::inspect::expressions;

/// Types of attributes up to here are sorted; no expression has higher ones.
const TYPES: usize = 32;

/// Attributes that are left out where they have this value: expression, type, value.
const DEFAULTS: &[(&str, u16, &[u8])] = &[
    // `NFTA_BITWISE_OP`: `NFT_BITWISE_MASK_XOR`.
    ("bitwise", 6, &[0; 4]),
    // `NFTA_LOOKUP_FLAGS`.
    ("lookup", 5, &[0; 4]),
    // `NFTA_NG_OFFSET`.
    ("numgen", 4, &[0; 4]),
    // `NFTA_DYNSET_TIMEOUT` (the set's own), `NFTA_DYNSET_FLAGS`.
    ("dynset", 6, &[0; 8]),
    ("dynset", 9, &[0; 4]),
    // `NFTA_REJECT_ICMP_CODE`, which a TCP reset does not have.
    ("reject", 2, &[0]),
];

/// Attributes whose value says nothing of what a rule does: expression, type.
const IGNORED: &[(&str, u16)] = &[
    // `NFTA_COUNTER_BYTES`, `NFTA_COUNTER_PACKETS`, `NFTA_COUNTER_PAD`.
    ("counter", 1),
    ("counter", 2),
    ("counter", 3),
    // `NFTA_LOOKUP_SET_ID`, `NFTA_DYNSET_SET_ID`, `NFTA_DYNSET_PAD`: numbers within a batch, and padding.
    ("lookup", 4),
    ("dynset", 2),
    ("dynset", 8),
];

/// Attributes that the kernel reports as a copy of another, where that was all that was sent: expression, type, the other.
const COPIES: &[(&str, u16, u16)] = &[
    // `NFTA_NAT_REG_ADDR_MAX`, `NFTA_NAT_REG_PROTO_MAX`, `NFTA_MASQ_REG_PROTO_MAX`, `NFTA_REDIR_REG_PROTO_MAX`.
    ("nat", 4, 3),
    ("nat", 6, 5),
    ("masq", 3, 2),
    ("redir", 2, 1),
];

/// Attributes of flags of which some follow from what else is there: `NFTA_NAT_FLAGS`, `NFTA_MASQ_FLAGS`, `NFTA_REDIR_FLAGS`.
const RANGE_FLAGS: &[(&str, u16)] = &[("nat", 7), ("masq", 1), ("redir", 3)];
/// `NF_NAT_RANGE_MAP_IPS` and `NF_NAT_RANGE_PROTO_SPECIFIED`, which the kernel sets where there is an address, and a port
/// (`include/uapi/linux/netfilter/nf_nat.h`).
const IMPLIED: u32 = 0b11;

/// Attributes that hold attributes: expression, type.
const NESTED: &[(&str, u16)] =
    &[("cmp", 3), ("bitwise", 4), ("bitwise", 5), ("bitwise", 7), ("immediate", 2), ("range", 3), ("range", 4)];

/// The canonical form of a rule's expressions (`NFTA_RULE_EXPRESSIONS`), appended to `out`: two rules that do the same have
/// the same bytes, and rules that differ have not.
pub fn canonical_into(rule: &[u8], out: &mut Vec<u8>) {
    for expression in expressions(rule) {
        out.extend_from_slice(expression.name.as_bytes());
        out.push(0);
        let name = expression.name;
        let end = open(out);
        sorted(expression.attributes, |all, attribute| {
            let Attribute { kind, value } = attribute;
            let copy = |(of, copy, original): &(&str, u16, u16)| {
                (*of, *copy) == (name, kind) && all.get(usize::from(*original)).copied().flatten() == Some(value)
            };
            if IGNORED.contains(&(name, kind)) || DEFAULTS.contains(&(name, kind, value)) || COPIES.iter().any(copy) {
                return;
            }
            if let (true, Ok(flags)) = (RANGE_FLAGS.contains(&(name, kind)), value.try_into()) {
                let flags = u32::from_be_bytes(flags) & !IMPLIED;
                return if flags != 0 {
                    write(kind, &flags.to_be_bytes(), false, out)
                };
            }
            write(kind, value, NESTED.contains(&(name, kind)), out);
        });
        close(out, end);
    }
}

/// As [`canonical_into`], in a buffer of its own.
pub fn canonical(rule: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rule.len());
    canonical_into(rule, &mut out);
    out
}

/// Everything that is nested here is nested in all: data, and verdicts in data (`NFTA_DATA_VERDICT`).
fn write(kind: u16, value: &[u8], nested: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&kind.to_ne_bytes());
    let end = open(out);
    if nested {
        sorted(Attributes::new(value), |_, attribute| {
            const DATA_VERDICT: u16 = 2;
            write(attribute.kind, attribute.value, attribute.kind == DATA_VERDICT && value.len() > 8, out);
        });
    } else {
        out.extend_from_slice(value);
    }
    close(out, end);
}

/// Attributes by type; of several of a type the last, as the kernel takes it. The ones of unknown types come last.
fn sorted<'a>(attributes: Attributes<'a>, mut each: impl FnMut(&[Option<&'a [u8]>; TYPES], Attribute<'a>)) {
    let mut all = [None; TYPES];
    for attribute in attributes {
        if let Some(slot) = all.get_mut(usize::from(attribute.kind)) {
            *slot = Some(attribute.value);
        }
    }
    for (kind, value) in (0u16..).zip(&all) {
        if let Some(value) = *value {
            each(&all, Attribute { kind, value });
        }
    }
    attributes.filter(|attribute| usize::from(attribute.kind) >= TYPES).for_each(|attribute| each(&all, attribute));
}

/// Room for a length.
fn open(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len()
}

fn close(out: &mut [u8], begin: usize) {
    let length = u32::try_from(out.len() - begin).unwrap_or(u32::MAX);
    if let Some(room) = out.get_mut(begin - 4..begin) {
        room.copy_from_slice(&length.to_ne_bytes());
    }
}
