use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use ipnet::IpNet;
use nf_tables::field::KeyField;

use super::element::address;
use super::{
    AddressSide, BaseHook, Chain, Element, ElementKey, ElementKind, ElementValue, Name, NftHook, NftVerdict, Rule, Set,
    SlotNumber, Statement,
};
use crate::model::{Family, Protocol};

#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    pub name: &'a str,
    pub comment: &'a str,
    pub family: Family,
    pub counters: &'a [Name],
    pub sets: &'a [(Name, Set)],
    pub flowtable: Option<(&'a str, &'a [String])>,
    pub chains: &'a [(Name, Chain)],
    pub elements: &'a [Element],
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {} {{\n\tcomment \"{}\"", ip(self.family), self.name, self.comment)?;
        for name in self.counters {
            writeln!(f, "\n\tcounter {name} {{\n\t\tpackets 0 bytes 0\n\t}}")?;
        }
        let mut elements: BTreeMap<&str, Vec<&Element>> = BTreeMap::new();
        for element in self.elements {
            elements.entry(element.set).or_default().push(element);
        }
        for (name, set) in self.sets {
            let mut own = elements.remove(&**name).unwrap_or_default();
            own.sort_unstable();
            self.set(f, name, set, &own)?;
        }
        if let Some((name, links)) = self.flowtable {
            writeln!(f, "\n\tflowtable {name} {{\n\t\thook ingress priority filter")?;
            if !links.is_empty() {
                writeln!(f, "\t\tdevices = {{ {} }}", links.join(", "))?;
            }
            writeln!(f, "\t}}")?;
        }
        for (name, chain) in self.chains {
            self.chain(f, name, chain)?;
        }
        writeln!(f, "}}")
    }
}

impl Table<'_> {
    fn set(&self, f: &mut fmt::Formatter<'_>, name: &str, set: &Set, elements: &[&Element]) -> fmt::Result {
        let kind = if set.holds == ElementKind::Keys { "set" } else { "map" };
        writeln!(f, "\n\t{kind} {name} {{")?;
        writeln!(f, "\t\t{}", type_of(set, self.family))?;
        if let Some(size) = set.size {
            writeln!(f, "\t\tsize {size}")?;
        }
        if set.ranges {
            writeln!(f, "\t\tflags interval")?;
        }
        if set.expires {
            writeln!(f, "\t\tflags dynamic,timeout")?;
        }
        if !set.comment.is_empty() {
            writeln!(f, "\t\tcomment \"{}\"", set.comment)?;
        }
        if let Some((last, others)) = elements.split_last() {
            let mut lead = "\t\telements = { ";
            for element in others {
                writeln!(f, "{lead}{},", element_text(element, set, self.family))?;
                lead = "\t\t\t     ";
            }
            writeln!(f, "{lead}{} }}", element_text(last, set, self.family))?;
        }
        writeln!(f, "\t}}")
    }

    fn chain(&self, f: &mut fmt::Formatter<'_>, name: &str, chain: &Chain) -> fmt::Result {
        writeln!(f, "\n\tchain {name} {{")?;
        if !chain.comment.is_empty() {
            writeln!(f, "\t\tcomment \"{}\"", chain.comment)?;
        }
        if let Some(base) = &chain.base {
            writeln!(f, "\t\t{}", base_text(base))?;
        }
        for rule in &chain.rules {
            writeln!(f, "\t\t{}", rule_text(rule, self.family))?;
        }
        writeln!(f, "\t}}")
    }
}

fn ip(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

fn base_text(base: &BaseHook) -> String {
    let kind = if base.is_nat { "nat" } else { "filter" };
    let hook = match base.hook {
        NftHook::Prerouting => "prerouting",
        NftHook::Input => "input",
        NftHook::Forward => "forward",
        NftHook::Output => "output",
        NftHook::Postrouting => "postrouting",
    };
    format!("type {kind} hook {hook} priority {}; policy accept;", base.priority)
}

/// Returns the key's `type`, or `typeof` if needed.
fn type_of(set: &Set, family: Family) -> String {
    let drawn = set.key.iter().any(|field| matches!(field, KeyField::Random(_)));
    let (word, name): (_, fn(KeyField, Family) -> String) =
        if drawn { ("typeof", field_text) } else { ("type", type_text) };
    let joined = |fields: &[KeyField]| fields.iter().map(|field| name(*field, family)).collect::<Vec<_>>().join(" . ");
    let value = match set.holds {
        ElementKind::Keys => String::new(),
        ElementKind::Verdicts => " : verdict".to_owned(),
        ElementKind::Counters => " : counter".to_owned(),
        ElementKind::Endpoints => format!(" : {}", joined(&[KeyField::Destination, KeyField::DestinationPort])),
    };
    format!("{word} {}{value}", joined(&set.key))
}

fn type_text(field: KeyField, family: Family) -> String {
    match (field, family) {
        (
            KeyField::Source | KeyField::Destination | KeyField::OriginalDestination | KeyField::ReplySource,
            Family::V4,
        ) => "ipv4_addr",
        (
            KeyField::Source | KeyField::Destination | KeyField::OriginalDestination | KeyField::ReplySource,
            Family::V6,
        ) => "ipv6_addr",
        (KeyField::Protocol, _) => "inet_proto",
        (
            KeyField::SourcePort
            | KeyField::DestinationPort
            | KeyField::OriginalDestinationPort
            | KeyField::ReplySourcePort,
            _,
        ) => "inet_service",
        (KeyField::Direction, _) => "ct_dir",
        (KeyField::Random(_), _) => "integer",
    }
    .to_owned()
}

fn field_text(field: KeyField, family: Family) -> String {
    match field {
        KeyField::Source => format!("{} saddr", ip(family)),
        KeyField::Destination => format!("{} daddr", ip(family)),
        KeyField::Protocol => "meta l4proto".to_owned(),
        KeyField::SourcePort => "th sport".to_owned(),
        KeyField::DestinationPort => "th dport".to_owned(),
        KeyField::OriginalDestination => format!("ct original {} daddr", ip(family)),
        KeyField::OriginalDestinationPort => "ct original proto-dst".to_owned(),
        KeyField::Direction => "ct direction".to_owned(),
        KeyField::ReplySource => format!("ct reply {} saddr", ip(family)),
        KeyField::ReplySourcePort => "ct reply proto-src".to_owned(),
        KeyField::Random(modulus) => format!("numgen random mod {modulus}"),
    }
}

fn fields_text(fields: &[KeyField], family: Family) -> String {
    fields.iter().map(|field| field_text(*field, family)).collect::<Vec<_>>().join(" . ")
}

pub fn element_text(element: &Element, set: &Set, family: Family) -> String {
    let mut text = match &element.value {
        ElementValue::To(to) => range_text(&element.key, to, &set.key, family),
        _ => key_text(&element.key, &set.key, family),
    };
    match &element.value {
        ElementValue::None | ElementValue::To(_) => {}
        ElementValue::Verdict(verdict) => {
            let _ = write!(text, " : {}", verdict_text(verdict));
        }
        ElementValue::Counter(name) => {
            let _ = write!(text, " : \"{name}\"");
        }
        ElementValue::Endpoint(endpoint) => {
            let _ =
                write!(text, " : {}", key_text(endpoint, &[KeyField::Destination, KeyField::DestinationPort], family));
        }
    }
    text
}

fn parts<'a>(
    key: &'a ElementKey,
    fields: &'a [KeyField],
    family: Family,
) -> impl Iterator<Item = (KeyField, &'a [u8])> {
    let mut rest = key.bytes();
    fields.iter().map(move |field| {
        let length = usize::try_from(field.length(of_kernel(family))).unwrap_or_default();
        let (part, after) = rest.split_at_checked(length.next_multiple_of(4)).unwrap_or_default();
        rest = after;
        (*field, part.get(..length).unwrap_or_default())
    })
}

fn key_text(key: &ElementKey, fields: &[KeyField], family: Family) -> String {
    parts(key, fields, family).map(|(field, part)| part_text(field, part)).collect::<Vec<_>>().join(" . ")
}

/// Returns a range's text; the last field's range is a prefix.
fn range_text(from: &ElementKey, to: &ElementKey, fields: &[KeyField], family: Family) -> String {
    let ends = parts(to, fields, family).map(|(_, part)| part);
    let each =
        parts(from, fields, family).zip(ends).map(|((field, from), to)| match address(from).filter(|_| from != to) {
            Some(address) => format!("{address}/{}", common_bits(from, to)),
            None => part_text(field, from),
        });
    each.collect::<Vec<_>>().join(" . ")
}

fn common_bits(one: &[u8], other: &[u8]) -> u32 {
    let mut bits = 0;
    for (one, other) in one.iter().zip(other) {
        bits += (one ^ other).leading_zeros();
        if one != other {
            break;
        }
    }
    bits
}

fn part_text(field: KeyField, part: &[u8]) -> String {
    match field {
        KeyField::Source | KeyField::Destination | KeyField::OriginalDestination | KeyField::ReplySource => {
            address(part).map(|address| address.to_string()).unwrap_or_default()
        }
        KeyField::Protocol => {
            let number = part.first().copied().unwrap_or_default();
            Protocol::ALL
                .into_iter()
                .find(|one| one.number() == number)
                .map_or(number.to_string(), |one| one.to_string())
        }
        KeyField::Direction => if part == [0] { "original" } else { "reply" }.to_owned(),
        KeyField::SourcePort
        | KeyField::DestinationPort
        | KeyField::OriginalDestinationPort
        | KeyField::ReplySourcePort => {
            <[u8; 2]>::try_from(part).map(|bytes| u16::from_be_bytes(bytes).to_string()).unwrap_or_default()
        }
        KeyField::Random(_) => {
            <[u8; 4]>::try_from(part).map(|bytes| u32::from_ne_bytes(bytes).to_string()).unwrap_or_default()
        }
    }
}

pub fn of_kernel(family: Family) -> nf_tables::Family {
    match family {
        Family::V4 => nf_tables::Family::Ipv4,
        Family::V6 => nf_tables::Family::Ipv6,
    }
}

pub fn rule_text(rule: &Rule, family: Family) -> String {
    let statements = rule.statements.iter().map(|statement| statement_text(statement, family));
    let mut text = statements.collect::<Vec<_>>().join(" ");
    if !rule.comment.is_empty() {
        let _ = write!(text, " comment \"{}\"", rule.comment);
    }
    text
}

fn not(negated: bool) -> &'static str {
    if negated { "!= " } else { "" }
}

fn side_text(side: AddressSide) -> &'static str {
    match side {
        AddressSide::Source => "saddr",
        AddressSide::Destination => "daddr",
    }
}

fn net_text(range: &IpNet) -> String {
    if range.prefix_len() == range.max_prefix_len() { range.addr().to_string() } else { range.trunc().to_string() }
}

fn statement_text(statement: &Statement, family: Family) -> String {
    let ip = ip(family);
    match statement {
        Statement::Range { side, range, negated } => {
            format!("{ip} {} {}{}", side_text(*side), not(*negated), net_text(range))
        }
        Statement::Interface { name, prefix, negated } => {
            format!("iifname {}\"{name}{}\"", not(*negated), if *prefix { "*" } else { "" })
        }
        Statement::Local(side) => format!("fib {} type local", side_text(*side)),
        Statement::Protocol(protocol) => format!("meta l4proto {protocol}"),
        Statement::InSet { key, set, negated } => format!("{} {}@{set}", fields_text(key, family), not(*negated)),
        Statement::New => "ct state new".to_owned(),
        Statement::Established => "ct state established".to_owned(),
        Statement::NotRelated => "ct state established,new".to_owned(),
        Statement::MorePackets(packets) => format!("ct packets > {packets}"),
        Statement::Offload(flowtable) => format!("flow add @{flowtable}"),
        Statement::Translated => "ct status dnat".to_owned(),
        Statement::Marked(mark) => format!("meta mark & {mark:#010x} == {mark:#010x}"),
        Statement::OneIn(number) => format!("numgen random mod {number} 0"),
        Statement::Mark(mark) => format!("meta mark set meta mark | {mark:#010x}"),
        Statement::Unmark(mark) => format!("meta mark set meta mark ^ {mark:#010x}"),
        Statement::Remember { set, timeout } => {
            format!("update @{set} {{ {ip} saddr timeout {}s }}", timeout.as_secs())
        }
        Statement::Map { key, map } => format!("{} vmap @{map}", fields_text(key, family)),
        Statement::TranslateBy { key, number, map } => {
            format!("dnat {ip} to {} . {} map @{map}", fields_text(key, family), number_text(*number, family))
        }
        Statement::Translate(to) => format!("dnat to {to}"),
        Statement::Masquerade => "masquerade fully-random".to_owned(),
        Statement::SourceNat(to) => format!("snat to {to} fully-random"),
        Statement::Counter => "counter".to_owned(),
        Statement::CountBy { key, map } => format!("counter name {} map @{map}", fields_text(key, family)),
        Statement::Reject => "reject".to_owned(),
        Statement::Reset => "reject with tcp reset".to_owned(),
        Statement::Verdict(verdict) => verdict_text(verdict),
    }
}

fn number_text(number: SlotNumber, family: Family) -> String {
    match number {
        SlotNumber::Random(modulus) => field_text(KeyField::Random(modulus), family),
        SlotNumber::Jhash { of, modulus, seed } => {
            format!("jhash {} mod {modulus} seed {seed:#x}", fields_text(of, family))
        }
    }
}

fn verdict_text(verdict: &NftVerdict) -> String {
    match verdict {
        NftVerdict::Drop => "drop".to_owned(),
        NftVerdict::Return => "return".to_owned(),
        NftVerdict::Jump(chain) => format!("jump {chain}"),
        NftVerdict::Goto(chain) => format!("goto {chain}"),
    }
}
