//! Whether other programs have left our rules alone: a look that costs the same whatever the number of services.
//!
//! Of each chain that is always there, the proxy knows how many rules it holds and how many lead to it; the kernel is asked for
//! the sum. A flush that leaves chains in place, one rule or one jump that was deleted, and chains of service ports that were
//! removed (most of their rules lead to `KUBE-MARK-MASQ`) all make it less. Rules that others add to our chains, or lead to them,
//! make it more, which is no loss.

use std::collections::BTreeMap;

use super::jumps::Jump;
use super::names;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::Report;
use crate::ruleset::{Rule, Table};

/// A chain's table and name.
type Place = (Table, String);

/// What a chain holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    rules: usize,
    /// How many of its rules lead to which chain.
    leads: BTreeMap<String, usize>,
}

impl Content {
    /// Chains of service ports are not looked at one by one.
    fn of<'a>(rules: impl Iterator<Item = &'a Rule>) -> Content {
        let mut content = Content::default();
        for rule in rules {
            content.rules += 1;
            let target = rule.target.chain().filter(|chain| chain.starts_with("KUBE-"));
            if let Some(chain) = target.filter(|chain| !names::is_per_service(chain)) {
                *content.leads.entry(chain.to_owned()).or_default() += 1;
            }
        }
        content
    }
}

/// What stands in the kernel of ours, as far as a look asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Standing {
    chains: BTreeMap<Place, Content>,
    /// Rules of service ports' own chains that lead to `KUBE-MARK-MASQ`.
    marking: usize,
    jumps: BTreeMap<Place, usize>,
}

impl Standing {
    /// How much each chain of a table must be in use.
    fn least(&self, table: Table) -> Vec<(&str, usize)> {
        let chains = || self.chains.iter().filter(move |((of, _), _)| *of == table);
        let mut least: BTreeMap<&str, usize> = chains().map(|((_, name), held)| (&name[..], held.rules)).collect();
        let led = chains().flat_map(|(_, held)| held.leads.iter().map(|(to, count)| (&to[..], *count)));
        let jumps = self.jumps.iter().filter(|((of, _), _)| *of == table).map(|((_, to), count)| (&to[..], *count));
        let marking = (table == Table::Nat).then_some((names::MARK_MASQ, self.marking));
        for (to, count) in led.chain(jumps).chain(marking) {
            least.entry(to).and_modify(|sum| *sum += count);
        }
        least.into_iter().collect()
    }
}

/// Looks after one family's rules.
#[derive(Debug, Default)]
pub struct Guard {
    /// `None` while the kernel's state is not known.
    standing: Option<Standing>,
    /// The last loss, with what was seen in its place.
    suspicion: Option<(Place, usize)>,
    /// What a loss was reported for, and a full sync then found nothing to mend: the kernel counts otherwise than we do.
    tolerated: BTreeMap<Place, usize>,
}

impl Guard {
    /// The kernel's state is not known: nothing can be missed.
    pub fn require_full_sync(&mut self) {
        self.standing = None;
    }

    /// A full sync will bring these chains and jumps; `marking`: rules that lead to `KUBE-MARK-MASQ` in further chains, those of
    /// service ports.
    pub fn expect<'a, 'j>(
        &mut self,
        wanted: impl Iterator<Item = ((Table, &'static str), impl Iterator<Item = &'a Rule>)>,
        marking: usize,
        jumps: impl IntoIterator<Item = &'j Jump>,
    ) {
        let chains = wanted.map(|((table, name), rules)| ((table, name.to_owned()), Content::of(rules))).collect();
        let mut standing = Standing { marking, chains, jumps: BTreeMap::new() };
        for jump in jumps {
            *standing.jumps.entry((jump.table, jump.to.to_owned())).or_default() += 1;
        }
        self.standing = Some(standing);
    }

    /// The full sync has ended. A loss that led to it and that it found nothing of is not to be reported for ever.
    pub fn mended(&mut self, report: &Report) {
        let Some((place, seen)) = self.suspicion.take() else { return };
        if report.rules + report.removed_chains + report.jumps == 0 {
            self.tolerated.insert(place, seen);
        }
    }

    /// A partial sync has written a chain anew.
    pub fn rewritten<'a>(&mut self, (table, chain): (Table, &str), rules: impl Iterator<Item = &'a Rule>) {
        if let Some(standing) = &mut self.standing {
            standing.chains.insert((table, chain.to_owned()), Content::of(rules));
        }
    }

    /// A partial sync has put so many rules that lead to `KUBE-MARK-MASQ` into service ports' chains, for so many before.
    pub fn marking(&mut self, before: usize, after: usize) {
        if let Some(standing) = &mut self.standing {
            standing.marking = (standing.marking + after).saturating_sub(before);
        }
    }

    /// What of ours is not there any more, in words.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn lost(&mut self, kernel: &mut dyn PacketFilter) -> Result<Option<String>, IptablesError> {
        let Some(standing) = &self.standing else { return Ok(None) };
        let generation = kernel.generation()?;
        if kernel.is_untouched(generation) {
            return Ok(None);
        }
        for table in Table::ALL {
            let least = standing.least(table);
            let chains: Vec<&str> = least.iter().map(|(chain, _)| *chain).collect();
            let uses = kernel.uses(table, &chains)?;
            for ((chain, least), seen) in least.into_iter().zip(uses) {
                let place = (table, chain.to_owned());
                let Some(seen) = seen else {
                    self.suspicion = None;
                    return Ok(Some(format!("chain {chain} of table {table}")));
                };
                if seen < least && self.tolerated.get(&place).is_none_or(|tolerated| seen < *tolerated) {
                    self.suspicion = Some((place, seen));
                    let missing = least - seen;
                    let rules = if missing == 1 { "a rule".to_owned() } else { format!("{missing} rules") };
                    return Ok(Some(format!("{rules} of chain {chain} of table {table}, or leading to it")));
                }
            }
        }
        kernel.trust(generation);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::iptables::Fake;
    use crate::model::Protocol;
    use crate::ruleset::Target;

    const JUMP: Jump = Jump::new(Table::Nat, "PREROUTING", names::SERVICES, &[]);

    fn stands() -> (Fake, Guard) {
        let tcp = || Rule::new().protocol(Protocol::Tcp);
        let mark = Rule::new().target(Target::Mark { mark: 0x4000, mask: 0x4000 });
        let endpoint = tcp().dnat(Protocol::Tcp, "10.0.0.1:80".parse().unwrap());
        let hairpin = Rule::new().source_ip("10.0.0.1".parse().unwrap()).jump(names::MARK_MASQ);
        let nat = BTreeMap::from([
            (names::SERVICES.to_owned(), vec![tcp().jump("KUBE-SVC-A"), Rule::new().jump(names::NODE_PORTS)]),
            (names::NODE_PORTS.to_owned(), Vec::new()),
            (names::MARK_MASQ.to_owned(), vec![mark]),
            ("KUBE-SVC-A".to_owned(), vec![hairpin, endpoint]),
        ]);
        let mut guard = Guard::default();
        let fixed = [names::SERVICES, names::NODE_PORTS, names::MARK_MASQ];
        guard.expect(fixed.into_iter().map(|name| ((Table::Nat, name), nat[name].iter())), 1, [&JUMP]);
        let mut kernel = Fake::default();
        let table = kernel.tables.get_mut(&Table::Nat).unwrap();
        let text = |rules: Vec<Rule>| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        table.extend(nat.into_iter().map(|(chain, rules)| (chain, text(rules))));
        table.insert("PREROUTING".to_owned(), text(vec![JUMP.rule()]));
        (kernel, guard)
    }

    #[test]
    fn every_loss_is_seen_and_what_others_add_is_none() {
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
            let (mut kernel, mut guard) = stands();
            assert_eq!(guard.lost(&mut kernel).unwrap(), None);
            damage(kernel.tables.get_mut(&Table::Nat).unwrap());
            let lost = guard.lost(&mut kernel).unwrap().unwrap_or_default();
            assert!(lost.contains(words), "{what}: {lost}");
        }
        let (mut kernel, mut guard) = stands();
        let nat = kernel.tables.get_mut(&Table::Nat).unwrap();
        nat.insert("FOREIGN".to_owned(), vec!["-j KUBE-MARK-MASQ".to_owned()]);
        nat.get_mut("KUBE-SERVICES").unwrap().push("-j FOREIGN".to_owned());
        assert_eq!(guard.lost(&mut kernel).unwrap(), None);
    }

    #[test]
    fn partial_syncs_are_followed() {
        let (mut kernel, mut guard) = stands();
        let nat = kernel.tables.get_mut(&Table::Nat).unwrap();
        nat.remove("KUBE-SVC-A");
        nat.get_mut("KUBE-SERVICES").unwrap().remove(0);
        let services = [Rule::new().jump(names::NODE_PORTS)];
        guard.rewritten((Table::Nat, "KUBE-SERVICES"), services.iter());
        guard.marking(1, 0);
        assert_eq!(guard.lost(&mut kernel).unwrap(), None);
        guard.marking(0, 1);
        assert!(guard.lost(&mut kernel).unwrap().is_some());
        guard.require_full_sync();
        assert_eq!(guard.lost(&mut kernel).unwrap(), None);
    }

    #[test]
    fn a_kernel_that_counts_otherwise_costs_one_full_sync_and_still_shows_a_flush() {
        let (mut kernel, mut guard) = stands();
        let (_, again) = stands();
        kernel.tables.get_mut(&Table::Nat).unwrap().get_mut("PREROUTING").unwrap().clear();
        assert!(guard.lost(&mut kernel).unwrap().is_some());
        guard.standing = again.standing;
        guard.mended(&Report::default());
        assert_eq!(guard.lost(&mut kernel).unwrap(), None);
        kernel.tables.get_mut(&Table::Nat).unwrap().get_mut("KUBE-SERVICES").unwrap().clear();
        assert!(guard.lost(&mut kernel).unwrap().is_some());
    }
}
