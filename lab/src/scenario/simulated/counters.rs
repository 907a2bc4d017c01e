//! How many packets each rule has matched, counted off the journeys.

use std::collections::BTreeMap;
use std::sync::Arc;

use svclab_sim::network::{Journey, JourneyLeg};
use svclab_sim::protocol::Family;
use svclab_sim::rules::Rules;
use svclab_sim::trace::Event;

use crate::expect::counters::{Rule, Ruleset};

/// A rule: its family, table, chain, and place in the chain, from 1.
type Place = (Family, String, String, usize);

/// Packets by machine and rule, since the machine was programmed.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters(BTreeMap<String, BTreeMap<Place, u64>>);

impl Counters {
    /// A machine has other rules.
    pub(super) fn forget(&mut self, machine: &str) {
        self.0.remove(machine);
    }

    /// Counts a packet's way and the way back.
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

    /// A machine's rules of a family as `iptables-save -c` would tell them; with 0 where nothing has been counted.
    pub(super) fn ruleset(counters: Option<&Counters>, machine: &str, rules: &Rules) -> Ruleset {
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
                    ruleset.rules.push(Rule {
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
