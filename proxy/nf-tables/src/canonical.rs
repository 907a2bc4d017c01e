//! The canonical form: equal bytes for equivalent rules, sent or read.
//!
//! The kernel reorders attributes, omits flags, adds defaults, and counts. The canonical form sorts attributes by type
//! and the leading comparisons, and omits flags, padding, counter values and defaults.

use crate::comparisons::LeadingComparisons;
use crate::family::Family;
use crate::inspect::{Expression, expressions};
use crate::netlink::{Attribute, Attributes};

const TYPES: usize = 32;

/// Defaults to omit: expression, type, value.
const DEFAULTS: &[(&str, u16, &[u8])] = &[
    // `NFTA_BITWISE_OP`: `NFT_BITWISE_MASK_XOR`.
    ("bitwise", 6, &[0; 4]),
    // `NFTA_LOOKUP_FLAGS`.
    ("lookup", 5, &[0; 4]),
    // `NFTA_NG_OFFSET`.
    ("numgen", 4, &[0; 4]),
    // `NFTA_DYNSET_TIMEOUT` (0: the timeout of the set), `NFTA_DYNSET_FLAGS`.
    ("dynset", 6, &[0; 8]),
    ("dynset", 9, &[0; 4]),
    // `NFTA_REJECT_ICMP_CODE` of a TCP reset.
    ("reject", 2, &[0]),
];

/// Attributes to omit: expression, type.
const IGNORED: &[(&str, u16)] = &[
    // `NFTA_COUNTER_BYTES`, `NFTA_COUNTER_PACKETS`, `NFTA_COUNTER_PAD`.
    ("counter", 1),
    ("counter", 2),
    ("counter", 3),
    // `NFTA_LOOKUP_SET_ID`, `NFTA_OBJREF_SET_ID`, `NFTA_DYNSET_SET_ID`, `NFTA_DYNSET_PAD`.
    ("lookup", 4),
    ("objref", 5),
    ("dynset", 2),
    ("dynset", 8),
];

/// Copies that the kernel adds: expression, type, type of the original.
const COPIES: &[(&str, u16, u16)] = &[
    // `NFTA_NAT_REG_ADDR_MAX`, `NFTA_NAT_REG_PROTO_MAX`, `NFTA_MASQ_REG_PROTO_MAX`, `NFTA_REDIR_REG_PROTO_MAX`.
    ("nat", 4, 3),
    ("nat", 6, 5),
    ("masq", 3, 2),
    ("redir", 2, 1),
];

/// Flags that the kernel may add: `NFTA_NAT_FLAGS`, `NFTA_MASQ_FLAGS`, `NFTA_REDIR_FLAGS`.
const RANGE_FLAGS: &[(&str, u16)] = &[("nat", 7), ("masq", 1), ("redir", 3)];
/// `NF_NAT_RANGE_MAP_IPS`, `NF_NAT_RANGE_PROTO_SPECIFIED` (`include/uapi/linux/netfilter/nf_nat.h`).
const IMPLIED: u32 = 0b11;

/// Attributes that contain `enum nft_data_attributes`: expression, type.
const DATA: &[(&str, u16)] =
    &[("cmp", 3), ("bitwise", 4), ("bitwise", 5), ("bitwise", 7), ("immediate", 2), ("range", 3), ("range", 4)];

/// Appends the canonical form of `NFTA_RULE_EXPRESSIONS` to `out`.
pub fn canonical_into(family: Family, rule: &[u8], out: &mut Vec<u8>) {
    let mut comparisons = LeadingComparisons::from(out.len());
    for expression in expressions(rule) {
        put(family, &expression, out);
        comparisons.push(&expression, out.len());
    }
    comparisons.sort(out);
}

fn put(family: Family, expression: &Expression<'_>, out: &mut Vec<u8>) {
    if family == Family::Ipv4
        && let Some(register) = ip_protocol(expression)
    {
        return meta_l4proto(register, out);
    }
    let name = expression.name;
    out.extend_from_slice(name.as_bytes());
    out.push(0);
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
                write(kind, &flags.to_be_bytes(), ValueShape::Plain, out)
            };
        }
        let shape = if DATA.contains(&(name, kind)) { ValueShape::Data } else { ValueShape::Plain };
        write(kind, value, shape, out);
    });
    close(out, end);
}

/// Returns the canonical form, as [`canonical_into`].
pub fn canonical(family: Family, rule: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rule.len());
    canonical_into(family, rule, &mut out);
    out
}

/// Returns the register with the IPv4 header's protocol, which iptables-nft loads for `-p tcp` since 1.8.10. In IPv4
/// tables the load equals earlier versions' `meta l4proto`.
fn ip_protocol<'a>(expression: &Expression<'a>) -> Option<&'a [u8]> {
    /// `NFTA_PAYLOAD_DREG`, `NFTA_PAYLOAD_BASE`, `NFTA_PAYLOAD_OFFSET`, `NFTA_PAYLOAD_LEN`.
    const DREG: u16 = 1;
    let load = [(2, NFT_PAYLOAD_NETWORK_HEADER), (3, PROTOCOL_OFFSET), (4, 1)];
    let is_load = load.into_iter().all(|(kind, value)| expression.attributes.be32(kind) == Some(value));
    (expression.name == "payload" && is_load).then(|| expression.attributes.get(DREG)).flatten()
}

/// `enum nft_payload_bases`; the offset of `protocol` in `struct iphdr`.
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const PROTOCOL_OFFSET: u32 = 9;

fn meta_l4proto(register: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"meta\0");
    let end = open(out);
    write(1, register, ValueShape::Plain, out);
    write(2, &16u32.to_be_bytes(), ValueShape::Plain, out);
    close(out, end);
}

#[derive(Clone, Copy, PartialEq)]
enum ValueShape {
    /// Bytes, after their length.
    Plain,
    /// `enum nft_data_attributes`: bytes, or a verdict.
    Data,
    /// `enum nft_verdict_attributes`: a code, and a chain's name.
    Verdict,
}

fn write(kind: u16, value: &[u8], shape: ValueShape, out: &mut Vec<u8>) {
    /// `NFTA_DATA_VERDICT`.
    const DATA_VERDICT: u16 = 2;
    out.extend_from_slice(&kind.to_ne_bytes());
    let end = open(out);
    if shape == ValueShape::Plain {
        out.extend_from_slice(value);
    } else {
        sorted(Attributes::new(value), |_, Attribute { kind, value }| {
            let verdict = shape == ValueShape::Data && kind == DATA_VERDICT;
            write(kind, value, if verdict { ValueShape::Verdict } else { ValueShape::Plain }, out);
        });
    }
    close(out, end);
}

/// Calls `each` in the order of types. Of attributes with one type the kernel uses the last.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::AttributeWriter;
    use crate::rule::{CmpOp, Lookup, Numgen, Register, Rule};
    use crate::verdict::NfVerdict;
    use proptest::prelude::*;

    /// Returns an expression as the kernel may report it.
    fn dumped(name: &str, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut data = AttributeWriter::default();
        attributes.iter().for_each(|(kind, value)| data.put(*kind, value));
        let mut rule = Rule::new();
        rule.raw(name, &data.bytes);
        rule.expressions().to_vec()
    }

    #[test]
    fn the_order_of_attributes_and_defaults_do_not_matter() {
        let (one, two, zero) = (1u32.to_be_bytes(), 2u32.to_be_bytes(), [0; 4]);
        let cases = [
            (dumped("meta", &[(1, &one), (2, &two)]), dumped("meta", &[(2, &two), (1, &one)])),
            (dumped("meta", &[(1, &one)]), dumped("meta", &[(1 | 1 << 14, &one)])),
            (dumped("meta", &[(1, &one)]), dumped("meta", &[(1, &two), (1, &one)])),
            (dumped("lookup", &[(2, &one)]), dumped("lookup", &[(2, &one), (4, &two), (5, &zero)])),
            (dumped("nat", &[(3, &one)]), dumped("nat", &[(3, &one), (4, &one), (7, &one)])),
            (
                dumped("counter", &[(1, &[0; 8]), (2, &[0; 8])]),
                dumped("counter", &[(1, &[9; 8]), (3, &[]), (2, &[8; 8])]),
            ),
        ];
        for (sent, dumped) in cases {
            assert_eq!(canonical(Family::Ipv6, &sent), canonical(Family::Ipv6, &dumped));
        }
        let load = |offset: u32| dumped("payload", &[(1, &one), (2, &one), (3, &offset.to_be_bytes()), (4, &one)]);
        let protocol = dumped("meta", &[(1, &one), (2, &16u32.to_be_bytes())]);
        assert_eq!(canonical(Family::Ipv4, &load(9)), canonical(Family::Ipv4, &protocol));
        assert_ne!(canonical(Family::Ipv4, &load(8)), canonical(Family::Ipv4, &protocol));
        assert_ne!(canonical(Family::Ipv6, &load(9)), canonical(Family::Ipv6, &protocol), "a byte of the source");
        let differ = [
            (dumped("meta", &[(1, &one), (2, &two)]), dumped("meta", &[(1, &two), (2, &one)])),
            (dumped("meta", &[(1, &one)]), dumped("rt", &[(1, &one)])),
            (dumped("lookup", &[(2, &one)]), dumped("lookup", &[(2, &one), (5, &one)])),
            (dumped("nat", &[(3, &one)]), dumped("nat", &[(3, &one), (4, &two)])),
            (dumped("nat", &[(3, &one), (7, &one)]), dumped("nat", &[(3, &one), (7, &17u32.to_be_bytes())])),
            (dumped("unknown", &[(40, &one)]), dumped("unknown", &[(40, &two)])),
        ];
        for (a, b) in differ {
            assert_ne!(canonical(Family::Ipv6, &a), canonical(Family::Ipv6, &b));
        }
    }

    fn drawn() -> impl Strategy<Value = Vec<(u8, u32)>> {
        prop::collection::vec((0..7u8, 0..3u32), 0..4)
    }

    fn rule(drawn: &[(u8, u32)]) -> Rule {
        let mut rule = Rule::new();
        for (form, number) in drawn {
            let bytes = number.to_be_bytes();
            match form {
                0 => rule.cmp(Register::R1, CmpOp::Equal, &bytes),
                1 => rule.cmp(Register::R1, CmpOp::NotEqual, &bytes[1..]),
                2 => rule.numgen(Numgen::Random, 3, *number, Register::R1),
                3 => rule.verdict(NfVerdict::Jump(["a", "b", "ab"][*number as usize])),
                4 => rule.verdict([NfVerdict::Accept, NfVerdict::Drop, NfVerdict::Goto("a")][*number as usize]),
                5 => rule.lookup(Register::R1, Lookup::set(["a", "b", "ab"][*number as usize])),
                _ => rule.immediate(&bytes, Register::R2),
            };
        }
        rule
    }

    proptest! {
        #[test]
        fn rules_are_equal_exactly_if_their_canonical_bytes_are((a, b) in (drawn(), drawn())) {
            let same = canonical(Family::Ipv6, rule(&a).expressions()) == canonical(Family::Ipv6, rule(&b).expressions());
            prop_assert_eq!(same, a == b);
            prop_assert_eq!(canonical(Family::Ipv6, rule(&a).expressions()), canonical(Family::Ipv6, rule(&a).expressions()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            canonical(Family::Ipv6, &bytes);
        }

        /// Only the expression's attributes are random.
        #[test]
        fn no_expression_makes_it_panic(
            name in prop::sample::select(vec!["cmp", "nat", "immediate", "bitwise", "counter", "lookup", "x"]),
            bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(4), Just(8), Just(2), any::<u8>()], 0..60),
        ) {
            let mut rule = Rule::new();
            rule.raw(name, &bytes);
            canonical(Family::Ipv6, rule.expressions());
            let _ = (crate::verdict(rule.expressions()), crate::counter(rule.expressions()));
        }
    }
}
