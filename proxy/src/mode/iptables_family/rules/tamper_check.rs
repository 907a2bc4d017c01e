//! Detects deletions of rules by other programs, at a cost independent of the number of services. For each fixed chain
//! the kernel reports the sum of its rules and the rules that jump to it, which the proxy knows. Flushes, deleted rules
//! or jumps, and deleted service port chains (most of their rules jump to `KUBE-MARK-MASQ`) lower the sum. Other
//! programs' rules only raise it.

use std::collections::BTreeMap;

use super::jumps::Jump;
use super::names;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::SyncReport;
use crate::ruleset::{Rule, Table};

type OwnedChainId = (Table, String);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ChainContent {
    rules: usize,
    jumps_to: BTreeMap<String, usize>,
}

impl ChainContent {
    fn of<'a>(rules: impl Iterator<Item = &'a Rule>) -> ChainContent {
        let mut content = ChainContent::default();
        for rule in rules {
            content.rules += 1;
            let target = rule.target.chain().filter(|chain| chain.starts_with("KUBE-"));
            if let Some(chain) = target.filter(|chain| !names::is_per_service(chain)) {
                *content.jumps_to.entry(chain.to_owned()).or_default() += 1;
            }
        }
        content
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ExpectedTables {
    chains: BTreeMap<OwnedChainId, ChainContent>,
    /// The number of service port rules that jump to `KUBE-MARK-MASQ`.
    marking: usize,
    jumps: BTreeMap<OwnedChainId, usize>,
}

impl ExpectedTables {
    /// Returns the least expected reference counts of a table's chains.
    fn least(&self, table: Table) -> Vec<(&str, usize)> {
        let chains = || self.chains.iter().filter(move |((of, _), _)| *of == table);
        let mut least: BTreeMap<&str, usize> = chains().map(|((_, name), held)| (&name[..], held.rules)).collect();
        let referenced = chains().flat_map(|(_, held)| held.jumps_to.iter().map(|(to, count)| (&to[..], *count)));
        let jumps = self.jumps.iter().filter(|((of, _), _)| *of == table).map(|((_, to), count)| (&to[..], *count));
        let marking = (table == Table::Nat).then_some((names::MARK_MASQ, self.marking));
        for (to, count) in referenced.chain(jumps).chain(marking) {
            least.entry(to).and_modify(|sum| *sum += count);
        }
        least.into_iter().collect()
    }
}

#[derive(Debug, Default)]
pub struct TamperCheck {
    present: Option<ExpectedTables>,
    /// A detected loss: the chain and the kernel's count.
    suspicion: Option<(OwnedChainId, usize)>,
    /// The kernel's lower counts that a full sync did not change.
    tolerated: BTreeMap<OwnedChainId, usize>,
}

impl TamperCheck {
    pub fn require_full_sync(&mut self) {
        self.present = None;
    }

    pub fn expect<'a, 'j>(
        &mut self,
        wanted: impl Iterator<Item = ((Table, &'static str), impl Iterator<Item = &'a Rule>)>,
        marking: usize,
        jumps: impl IntoIterator<Item = &'j Jump>,
    ) {
        let chains = wanted.map(|((table, name), rules)| ((table, name.to_owned()), ChainContent::of(rules))).collect();
        let mut present = ExpectedTables { marking, chains, jumps: BTreeMap::new() };
        for jump in jumps {
            *present.jumps.entry((jump.table, jump.to.to_owned())).or_default() += 1;
        }
        self.present = Some(present);
    }

    /// Stops reporting a loss if its full sync changed nothing.
    pub fn full_sync_done(&mut self, report: &SyncReport) {
        let Some((id, seen)) = self.suspicion.take() else { return };
        if report.rules + report.removed_chains + report.jumps == 0 {
            self.tolerated.insert(id, seen);
        }
    }

    pub fn chain_written<'a>(&mut self, (table, chain): (Table, &str), rules: impl Iterator<Item = &'a Rule>) {
        if let Some(present) = &mut self.present {
            present.chains.insert((table, chain.to_owned()), ChainContent::of(rules));
        }
    }

    pub fn marking(&mut self, before: usize, after: usize) {
        if let Some(present) = &mut self.present {
            present.marking = (present.marking + after).saturating_sub(before);
        }
    }

    pub fn find_loss(&mut self, kernel: &mut dyn PacketFilter) -> Result<Option<String>, IptablesError> {
        let Some(present) = &self.present else { return Ok(None) };
        let generation = kernel.generation()?;
        if kernel.is_untouched(generation) {
            return Ok(None);
        }
        for table in Table::ALL {
            let least = present.least(table);
            let chains: Vec<&str> = least.iter().map(|(chain, _)| *chain).collect();
            let uses = kernel.reference_counts(table, &chains)?;
            for ((chain, least), seen) in least.into_iter().zip(uses) {
                let id = (table, chain.to_owned());
                let Some(seen) = seen else {
                    self.suspicion = None;
                    return Ok(Some(format!("chain {chain} of table {table}")));
                };
                if seen < least && self.tolerated.get(&id).is_none_or(|tolerated| seen < *tolerated) {
                    self.suspicion = Some((id, seen));
                    let missing = least - seen;
                    let rules = if missing == 1 { "a rule".to_owned() } else { format!("{missing} rules") };
                    return Ok(Some(format!("{rules} of chain {chain} of table {table}, or jumping to it")));
                }
            }
        }
        kernel.set_known_generation(generation);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::iptables::FakeIptables;
    use crate::model::Protocol;
    use crate::ruleset::RuleTarget;

    const JUMP: Jump = Jump::new(Table::Nat, "PREROUTING", names::SERVICES, &[]);

    fn stands() -> (FakeIptables, TamperCheck) {
        let tcp = || Rule::new().protocol(Protocol::Tcp);
        let mark = Rule::new().target(RuleTarget::Mark { mark: 0x4000, mask: 0x4000 });
        let endpoint = tcp().dnat(Protocol::Tcp, "10.0.0.1:80".parse().unwrap());
        let hairpin = Rule::new().source_ip("10.0.0.1".parse().unwrap()).jump(names::MARK_MASQ);
        let nat = BTreeMap::from([
            (names::SERVICES.to_owned(), vec![tcp().jump("KUBE-SVC-A"), Rule::new().jump(names::NODE_PORTS)]),
            (names::NODE_PORTS.to_owned(), Vec::new()),
            (names::MARK_MASQ.to_owned(), vec![mark]),
            ("KUBE-SVC-A".to_owned(), vec![hairpin, endpoint]),
        ]);
        let mut tamper_check = TamperCheck::default();
        let fixed = [names::SERVICES, names::NODE_PORTS, names::MARK_MASQ];
        tamper_check.expect(fixed.into_iter().map(|name| ((Table::Nat, name), nat[name].iter())), 1, [&JUMP]);
        let mut kernel = FakeIptables::default();
        let table = kernel.tables.get_mut(&Table::Nat).unwrap();
        let text = |rules: Vec<Rule>| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        table.extend(nat.into_iter().map(|(chain, rules)| (chain, text(rules))));
        table.insert("PREROUTING".to_owned(), text(vec![JUMP.rule()]));
        (kernel, tamper_check)
    }

    #[test]
    fn every_loss_is_found_and_foreign_rules_are_ignored() {
        type Damage = fn(&mut BTreeMap<String, Vec<String>>);
        let losses: [(&str, Damage, &str); 6] = [
            ("-F of the table", |nat| nat.values_mut().for_each(Vec::clear), "KUBE-MARK-MASQ"),
            ("a jump", |nat| nat.get_mut("PREROUTING").unwrap().clear(), "a rule of chain KUBE-SERVICES"),
            ("a rule", |nat| drop(nat.get_mut("KUBE-SERVICES").unwrap().remove(0)), "a rule of chain KUBE-SERVICES"),
            ("a chain of a service", |nat| drop(nat.remove("KUBE-SVC-A")), "a rule of chain KUBE-MARK-MASQ"),
            ("a chain that is always there", |nat| drop(nat.remove("KUBE-NODEPORTS")), "chain KUBE-NODEPORTS"),
            ("where it led", |nat| drop(nat.get_mut("KUBE-SERVICES").unwrap().pop()), "a rule of chain KUBE-NODEPORTS"),
        ];
        for (what, damage, words) in losses {
            let (mut kernel, mut tamper_check) = stands();
            assert_eq!(tamper_check.find_loss(&mut kernel).unwrap(), None);
            damage(kernel.tables.get_mut(&Table::Nat).unwrap());
            let lost = tamper_check.find_loss(&mut kernel).unwrap().unwrap_or_default();
            assert!(lost.contains(words), "{what}: {lost}");
        }
        let (mut kernel, mut tamper_check) = stands();
        let nat = kernel.tables.get_mut(&Table::Nat).unwrap();
        nat.insert("FOREIGN".to_owned(), vec!["-j KUBE-MARK-MASQ".to_owned()]);
        nat.get_mut("KUBE-SERVICES").unwrap().push("-j FOREIGN".to_owned());
        assert_eq!(tamper_check.find_loss(&mut kernel).unwrap(), None);
    }

    #[test]
    fn partial_syncs_update_the_expectation() {
        let (mut kernel, mut tamper_check) = stands();
        let nat = kernel.tables.get_mut(&Table::Nat).unwrap();
        nat.remove("KUBE-SVC-A");
        nat.get_mut("KUBE-SERVICES").unwrap().remove(0);
        let services = [Rule::new().jump(names::NODE_PORTS)];
        tamper_check.chain_written((Table::Nat, "KUBE-SERVICES"), services.iter());
        tamper_check.marking(1, 0);
        assert_eq!(tamper_check.find_loss(&mut kernel).unwrap(), None);
        tamper_check.marking(0, 1);
        assert!(tamper_check.find_loss(&mut kernel).unwrap().is_some());
        tamper_check.require_full_sync();
        assert_eq!(tamper_check.find_loss(&mut kernel).unwrap(), None);
    }

    #[test]
    fn a_kernel_that_counts_differently_costs_one_full_sync() {
        let (mut kernel, mut tamper_check) = stands();
        let (_, again) = stands();
        kernel.tables.get_mut(&Table::Nat).unwrap().get_mut("PREROUTING").unwrap().clear();
        assert!(tamper_check.find_loss(&mut kernel).unwrap().is_some());
        tamper_check.present = again.present;
        tamper_check.full_sync_done(&SyncReport::default());
        assert_eq!(tamper_check.find_loss(&mut kernel).unwrap(), None);
        kernel.tables.get_mut(&Table::Nat).unwrap().get_mut("KUBE-SERVICES").unwrap().clear();
        assert!(tamper_check.find_loss(&mut kernel).unwrap().is_some());
    }
}
