//! Encodes rules, sets and elements like `nft`.

use nf_tables::field::{self, KeyField};
use nf_tables::{
    BaseChain, Bitwise, CmpOp, CtKey, FIB_DESTINATION, FIB_SOURCE, FibResult, Jhash, Lookup, MapData, MetaKey, Nat,
    NatKind, Register, Reject, SetFlags, SetSpec, SetUpdate, canonical,
};

use super::{RuleFingerprint, SetShape};
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::nftables::{
    AddressSide, BaseHook, Element, ElementKey, ElementKind, ElementValue, NftHook, NftVerdict, Rule, Set, SlotNumber,
    Statement,
};

const LOCAL: u32 = 2;
/// `NF_CT_STATE_BIT(IP_CT_NEW)`, `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`, `IPS_DST_NAT`
/// (`include/uapi/linux/netfilter/nf_conntrack_common.h`).
const NEW: u32 = 8;
const ESTABLISHED: u32 = 2;
const DESTINATION_TRANSLATED: u32 = 0x20;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`, `NF_NAT_RANGE_PROTO_SPECIFIED` (`include/uapi/linux/netfilter/nf_nat.h`).
const RANDOM_FULLY: u32 = 0x10;
const PORT_SPECIFIED: u32 = 0x2;
/// `IFNAMSIZ`, with the final zero.
const INTERFACE_NAME: usize = 16;

const ENDPOINT: [KeyField; 2] = [KeyField::Destination, KeyField::DestinationPort];

pub(super) fn rule(rule: &Rule, family: Family, out: &mut nf_tables::Rule) {
    out.clear();
    for one in &rule.statements {
        statement(one, family, out);
    }
    if !rule.comment.is_empty() {
        out.set_comment(rule.comment);
    }
}

pub(super) fn fingerprints(rules: &[Rule], family: Family) -> Vec<RuleFingerprint> {
    let mut encoded = nf_tables::Rule::new();
    let one = |one: &Rule| {
        rule(one, family, &mut encoded);
        fingerprint(family, encoded.expressions(), encoded.user_data())
    };
    rules.iter().map(one).collect()
}

pub(super) fn fingerprint(family: Family, expressions: &[u8], user_data: &[u8]) -> RuleFingerprint {
    let mut form = canonical(of_kernel(family), expressions);
    form.extend_from_slice(user_data);
    RuleFingerprint(form)
}

fn statement(statement: &Statement, family: Family, out: &mut nf_tables::Rule) {
    let r1 = Register::R1;
    match statement {
        Statement::Range { side, range, negated } => {
            address_in(*side, range, CmpOp::equal(!negated), family, out);
        }
        Statement::Interface { name, prefix, negated } => {
            let mut bytes = name.as_bytes().to_vec();
            if !prefix {
                bytes.resize(INTERFACE_NAME.max(bytes.len() + 1), 0);
            }
            out.meta(MetaKey::IIFNAME, r1).cmp(r1, CmpOp::equal(!negated), &bytes);
        }
        Statement::Local(side) => {
            let flag = if *side == AddressSide::Source { FIB_SOURCE } else { FIB_DESTINATION };
            out.fib(FibResult::AddressType, flag, r1).cmp(r1, CmpOp::Equal, &LOCAL.to_ne_bytes());
        }
        Statement::Protocol(protocol) => {
            out.meta(MetaKey::L4PROTO, r1).cmp(r1, CmpOp::Equal, &[protocol.number()]);
        }
        Statement::InSet { key, set, negated } => {
            field::load(key, of_kernel(family), out);
            out.lookup(r1, if *negated { Lookup::not_in(set) } else { Lookup::set(set) });
        }
        Statement::New => bits_of(out.ct(CtKey::STATE, r1), NEW),
        Statement::Established => bits_of(out.ct(CtKey::STATE, r1), ESTABLISHED),
        Statement::NotRelated => bits_of(out.ct(CtKey::STATE, r1), ESTABLISHED | NEW),
        Statement::MorePackets(packets) => {
            out.ct(CtKey::PACKETS, r1).to_network_order(r1, r1);
            out.cmp(r1, CmpOp::Greater, &packets.to_be_bytes());
        }
        Statement::Offload(flowtable) => {
            out.flow_add(flowtable);
        }
        Statement::Translated => bits_of(out.ct(CtKey::STATUS, r1), DESTINATION_TRANSLATED),
        Statement::Marked(mark) => {
            let mask = mark.to_ne_bytes();
            out.meta(MetaKey::MARK, r1).bitwise(r1, r1, Bitwise { mask: &mask, xor: &[0; 4] });
            out.cmp(r1, CmpOp::Equal, &mask);
        }
        Statement::OneIn(number) => {
            KeyField::Random(*number).load(of_kernel(family), out, r1);
            out.cmp(r1, CmpOp::Equal, &[0; 4]);
        }
        Statement::Mark(mark) => set_mark(!mark, *mark, out),
        Statement::Unmark(mark) => set_mark(u32::MAX, *mark, out),
        Statement::Remember { set, timeout } => {
            KeyField::Source.load(of_kernel(family), out, r1);
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            out.update_set(set, SetUpdate::Update, r1, milliseconds);
        }
        Statement::Map { key, map } => {
            field::load(key, of_kernel(family), out);
            out.lookup(r1, Lookup::map(map, Register::VERDICT));
        }
        Statement::TranslateBy { key, number, map } => {
            field::load(key, of_kernel(family), out);
            load_number(*number, field::length(key, of_kernel(family)) / 4, family, out);
            out.lookup(r1, Lookup::map(map, r1));
            let port = Register::word(KeyField::Destination.length(of_kernel(family)).div_ceil(4));
            out.nat(translation(family, port, 0));
        }
        Statement::Translate(to) => {
            address_to_register(to.ip(), out);
            out.immediate(&to.port().to_be_bytes(), Register::R2);
            out.nat(translation(family, Register::R2, PORT_SPECIFIED));
        }
        Statement::Masquerade => {
            out.masquerade(RANDOM_FULLY);
        }
        Statement::SourceNat(to) => {
            address_to_register(*to, out);
            let (kind, family) = (NatKind::Source, of_kernel(family));
            out.nat(Nat { kind, family, address: Some(r1), port: None, flags: RANDOM_FULLY });
        }
        Statement::Counter => {
            out.counter();
        }
        Statement::CountBy { key, map } => {
            field::load(key, of_kernel(family), out);
            out.counter_by(map, r1);
        }
        Statement::Reject => {
            // `ICMP_PORT_UNREACH`, `ICMPV6_PORT_UNREACH`.
            out.reject(Reject::Icmp(if family == Family::V4 { 3 } else { 4 }));
        }
        Statement::Reset => {
            out.reject(Reject::TcpReset);
        }
        Statement::Verdict(verdict) => {
            out.verdict(verdict_of(verdict));
        }
    }
}

/// Loads the number into the register of four bytes `word`, and uses those after it.
fn load_number(number: SlotNumber, word: u32, family: Family, out: &mut nf_tables::Rule) {
    let (to, of_kernel) = (Register::word(word), of_kernel(family));
    match number {
        SlotNumber::Random(modulus) => KeyField::Random(modulus).load(of_kernel, out, to),
        SlotNumber::Jhash { of, modulus, seed } => {
            field::load_from(word, of, of_kernel, out);
            out.jhash(Jhash { from: to, length: field::length(of, of_kernel), modulus, seed }, to);
        }
    }
}

/// Loads the address into `R1`.
fn address_to_register(address: std::net::IpAddr, out: &mut nf_tables::Rule) {
    match address {
        std::net::IpAddr::V4(address) => out.immediate(&address.octets(), Register::R1),
        std::net::IpAddr::V6(address) => out.immediate(&address.octets(), Register::R1),
    };
}

fn address_in(side: AddressSide, range: &ipnet::IpNet, compare: CmpOp, family: Family, out: &mut nf_tables::Rule) {
    let r1 = Register::R1;
    let header = nf_tables::PayloadBase::Network;
    let (offset, bytes): (u32, Vec<u8>) = match (side, range.network()) {
        (AddressSide::Source, std::net::IpAddr::V4(address)) => (12, address.octets().into()),
        (AddressSide::Destination, std::net::IpAddr::V4(address)) => (16, address.octets().into()),
        (AddressSide::Source, std::net::IpAddr::V6(address)) => (8, address.octets().into()),
        (AddressSide::Destination, std::net::IpAddr::V6(address)) => (24, address.octets().into()),
    };
    let (length, prefix) = (u32::from(family.address_bits()) / 8, u32::from(range.prefix_len()));
    if prefix > 0 && prefix % 8 == 0 {
        let used = bytes.get(..usize::try_from(prefix / 8).unwrap_or_default()).unwrap_or_default();
        out.payload(header, offset, prefix / 8, r1).cmp(r1, compare, used);
        return;
    }
    let mask: Vec<u8> = match range.netmask() {
        std::net::IpAddr::V4(mask) => mask.octets().into(),
        std::net::IpAddr::V6(mask) => mask.octets().into(),
    };
    let xor = vec![0; mask.len()];
    out.payload(header, offset, length, r1)
        .bitwise(r1, r1, Bitwise { mask: &mask, xor: &xor })
        .cmp(r1, compare, &bytes);
}

/// Matches if any of these bits is set in `R1`.
fn bits_of(out: &mut nf_tables::Rule, bits: u32) {
    let (r1, mask) = (Register::R1, bits.to_ne_bytes());
    out.bitwise(r1, r1, Bitwise { mask: &mask, xor: &[0; 4] }).cmp(r1, CmpOp::NotEqual, &[0; 4]);
}

fn set_mark(mask: u32, xor: u32, out: &mut nf_tables::Rule) {
    let r1 = Register::R1;
    let (mask, xor) = (mask.to_ne_bytes(), xor.to_ne_bytes());
    out.meta(MetaKey::MARK, r1).bitwise(r1, r1, Bitwise { mask: &mask, xor: &xor }).set_meta(MetaKey::MARK, r1);
}

fn translation(family: Family, port: Register, flags: u32) -> Nat {
    Nat { kind: NatKind::Destination, family: of_kernel(family), address: Some(Register::R1), port: Some(port), flags }
}

pub(super) fn verdict_of(verdict: &NftVerdict) -> nf_tables::NfVerdict<'_> {
    match verdict {
        NftVerdict::Drop => nf_tables::NfVerdict::Drop,
        NftVerdict::Return => nf_tables::NfVerdict::Return,
        NftVerdict::Jump(chain) => nf_tables::NfVerdict::Jump(chain),
        NftVerdict::Goto(chain) => nf_tables::NfVerdict::Goto(chain),
    }
}

pub(super) fn base(base: &BaseHook) -> BaseChain<'static> {
    BaseChain {
        kind: if base.is_nat { "nat" } else { "filter" },
        hook: match base.hook {
            NftHook::Prerouting => nf_tables::NfHook::Prerouting,
            NftHook::Input => nf_tables::NfHook::Input,
            NftHook::Forward => nf_tables::NfHook::Forward,
            NftHook::Output => nf_tables::NfHook::Output,
            NftHook::Postrouting => nf_tables::NfHook::Postrouting,
        },
        priority: base.priority,
        policy: Some(nf_tables::ChainPolicy::Accept),
    }
}

/// Decodes a base chain: the inverse of [`base`].
pub(super) fn saved_base(base: &nf_tables::BaseChainInfo<'_>) -> Option<BaseHook> {
    let hook = match base.hook? {
        nf_tables::NfHook::Prerouting => NftHook::Prerouting,
        nf_tables::NfHook::Input => NftHook::Input,
        nf_tables::NfHook::Forward => NftHook::Forward,
        nf_tables::NfHook::Output => NftHook::Output,
        nf_tables::NfHook::Postrouting => NftHook::Postrouting,
    };
    let is_nat = match base.kind {
        "nat" => true,
        "filter" => false,
        _ => return None,
    };
    (base.policy == nf_tables::ChainPolicy::Accept).then_some(BaseHook { is_nat, hook, priority: base.priority })
}

pub(super) fn set<'a>(name: &'a str, set: &Set, family: Family, fields: &'a [u32], user_data: &'a [u8]) -> SetSpec<'a> {
    let of = of_kernel(family);
    let mut flags = SetFlags::default();
    if set.ranges {
        flags = flags | SetFlags::INTERVAL;
    }
    if set.expires {
        flags = flags | SetFlags::DYNAMIC | SetFlags::TIMEOUT;
    }
    SetSpec {
        name,
        flags,
        key_type: field::datatype(&set.key, of),
        key_length: field::length(&set.key, of),
        fields,
        data: match set.holds {
            ElementKind::Keys => None,
            ElementKind::Verdicts => Some(MapData::Verdict),
            ElementKind::Counters => Some(MapData::Counter),
            ElementKind::Endpoints => {
                Some(MapData::Value { kind: field::datatype(&ENDPOINT, of), length: field::length(&ENDPOINT, of) })
            }
        },
        timeout: None,
        size: set.size,
        user_data,
    }
}

/// Returns a concatenation's field lengths, for sets of ranges.
pub(super) fn fields(set: &Set, family: Family) -> Vec<u32> {
    if !set.ranges || set.key.len() < 2 {
        return Vec::new();
    }
    set.key.iter().map(|field| field.length(of_kernel(family))).collect()
}

pub(super) fn user_data(set: &Set, family: Family) -> Vec<u8> {
    let value = (set.holds == ElementKind::Endpoints).then_some(&ENDPOINT[..]);
    field::set_user_data(&set.key, value, of_kernel(family), set.comment)
}

pub(super) fn shape(set_: &Set, family: Family) -> SetShape {
    let (fields, user_data) = (fields(set_, family), user_data(set_, family));
    let spec = set("", set_, family, &fields, &user_data);
    let follows = [
        (spec.data.is_some_and(|data| data != MapData::Counter), SetFlags::MAP),
        (spec.data == Some(MapData::Counter), SetFlags::OBJECT),
        (!spec.fields.is_empty(), SetFlags::CONCAT),
    ];
    let flags = follows.into_iter().filter(|(yes, _)| *yes).fold(spec.flags, |flags, (_, flag)| flags | flag);
    SetShape {
        key_type: spec.key_type,
        key_length: spec.key_length,
        flags: flags.0,
        value_length: value_length(spec.data),
        user_data: user_data.clone(),
    }
}

pub(super) fn saved_shape(set: &nf_tables::SetInfo<'_>) -> SetShape {
    SetShape {
        key_type: set.key_type,
        key_length: set.key_length,
        flags: set.flags.0,
        value_length: value_length(set.data),
        user_data: set.user_data.to_vec(),
    }
}

fn value_length(data: Option<MapData>) -> Option<u32> {
    match data {
        None => None,
        Some(MapData::Verdict | MapData::Counter) => Some(0),
        Some(MapData::Value { length, .. }) => Some(length),
    }
}

/// Whether the element is a range whose key is only an address.
pub(super) fn is_plain_range(element: &Element, family: Family) -> bool {
    matches!(element.value, ElementValue::To(_)) && element.key.bytes().len() * 8 == usize::from(family.address_bits())
}

/// Returns the first key after each plain range.
pub(super) fn behind(elements: &[&Element], family: Family) -> Vec<Option<ElementKey>> {
    let ranges = elements.iter().take_while(|element| is_plain_range(element, family));
    let behind =
        ranges.map(|element| if let ElementValue::To(last) = &element.value { last.following() } else { None });
    behind.collect()
}

/// Adds the end elements: the kernel stores the key [`behind`] a plain range as an element.
pub(super) fn with_ends<'a>(
    elements: &'a [&'a Element],
    behind: &'a [Option<ElementKey>],
    one: impl Fn(&'a Element) -> nf_tables::Element<'a>,
) -> impl Iterator<Item = nf_tables::Element<'a>> {
    elements.iter().enumerate().flat_map(move |(at, element)| {
        let end = behind.get(at).and_then(Option::as_ref);
        let end = end.map(|key| nf_tables::Element { interval_end: true, ..nf_tables::Element::new(key.bytes()) });
        std::iter::once(one(element)).chain(end)
    })
}

pub(super) fn element(element: &Element, family: Family) -> nf_tables::Element<'_> {
    let key = element.key.bytes();
    match &element.value {
        ElementValue::None => nf_tables::Element::new(key),
        ElementValue::To(_) if is_plain_range(element, family) => nf_tables::Element::new(key),
        ElementValue::To(last) => nf_tables::Element { key_end: Some(last.bytes()), ..nf_tables::Element::new(key) },
        ElementValue::Endpoint(endpoint) => {
            nf_tables::Element::to(key, nf_tables::ElementValue::Data(endpoint.bytes()))
        }
        ElementValue::Counter(name) => nf_tables::Element::to(key, nf_tables::ElementValue::Counter(name)),
        ElementValue::Verdict(verdict) => {
            nf_tables::Element::to(key, nf_tables::ElementValue::Verdict(verdict_of(verdict)))
        }
    }
}

pub(super) fn deleted(element: &Element, family: Family) -> nf_tables::Element<'_> {
    let key = nf_tables::Element::new(element.key.bytes());
    match &element.value {
        ElementValue::To(last) if !is_plain_range(element, family) => {
            nf_tables::Element { key_end: Some(last.bytes()), ..key }
        }
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::nftables::flowtable;
    use crate::model::Protocol;

    /// From `nft` 1.0.6 (strace(1)) for `meta l4proto tcp ct state established ct status dnat ct packets > 20 flow add
    /// @services`, with the flowtable `f`.
    const BY_NFT: &str = "\
        24000180090001006d6574610000000014000280080002000000001008000100000000012c00018008000100636d7000200002800800010000000001\
        08000200000000000c00038005000100060000002000018007000100637400001400028008000200000000000800010000000001440001800c000100\
        6269747769736500340002800800010000000001080002000000000108000300000000040c00048008000100020000000c0005800800010000000000\
        2c00018008000100636d700020000280080001000000000108000200000000010c000380080001000000000020000180070001006374000014000280\
        08000200000000020800010000000001440001800c000100626974776973650034000280080001000000000108000200000000010800030000000004\
        0c00048008000100200000000c00058008000100000000002c00018008000100636d700020000280080001000000000108000200000000010c000380\
        080001000000000020000180070001006374000014000280080002000000000e0800010000000001400001800e000100627974656f72646572000000\
        2c000280080001000000000108000200000000010800030000000001080004000000000808000500000000083000018008000100636d700024000280\
        08000100000000010800020000000004100003800c00010000000000000000142400018011000100666c6f775f6f66666c6f6164000000000c000280\
        0600010066000000";

    #[test]
    fn the_rule_that_offloads_is_that_of_nft() {
        let by_nft: Vec<u8> =
            (0..BY_NFT.len()).step_by(2).map(|at| u8::from_str_radix(&BY_NFT[at..at + 2], 16).unwrap()).collect();
        let mut rule = flowtable::rule(Protocol::Tcp);
        rule.comment = "";
        rule.statements.pop();
        rule.statements.push(Statement::Offload("f"));
        let mut encoded = nf_tables::Rule::new();
        super::rule(&rule, Family::V4, &mut encoded);
        assert_eq!(
            canonical(nf_tables::Family::Ipv4, encoded.expressions()),
            canonical(nf_tables::Family::Ipv4, &by_nft)
        );
        assert_eq!(encoded.len(), 12);
    }
}
