use std::collections::BTreeMap;
use std::sync::Arc;

use svclab_sim::network::{Journey, JourneyLeg};
use svclab_sim::protocol::Family;
use svclab_sim::rules::Rules;
use svclab_sim::trace::Event;

use crate::expect::counters::{ListedRule, Ruleset};

type RulePosition = (Family, String, String, usize);

/// The number of packets by host and rule, since the host's last change of rules.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleCounters(BTreeMap<String, BTreeMap<RulePosition, u64>>);

impl RuleCounters {
    pub(super) fn forget(&mut self, machine: &str) {
        self.0.remove(machine);
    }

    pub(super) fn note(&mut self, journey: &Journey) {
        self.note_leg(&journey.request);
        journey.reply.iter().for_each(|leg| self.note_leg(leg));
    }

    fn note_leg(&mut self, leg: &JourneyLeg) {
        let mut at: Option<&Arc<str>> = None;
        for event in &leg.trace {
            match event {
                Event::Sent { host, .. } | Event::Arrived { host, .. } => at = Some(host),
                Event::Matched(rule) => {
                    let (Some(host), Some(family)) = (at, rule.iptables_family()) else { continue };
                    let place = (family, rule.table().to_string(), rule.chain().to_owned(), rule.number());
                    *self.0.entry(host.to_string()).or_default().entry(place).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    pub(super) fn ruleset(counters: Option<&RuleCounters>, machine: &str, rules: &Rules) -> Ruleset {
        let mut ruleset = Ruleset::default();
        let counted = counters.and_then(|counters| counters.0.get(machine));
        for table in &rules.tables {
            for chain in &table.chains {
                let (table, chain_name) = (table.name.to_string(), chain.name.clone());
                ruleset.chains.push((table.clone(), chain_name.clone()));
                for (rule, number) in chain.rules.iter().zip(1..) {
                    let place = (rules.family, table.clone(), chain_name.clone(), number);
                    let packets = counted.and_then(|counted| counted.get(&place)).copied().unwrap_or_default();
                    let text = rule.to_string().trim_start().to_owned();
                    ruleset.rules.push(ListedRule {
                        table: table.clone(),
                        chain: chain_name.clone(),
                        text,
                        packets: Some(packets),
                    });
                }
            }
        }
        ruleset
    }
}
