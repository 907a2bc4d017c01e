//! Creates a table, reads it back and prints it.
//!
//! Run as root, or `unshare -Urn target/debug/examples/table`.
#![allow(clippy::print_stdout, reason = "it is there to print")]

use nf_tables::{
    BaseChain, Batch, ChainPolicy, CmpOp, Element, ElementValue, Family, Lookup, MapData, NfHook, NfSocket, NfVerdict,
    PayloadBase, Register, Rule, SetSpec, Table, expressions, verdict,
};
use nix::sched::{CloneFlags, unshare};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let table = Table::new(Family::Ipv4, "example");
    let mut batch = Batch::new();
    batch.add_table(table)?;
    batch.add_chain(table, "web")?;
    let hook = BaseChain { kind: "filter", hook: NfHook::Input, priority: 0, policy: Some(ChainPolicy::Accept) };
    batch.add_base_chain(table, "input", &hook)?;

    let map =
        SetSpec { name: "services", key_type: 7, key_length: 4, data: Some(MapData::Verdict), ..SetSpec::default() };
    batch.add_set(table, &map)?;
    batch.add_elements(
        table,
        map.name,
        [Element::to(&[10, 96, 0, 10], ElementValue::Verdict(NfVerdict::Jump("web")))],
    )?;

    // ip daddr vmap @services
    let mut rule = Rule::new();
    rule.payload(PayloadBase::Network, 16, 4, Register::R1)
        .lookup(Register::R1, Lookup::map(map.name, Register::VERDICT));
    batch.add_rule(table, "input", &rule)?;
    rule.clear().payload(PayloadBase::Network, 12, 2, Register::R1).cmp(Register::R1, CmpOp::NotEqual, &[10, 244]);
    batch.add_rule(table, "web", rule.counter().verdict(NfVerdict::Drop))?;

    let mut socket = NfSocket::open()?;
    let committed = socket.commit(&batch)?;
    println!("{} bytes made generation {:?}", batch.len(), committed.generation);
    for chain in ["input", "web"] {
        println!("{:?}", socket.chain(table, chain)?);
        for rule in socket.rules(table, chain)? {
            let names: Vec<&str> = expressions(rule.expressions).map(|expression| expression.name).collect();
            println!("  {} {} {:?}", rule.handle, names.join(", "), verdict(rule.expressions));
        }
    }
    for element in socket.elements(table, map.name)? {
        println!("  {:?}: {:?}", element.key, element.value);
    }
    Ok(())
}
