//! Counts which rules and elements of the proxy the calls met: what none met may be wrong unseen.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use serde::Serialize;
use svclab_sim::cluster::NodeState;
use svclab_sim::network::Outcomes;
use svclab_sim::trace::{ElementRef, Event, RuleRef};

use crate::owner::{ProxyTables, RuleOwner, of_chain};

/// The most lines of [`Coverage::unmet`].
const SHOWN: usize = 12;

/// The rules, elements of nftables' sets, and real servers of the proxy, and how many of them calls met.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// All.
    pub total: usize,
    /// Those that a call met.
    pub met: usize,
    /// The others by kind, the most frequent first: their number and an example.
    pub unmet: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Met {
    rules: HashSet<RuleRef>,
    elements: HashSet<ElementRef>,
    /// By virtual server and real server.
    servers: HashSet<(SocketAddr, SocketAddr)>,
}

impl Met {
    pub(super) fn add(&mut self, found: &Outcomes) {
        for (_, journey) in &found.ways {
            let legs = std::iter::once(&journey.request).chain(&journey.reply);
            legs.flat_map(|leg| &leg.trace).for_each(|event| self.event(event));
            for element in &journey.elements {
                if !self.elements.contains(element) {
                    self.elements.insert(element.clone());
                }
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Matched(rule) | Event::NftMatched(rule) if !self.rules.contains(rule) => {
                self.rules.insert(rule.clone());
            }
            Event::Scheduled { service, server, .. } => {
                self.servers.insert((*service, *server));
            }
            _ => {}
        }
    }

    pub(super) fn merge(&mut self, other: Met) {
        self.rules.extend(other.rules);
        self.elements.extend(other.elements);
        self.servers.extend(other.servers);
    }

    pub(super) fn coverage(&self, state: &NodeState, tables: &ProxyTables) -> Coverage {
        let mut coverage = Coverage::default();
        let mut unmet: BTreeMap<String, (usize, String)> = BTreeMap::new();
        let mut count = |is_met: bool, kind: &dyn Fn() -> String, example: &dyn Fn() -> String| {
            coverage.total += 1;
            coverage.met += usize::from(is_met);
            if !is_met {
                unmet.entry(kind()).or_insert_with(|| (0, example())).0 += 1;
            }
        };
        for rules in [&state.v4, &state.v6].into_iter().chain(&state.second) {
            for rule in RuleRef::all(rules).filter(|rule| matches!(of_chain(rule.chain()), RuleOwner::Proxy(_))) {
                count(self.rules.contains(&rule), &|| kind(&rule), &|| rule.to_string());
            }
        }
        for rule in
            RuleRef::all_nft(&state.nft).filter(|rule| rule.table_of_nftables().is_some_and(|table| tables.has(table)))
        {
            count(self.rules.contains(&rule), &|| kind(&rule), &|| format!("{}: {rule}", rule.place()));
        }
        for element in ElementRef::all(&state.nft).filter(|element| tables.has(element.table())) {
            let kind = || format!("element of @{}", element.set().name);
            count(self.elements.contains(&element), &kind, &|| element.to_string());
        }
        for service in &state.servers.services {
            for server in &service.servers {
                let is_met = self.servers.contains(&(service.address, server.address));
                let example = || format!("{} of {}", server.address, service.address);
                count(is_met, &|| "real server".to_owned(), &example);
            }
        }
        let mut kinds: Vec<(String, (usize, String))> = unmet.into_iter().collect();
        kinds.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        let line = |(kind, (count, example))| format!("{count} × {kind}, such as {example}");
        coverage.unmet = kinds.into_iter().take(SHOWN).map(line).collect();
        coverage
    }
}

/// Returns `rule of KUBE-SEP- with -j KUBE-MARK-MASQ`: the chain without a service's hash, and the target.
fn kind(rule: &RuleRef) -> String {
    let text = rule.to_string();
    let chain = match rule.chain().match_indices('-').nth(1) {
        Some((end, _)) => &rule.chain()[..=end],
        None => rule.chain(),
    };
    match text.rsplit_once(" -j ").or_else(|| text.rsplit_once(" -g ")) {
        Some((_, target)) => {
            let target = target.split(' ').next().unwrap_or_default();
            format!("rule of {chain} with -j {}", target.split_inclusive('-').take(2).collect::<String>())
        }
        None => format!("rule of {chain}"),
    }
}
