mod expression;
mod set;
mod statement;

use std::collections::HashMap;
use std::sync::Arc;

use crate::hook::Hook;
use crate::nft::{Ruleset, Table, TableFamily};
use crate::program::nft::{
    AtHook, BaseChainRef, CompiledSet, CompiledStatement, NftCompiledChain, NftCompiledTable, NftProgram,
};
use crate::protocol::Family;

/// A missing chain or set; occurs only in rules changed after reading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nftables, table {family} {table}: unknown {what} {name:?}")]
pub struct MissingReference {
    /// The table's family.
    pub family: TableFamily,
    /// The table.
    pub table: String,
    /// `chain` or `set`.
    pub what: &'static str,
    /// The missing name.
    pub name: String,
}

struct Compiler<'a> {
    table: &'a Table,
    interfaces: &'a [Arc<str>],
    chains: HashMap<&'a str, usize>,
    named: HashMap<&'a str, usize>,
    /// Named sets, then anonymous sets.
    sets: Vec<CompiledSet>,
    counters: usize,
}

/// `beside_iptables`: whether to skip tables of iptables-nft.
pub(crate) fn compile(
    ruleset: &Arc<Ruleset>,
    interfaces: &[Arc<str>],
    beside_iptables: impl Fn(Family) -> bool,
) -> Result<NftProgram, MissingReference> {
    let mut program = NftProgram { ruleset: Arc::clone(ruleset), ..NftProgram::default() };
    let mut counters = 0;
    for (at, table) in ruleset.tables.iter().enumerate() {
        let out = table.flags.iter().any(|flag| flag == "dormant")
            || (table.by_iptables && Family::ALL.into_iter().any(|of| table.family.sees(of) && beside_iptables(of)));
        if out || table.family == TableFamily::Arp {
            program.tables.push(NftCompiledTable { chains: Vec::new(), sets: Vec::new() });
            continue;
        }
        let mut compiler = Compiler {
            table,
            interfaces,
            chains: table.chains.iter().enumerate().map(|(at, chain)| (chain.name.as_str(), at)).collect(),
            named: table.sets.iter().enumerate().map(|(at, set)| (set.name.as_str(), at)).collect(),
            sets: Vec::new(),
            counters,
        };
        let compiled = compiler.table()?;
        counters = compiler.counters;
        program.tables.push(compiled);
        hooks(&mut program, at, table, interfaces);
    }
    for at in program.v4.iter_mut().chain(&mut program.v6) {
        sort(at);
    }
    for chains in [&mut program.ingress, &mut program.egress] {
        chains.reverse();
        chains.sort_by_key(|(_, base)| base.priority);
    }
    Ok(program)
}

/// Sorts by priority, among equal priorities the latest chain first (`nf_hook_entries_grow`).
fn sort(at: &mut AtHook) {
    for chains in [&mut at.filters, &mut at.nats] {
        chains.reverse();
        chains.sort_by_key(|base| base.priority);
    }
}

fn hooks(program: &mut NftProgram, at: usize, table: &Table, interfaces: &[Arc<str>]) {
    for (chain, base) in table.chains.iter().enumerate().filter_map(|(chain, one)| Some((chain, one.base.as_ref()?))) {
        let entry = BaseChainRef { table: at, chain, priority: base.priority };
        if table.family == TableFamily::Bridge {
            if !table.chains[chain].rules.is_empty() {
                program.on_bridges = Some(entry);
            }
            continue;
        }
        let devices = base.devices.iter().filter_map(|name| interfaces.iter().position(|known| **known == **name));
        let hook = match base.hook.as_str() {
            "prerouting" => Hook::Prerouting,
            "input" => Hook::Input,
            "forward" => Hook::Forward,
            "output" => Hook::Output,
            "postrouting" => Hook::Postrouting,
            "ingress" => {
                program.ingress.extend(devices.map(|device| (device, entry)));
                continue;
            }
            _ => {
                program.egress.extend(devices.map(|device| (device, entry)));
                continue;
            }
        };
        for (family, all) in [(Family::V4, &mut program.v4), (Family::V6, &mut program.v6)] {
            if table.family.sees(family) {
                let at = &mut all[hook as usize];
                if base.kind == "nat" { at.nats.push(entry) } else { at.filters.push(entry) }
            }
        }
    }
}

impl Compiler<'_> {
    fn table(&mut self) -> Result<NftCompiledTable, MissingReference> {
        let table = self.table;
        for set in &table.sets {
            let compiled = self.named_set(set)?;
            self.sets.push(compiled);
        }
        let mut chains = Vec::with_capacity(table.chains.len());
        for chain in &table.chains {
            let rules: Result<Vec<Vec<CompiledStatement>>, MissingReference> =
                chain.rules.iter().map(|rule| self.rule(rule)).collect();
            chains.push(NftCompiledChain { policy: chain.base.as_ref().map(|base| base.policy), rules: rules? });
        }
        Ok(NftCompiledTable { chains, sets: std::mem::take(&mut self.sets) })
    }

    fn missing(&self, what: &'static str, name: &str) -> MissingReference {
        MissingReference { family: self.table.family, table: self.table.name.clone(), what, name: name.to_owned() }
    }

    /// Returns an index from 1, as in the kernel.
    fn interface(&self, name: &str) -> Option<u128> {
        let at = self.interfaces.iter().position(|known| **known == *name)?;
        u128::try_from(at + 1).ok()
    }
}
