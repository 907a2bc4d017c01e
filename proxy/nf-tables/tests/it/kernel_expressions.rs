use crate::support::inside;
use nf_tables::{
    BaseChain, Batch, Bitwise, ChainPolicy, CmpOp, CtKey, FIB_DESTINATION, FIB_SOURCE, Family, FibResult, Jhash,
    Lookup, MapData, MetaKey, Nat, NatKind, NfHook, NfSocket, NfVerdict, Numgen, PayloadBase, Register, Reject, Rule,
    SetFlags, SetSpec, SetUpdate, Table, canonical, expressions,
};

const R1: Register = Register::R1;

type Write = fn(&mut Rule, Family);

const FORMS: &[(&str, Write)] = &[
    ("pre", |rule, family| {
        let offset = if family == Family::Ipv6 { 24 } else { 16 };
        rule.payload(PayloadBase::Network, offset, 4, R1).cmp(R1, CmpOp::NotEqual, &[10, 0, 0, 1]);
    }),
    ("pre", |rule, _| {
        rule.payload(PayloadBase::Transport, 2, 2, R1).range(R1, &[0, 80], &[0, 90], false);
        rule.payload(PayloadBase::Transport, 0, 2, R1).range(R1, &[0, 80], &[0, 90], true);
    }),
    ("pre", |rule, _| {
        rule.ct(CtKey::STATE, R1).bitwise(R1, R1, Bitwise { mask: &8u32.to_ne_bytes(), xor: &[0; 4] });
        rule.cmp(R1, CmpOp::NotEqual, &[0; 4]).ct(CtKey::STATUS, R1).ct(CtKey::MARK, Register::R2);
    }),
    ("pre", |rule, _| {
        rule.meta(MetaKey::MARK, R1);
        rule.bitwise(R1, R1, Bitwise { mask: &0xffff_bfffu32.to_ne_bytes(), xor: &0x4000u32.to_ne_bytes() });
        rule.set_meta(MetaKey::MARK, R1);
    }),
    ("pre", |rule, _| {
        rule.fib(FibResult::AddressType, FIB_DESTINATION, R1).cmp(R1, CmpOp::Equal, &2u32.to_ne_bytes());
        rule.fib(FibResult::AddressType, FIB_SOURCE, R1).cmp(R1, CmpOp::Equal, &2u32.to_ne_bytes());
        rule.meta(MetaKey::NFPROTO, R1).meta(MetaKey::IIFNAME, R1).fib(FibResult::Oif, FIB_SOURCE, R1);
        rule.fib(FibResult::Oifname, FIB_SOURCE, R1);
    }),
    ("pre", |rule, _| {
        rule.numgen(Numgen::Random, 3, 0, R1).numgen(Numgen::Increment, 3, 7, R1);
        rule.cmp(R1, CmpOp::Less, &9u32.to_ne_bytes()).cmp(R1, CmpOp::GreaterOrEqual, &1u32.to_ne_bytes());
        rule.cmp(R1, CmpOp::Greater, &[0; 4]).cmp(R1, CmpOp::LessOrEqual, &9u32.to_ne_bytes());
    }),
    ("pre", |rule, _| {
        rule.payload(PayloadBase::Network, 12, 4, R1).payload(PayloadBase::Transport, 0, 2, Register::word(1));
        rule.jhash(Jhash { from: R1, length: 8, modulus: 1021, seed: 5 }, R1).cmp(R1, CmpOp::Equal, &[0; 4]);
    }),
    ("pre", |rule, _| {
        rule.payload(PayloadBase::Network, 12, 4, R1).lookup(R1, Lookup::set("set"));
        rule.lookup(R1, Lookup::not_in("set")).lookup(R1, Lookup::map("map", Register::word(4)));
        rule.counter().lookup(R1, Lookup::map("verdicts", Register::VERDICT));
    }),
    ("pre", |rule, _| {
        rule.payload(PayloadBase::Network, 12, 4, R1).update_set("dynamic", SetUpdate::Update, R1, 0);
        rule.update_set("dynamic", SetUpdate::Add, R1, 60_000).update_set("dynamic", SetUpdate::Delete, R1, 0);
    }),
    ("pre", |rule, family| {
        let nat = if family == Family::Ipv6 { Family::Ipv6 } else { Family::Ipv4 };
        let address: &[u8] = if nat == Family::Ipv6 { &[0xfd; 16] } else { &[10, 0, 0, 1] };
        if family == Family::Inet {
            rule.meta(MetaKey::NFPROTO, R1).cmp(R1, CmpOp::Equal, &[2]);
        }
        rule.meta(MetaKey::L4PROTO, R1).cmp(R1, CmpOp::Equal, &[6]);
        rule.immediate(address, R1).immediate(&[0, 80], Register::R2);
        let to = Nat { kind: NatKind::Destination, family: nat, address: Some(R1), port: Some(Register::R2), flags: 0 };
        rule.nat(to);
    }),
    ("post", |rule, family| {
        let nat = if family == Family::Ipv6 { Family::Ipv6 } else { Family::Ipv4 };
        let address: &[u8] = if nat == Family::Ipv6 { &[0xfd; 16] } else { &[10, 0, 0, 1] };
        if family == Family::Inet {
            rule.meta(MetaKey::NFPROTO, R1).cmp(R1, CmpOp::Equal, &[2]);
        }
        rule.immediate(address, R1);
        rule.nat(Nat { kind: NatKind::Source, family: nat, address: Some(R1), port: None, flags: 0x10 });
    }),
    ("post", |rule, _| {
        rule.masquerade(0);
    }),
    ("post", |rule, _| {
        rule.masquerade(0x10);
    }),
    ("pre", |rule, _| {
        rule.meta(MetaKey::L4PROTO, R1).cmp(R1, CmpOp::Equal, &[6]).immediate(&[0, 80], R1);
        rule.redirect(Some(R1), 0);
    }),
    ("pre", |rule, _| {
        rule.redirect(None, 0x10);
    }),
    ("in", |rule, family| {
        let code = if family == Family::Ipv6 { 4 } else { 3 };
        match family {
            Family::Inet => rule.reject(Reject::IcmpX(1)),
            _ => rule.reject(Reject::Icmp(code)),
        };
    }),
    ("in", |rule, _| {
        rule.meta(MetaKey::L4PROTO, R1).cmp(R1, CmpOp::Equal, &[6]).reject(Reject::TcpReset);
    }),
    ("in", |rule, _| {
        rule.counter().verdict(NfVerdict::Jump("other"));
    }),
    ("in", |rule, _| {
        rule.verdict(NfVerdict::Goto("other"));
    }),
    ("in", |rule, _| {
        rule.verdict(NfVerdict::Continue);
    }),
    ("in", |rule, _| {
        rule.verdict(NfVerdict::Return);
    }),
    ("in", |rule, _| {
        rule.verdict(NfVerdict::Drop);
    }),
    ("in", |rule, _| {
        rule.verdict(NfVerdict::Accept);
    }),
];

fn prepare(batch: &mut Batch, table: Table<'_>) {
    batch.add_table(table).unwrap();
    let hooks =
        [("pre", "nat", NfHook::Prerouting), ("post", "nat", NfHook::Postrouting), ("in", "filter", NfHook::Input)];
    for (name, kind, hook) in hooks {
        let base = BaseChain { kind, hook, priority: -7, policy: Some(ChainPolicy::Drop) };
        batch.add_base_chain(table, name, &base).unwrap();
    }
    batch.add_chain(table, "other").unwrap();
    let set = SetSpec { name: "set", key_type: 7, key_length: 4, ..SetSpec::default() };
    batch.add_set(table, &set).unwrap();
    batch.add_set(table, &SetSpec { name: "map", data: Some(MapData::Value { kind: 7, length: 4 }), ..set }).unwrap();
    batch.add_set(table, &SetSpec { name: "verdicts", data: Some(MapData::Verdict), ..set }).unwrap();
    let dynamic = SetSpec { name: "dynamic", flags: SetFlags::DYNAMIC, timeout: Some(10_000), size: Some(100), ..set };
    batch.add_set(table, &dynamic).unwrap();
}

#[test]
fn the_dump_of_every_expression_is_what_was_sent() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    for family in [Family::Inet, Family::Ipv4, Family::Ipv6] {
        let table = Table::new(family, "t");
        let mut batch = Batch::new();
        prepare(&mut batch, table);
        let mut sent: Vec<(&str, Vec<&str>, Vec<u8>)> = Vec::new();
        let mut rules = Vec::new();
        for (chain, write) in FORMS {
            let mut rule = Rule::new();
            write(&mut rule, family);
            batch.add_rule(table, chain, &rule).unwrap();
            rules.push((*chain, rule));
        }
        for (chain, rule) in &rules {
            let names = expressions(rule.expressions()).map(|expression| expression.name).collect();
            sent.push((chain, names, canonical(table.family, rule.expressions())));
        }
        if let Err(error) = socket.commit(&batch) {
            panic!("{family:?}: {error}");
        }
        for chain in ["pre", "post", "in"] {
            let seen: Vec<_> =
                socket.rules(table, chain).unwrap().map(|rule| canonical(table.family, rule.expressions)).collect();
            let of_chain: Vec<_> = sent.iter().filter(|(of, ..)| *of == chain).collect();
            assert_eq!(seen.len(), of_chain.len());
            for (seen, (_, names, sent)) in seen.iter().zip(of_chain) {
                assert_eq!(seen, sent, "{family:?} {names:?}");
            }
        }
        let pre = socket.chain(table, "pre").unwrap().unwrap().base.unwrap();
        assert_eq!(
            (pre.kind, pre.hook, pre.priority, pre.policy),
            ("nat", Some(NfHook::Prerouting), -7, ChainPolicy::Drop)
        );
    }
}
