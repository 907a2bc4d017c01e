mod expression;
mod set;
mod statement;

use std::collections::HashMap;
use std::sync::Arc;

use crate::hook::Hook;
use crate::nft::{BaseChain, Chain, Ruleset, Table, TableFamily};
use crate::program::nft::{
    BaseChainRef, BesideIptables, CompiledSet, CompiledStatement, DeviceChain, NftCompiledChain, NftCompiledTable,
    NftProgram,
};
use crate::protocol::Family;
use crate::rules::TableName;

/// A missing chain or set; occurs only in rules changed after reading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nftables, table {family} {table}: unknown {what} {name:?}")]
pub struct MissingReference {
    /// The table's family.
    pub family: TableFamily,
    /// The table.
    pub table: String,
    /// `chain`, `set` or `counter`.
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
        if out {
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
        let hooks = Hooks { table: at, interfaces, beside_iptables: &beside_iptables };
        table.chains.iter().enumerate().for_each(|(at, chain)| hooks.register(&mut program, at, chain));
    }
    for at in program.v4.iter_mut().chain(&mut program.v6) {
        latest_first(&mut at.filters, |base| base.priority);
        latest_first(&mut at.nats, |base| base.priority);
    }
    for chains in program.bridge.iter_mut().chain(&mut program.arp) {
        latest_first(chains, |base| base.priority);
    }
    for chains in [&mut program.ingress, &mut program.egress] {
        latest_first(chains, |chain| chain.base.priority);
    }
    Ok(program)
}

/// Sorts by priority, among equal priorities the latest chain first (`nf_hook_entries_grow`).
fn latest_first<T>(chains: &mut [T], priority: impl Fn(&T) -> i32) {
    chains.reverse();
    chains.sort_by_key(priority);
}

struct Hooks<'a, F> {
    /// The table's index.
    table: usize,
    interfaces: &'a [Arc<str>],
    beside_iptables: &'a F,
}

impl<F: Fn(Family) -> bool> Hooks<'_, F> {
    fn register(&self, program: &mut NftProgram, chain: usize, declared: &Chain) {
        let ruleset = Arc::clone(&program.ruleset);
        let (family, Some(base)) = (ruleset.tables[self.table].family, &declared.base) else { return };
        let entry = BaseChainRef { table: self.table, chain, priority: base.priority, beside: BesideIptables::Before };
        let hook = match base.hook.as_str() {
            "prerouting" => Hook::Prerouting,
            "input" => Hook::Input,
            "forward" => Hook::Forward,
            "output" => Hook::Output,
            "postrouting" => Hook::Postrouting,
            "ingress" => return program.ingress.extend(self.devices(entry, base)),
            _ => return program.egress.extend(self.devices(entry, base)),
        };
        match family {
            TableFamily::Bridge => return program.bridge[hook as usize].push(entry),
            TableFamily::Arp => return program.arp[hook as usize].push(entry),
            _ => {}
        }
        for (of, all) in [(Family::V4, &mut program.v4), (Family::V6, &mut program.v6)] {
            if family.sees(of) {
                let entry = BaseChainRef { beside: self.beside(&ruleset, base, hook, of), ..entry };
                let at = &mut all[hook as usize];
                if base.kind == "nat" { at.nats.push(entry) } else { at.filters.push(entry) }
            }
        }
    }

    fn devices(&self, entry: BaseChainRef, base: &BaseChain) -> Vec<DeviceChain> {
        let Some(devices) = &base.devices else { return vec![DeviceChain { device: None, base: entry }] };
        let known = devices.iter().filter_map(|name| self.interfaces.iter().position(|known| **known == **name));
        known.map(|device| DeviceChain { device: Some(device), base: entry }).collect()
    }

    /// Tables are listed as they were made, those of iptables-nft too. iptables-nft makes chains when they get rules, so
    /// the older table may have the younger chain.
    fn beside(&self, ruleset: &Ruleset, base: &BaseChain, hook: Hook, family: Family) -> BesideIptables {
        let iptables = iptables_table(&base.kind, base.priority).filter(|_| (self.beside_iptables)(family));
        let Some(iptables) = iptables else { return BesideIptables::Before };
        let own = if family == Family::V4 { TableFamily::Ip } else { TableFamily::Ip6 };
        let listed = |table: &Table| table.by_iptables && table.family == own && table.name == iptables.name();
        let Some(at) = ruleset.tables.iter().position(listed) else { return BesideIptables::Unknown };
        let other = ruleset.tables[at].chains.iter().find(|chain| chain.name == hook.chain());
        let Some(other) = other.and_then(|chain| chain.base.as_ref()) else { return BesideIptables::Before };
        match at < self.table {
            true if other.late => BesideIptables::Unknown,
            true => BesideIptables::Before,
            false if base.late => BesideIptables::Unknown,
            false => BesideIptables::After,
        }
    }
}

/// Returns the iptables table that runs at this priority (include/uapi/linux/netfilter_ipv4.h).
fn iptables_table(kind: &str, priority: i32) -> Option<TableName> {
    match (kind, priority) {
        ("nat", -100 | 100) => Some(TableName::Nat),
        ("nat", _) => None,
        (_, -300) => Some(TableName::Raw),
        (_, -150) => Some(TableName::Mangle),
        (_, 0) => Some(TableName::Filter),
        (_, 50) => Some(TableName::Security),
        _ => None,
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
