//! The floor of a first sync in nftables mode: the same Services in shared maps, sent in one batch.

use anyhow::{Context, Result};
use nf_tables::field::{self, KeyField};
use nf_tables::{
    BaseChain, Batch, ChainPolicy, CmpOp, Element, ElementValue, Family, Lookup, MapData, MetaKey, Nat, NatKind,
    NfHook, NfVerdict, Register, Rule, SetFlags, SetSpec, Table,
};

use crate::cluster::{ClusterSize, PORT, cluster_ip, is_udp, node_port, pod_ip};

const SERVICE: [KeyField; 3] = [KeyField::Destination, KeyField::Protocol, KeyField::DestinationPort];
const SERVICE_SLOT: [KeyField; 4] =
    [KeyField::Destination, KeyField::Protocol, KeyField::DestinationPort, KeyField::Random(2)];
const NODE_PORT: [KeyField; 2] = [KeyField::Protocol, KeyField::DestinationPort];
const NODE_PORT_SLOT: [KeyField; 3] = [KeyField::Protocol, KeyField::DestinationPort, KeyField::Random(2)];
const ENDPOINT: [KeyField; 2] = [KeyField::Destination, KeyField::DestinationPort];
const IP: Family = Family::Ipv4;
/// `IPPROTO_TCP`, `IPPROTO_UDP`.
const PROTOCOLS: [u8; 2] = [6, 17];
/// The number of elements in one netlink message.
const AT_ONCE: usize = 4096;

pub fn batch(size: ClusterSize) -> Result<Batch> {
    let mut batch = Batch::new();
    write(&mut batch, size).context("write the batch of shared maps")?;
    Ok(batch)
}

/// Name, fields of the key, fields of the data (`None` for verdicts), and size of a map.
type MapSpec<'a> = (&'a str, &'a [KeyField], Option<&'a [KeyField]>, u32);

fn write(batch: &mut Batch, size: ClusterSize) -> Result<(), nf_tables::EncodeError> {
    let table = Table::new(IP, "floor");
    batch.add_table(table)?;
    let node_ports = size.services.div_ceil(10);
    let maps: [MapSpec<'_>; 4] = [
        ("services", &SERVICE, None, size.services),
        ("endpoints", &SERVICE_SLOT, Some(&ENDPOINT), size.services * size.endpoints),
        ("nodeports", &NODE_PORT, None, node_ports),
        ("nodeport-endpoints", &NODE_PORT_SLOT, Some(&ENDPOINT), node_ports * size.endpoints),
    ];
    for (name, key, value, count) in maps {
        let user_data = field::set_user_data(key, value, IP, "");
        let value =
            value.map(|value| MapData::Value { kind: field::datatype(value, IP), length: field::length(value, IP) });
        let data = Some(value.unwrap_or(MapData::Verdict));
        batch.add_set(table, &spec(name, key, data, count, &user_data))?;
    }
    let user_data = field::set_user_data(&[KeyField::Destination], None, IP, "");
    batch.add_set(table, &spec("cluster-ips", &[KeyField::Destination], None, size.services, &user_data))?;
    for (chain, prefix) in [("tcp", PROTOCOLS[0]), ("udp", PROTOCOLS[1])] {
        for (chain, key, map) in [
            (chain.to_owned(), &SERVICE[..], "endpoints"),
            (format!("nodeport-{chain}"), &NODE_PORT[..], "nodeport-endpoints"),
        ] {
            batch.add_chain(table, &chain)?;
            batch.add_rule(table, &chain, &pick(prefix, key, map, size.endpoints))?;
        }
    }
    batch.add_chain(table, "dispatch")?;
    for (key, map) in [(&SERVICE[..], "services"), (&NODE_PORT[..], "nodeports")] {
        let mut rule = Rule::new();
        field::load(key, IP, &mut rule);
        rule.lookup(Register::R1, Lookup::map(map, Register::VERDICT));
        batch.add_rule(table, "dispatch", &rule)?;
    }
    elements(batch, table, size)?;
    for (chain, hook) in [("nat-prerouting", NfHook::Prerouting), ("nat-output", NfHook::Output)] {
        let base = BaseChain { kind: "nat", hook, priority: -100, policy: Some(ChainPolicy::Accept) };
        batch.add_base_chain(table, chain, &base)?;
        let mut rule = Rule::new();
        rule.verdict(NfVerdict::Jump("dispatch"));
        batch.add_rule(table, chain, &rule)?;
    }
    Ok(())
}

fn spec<'a>(name: &'a str, key: &[KeyField], data: Option<MapData>, size: u32, user_data: &'a [u8]) -> SetSpec<'a> {
    SetSpec {
        name,
        flags: SetFlags::default(),
        key_type: field::datatype(key, IP),
        key_length: field::length(key, IP),
        data,
        size: Some(size),
        user_data,
        ..SetSpec::default()
    }
}

fn pick(protocol: u8, key: &[KeyField], map: &str, endpoints: u32) -> Rule {
    let mut rule = Rule::new();
    rule.meta(MetaKey::L4PROTO, Register::R1).cmp(Register::R1, CmpOp::Equal, &[protocol]);
    let key: Vec<KeyField> = key.iter().copied().chain([KeyField::Random(endpoints)]).collect();
    field::load(&key, IP, &mut rule);
    rule.lookup(Register::R1, Lookup::map(map, Register::R1));
    let (address, port) = (Some(Register::R1), Some(Register::word(1)));
    rule.nat(Nat { kind: NatKind::Destination, family: IP, address, port, flags: 0 });
    rule
}

/// Pads each field of a key to four bytes.
fn elements(batch: &mut Batch, table: Table<'_>, size: ClusterSize) -> Result<(), nf_tables::EncodeError> {
    let protocol = |index| [PROTOCOLS[usize::from(is_udp(index))], 0, 0, 0];
    let port = |number: u16| {
        let [high, low] = number.to_be_bytes();
        [high, low, 0, 0]
    };
    let service = |index: u32| [cluster_ip(index).octets(), protocol(index), port(PORT)].concat();
    let node = |index: u32| Some([protocol(index), port(node_port(index)?)].concat());
    let endpoint = |index, number| [pod_ip(size, index, number).octets(), port(PORT)].concat();
    let keyed = |key: Vec<u8>, number: u32| [key, number.to_ne_bytes().to_vec()].concat();
    let services = || 0..size.services;
    let numbered = || services().flat_map(|index| (0..size.endpoints).map(move |number| (index, number)));

    let all: Vec<_> =
        numbered().map(|(index, number)| (keyed(service(index), number), endpoint(index, number))).collect();
    values(batch, table, "endpoints", &all)?;
    let all: Vec<_> =
        numbered().filter_map(|(index, number)| Some((keyed(node(index)?, number), endpoint(index, number)))).collect();
    values(batch, table, "nodeport-endpoints", &all)?;
    let all: Vec<_> = services().map(|index| cluster_ip(index).octets()).collect();
    for some in all.chunks(AT_ONCE) {
        batch.add_elements(table, "cluster-ips", some.iter().map(|key| Element::new(key)))?;
    }
    let all: Vec<_> = services().map(|index| (service(index), is_udp(index))).collect();
    verdicts(batch, table, "services", ["tcp", "udp"], &all)?;
    let all: Vec<_> = services().filter_map(|index| Some((node(index)?, is_udp(index)))).collect();
    verdicts(batch, table, "nodeports", ["nodeport-tcp", "nodeport-udp"], &all)
}

fn values(
    batch: &mut Batch,
    table: Table<'_>,
    map: &str,
    all: &[(Vec<u8>, Vec<u8>)],
) -> Result<(), nf_tables::EncodeError> {
    for some in all.chunks(AT_ONCE) {
        batch.add_elements(table, map, some.iter().map(|(key, value)| Element::to(key, ElementValue::Data(value))))?;
    }
    Ok(())
}

fn verdicts(
    batch: &mut Batch,
    table: Table<'_>,
    map: &str,
    chains: [&str; 2],
    all: &[(Vec<u8>, bool)],
) -> Result<(), nf_tables::EncodeError> {
    for some in all.chunks(AT_ONCE) {
        let to = |udp: bool| ElementValue::Verdict(NfVerdict::Goto(chains[usize::from(udp)]));
        batch.add_elements(table, map, some.iter().map(|(key, udp)| Element::to(key, to(*udp))))?;
    }
    Ok(())
}
