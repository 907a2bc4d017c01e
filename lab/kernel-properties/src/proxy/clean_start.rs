use std::collections::BTreeMap;

use svclab_properties::nft_compare::comparable_lines;
use svclab_properties::node_states::{name_listening_ports, read};
use svclab_properties::proxies::Dump;
use svclab_sim::cluster::NodeState;
use svclab_sim::relays::Relays;
use svclab_sim::rules::{Rule, Rules};

pub(super) fn compare(found: &Dump, fresh: &Dump) -> Result<(), String> {
    let elements = |dump: &Dump| comparable_lines(&dump.nft).map(|all| all.into_iter().collect());
    let elements = |dump: &Dump| elements(dump).map_err(|error| error.to_string());
    lists("an element or chain", elements(found)?, elements(fresh)?)?;
    let state = |dump: &Dump| read(dump).map_err(|error| error.to_string());
    let (found, fresh) = (state(found)?, state(fresh)?);
    same_rules(&found.v4, &found.relays, &fresh.v4, &fresh.relays)?;
    same_rules(&found.v6, &found.relays, &fresh.v6, &fresh.relays)?;
    lists("an IP set", sets(&found), sets(&fresh))?;
    lists("a virtual server", servers(&found), servers(&fresh))?;
    let addresses = |state: &NodeState| state.addresses.iter().map(|own| format!("{own:?}")).collect();
    lists("an address", addresses(&found), addresses(&fresh))?;
    let relays = |state: &NodeState| state.relays.values().map(|relay| format!("{:?}", relay.to)).collect();
    lists("a listening port", relays(&found), relays(&fresh))
}

type RulesByChain = BTreeMap<(&'static str, String), Vec<String>>;

/// The chain that guards the loopback range. A proxy keeps it, because `route_localnet` may stay set.
const GUARD: &str = "KUBE-FIREWALL";
const GUARD_JUMP: &str = "-j KUBE-FIREWALL";

fn same_rules(found: &Rules, found_relays: &Relays, fresh: &Rules, fresh_relays: &Relays) -> Result<(), String> {
    let (mut found, fresh) = (by_chain(found, found_relays), by_chain(fresh, fresh_relays));
    if !fresh.keys().any(|(table, chain)| (*table, chain.as_str()) == ("filter", GUARD)) {
        found.retain(|(table, chain), _| (*table, chain.as_str()) != ("filter", GUARD));
        found.values_mut().for_each(|rules| rules.retain(|rule| rule != GUARD_JUMP));
        found.retain(|(_, chain), rules| chain.starts_with("KUBE-") || !rules.is_empty());
    }
    let mut chains = found.keys().chain(fresh.keys());
    let Some(at) = chains.find(|at| found.get(at) != fresh.get(at)) else { return Ok(()) };
    let rules = |of: &RulesByChain| match of.get(at) {
        Some(rules) => format!("  {}", rules.join("\n  ")),
        None => "  no such chain".to_owned(),
    };
    let (table, chain) = at;
    Err(format!("{table} {chain} is\n{}\nand after a clean start it is\n{}", rules(&found), rules(&fresh)))
}

/// Omits empty built-in chains, and sorts the others' rules: a re-added jump has another position.
fn by_chain(rules: &Rules, relays: &Relays) -> RulesByChain {
    let mut chains = RulesByChain::new();
    for (table, chain) in rules.tables.iter().flat_map(|table| table.chains.iter().map(move |chain| (table, chain))) {
        let name = |rule: &Rule| name_listening_ports(&rule.to_string(), rules.family, relays).trim().to_owned();
        let mut lines: Vec<String> = chain.rules.iter().map(name).collect();
        if table.name.built_in().contains(&chain.name.as_str()) {
            if lines.is_empty() {
                continue;
            }
            lines.sort_unstable();
        }
        chains.insert((table.name.name(), chain.name.clone()), lines);
    }
    chains
}

/// Omits hash sizes, which depend on a set's first owner.
fn sets(state: &NodeState) -> Vec<String> {
    let set = |set: &svclab_sim::set::IpSet| {
        let mut elements: Vec<String> = set.elements.iter().map(|element| format!("{element:?}")).collect();
        elements.sort_unstable();
        format!("{}: {}", set.name, elements.join(" "))
    };
    state.sets.sets.iter().map(set).collect()
}

/// Omits draining servers, which a clean start does not have.
fn servers(state: &NodeState) -> Vec<String> {
    let service = |service: &svclab_sim::ipvs::VirtualService| {
        let mut service = service.clone();
        service.servers.retain(|server| server.weight > 0);
        service.servers.sort_by_key(|server| server.address);
        format!("{service:?}")
    };
    state.servers.services.iter().map(service).collect()
}

fn lists(what: &str, mut found: Vec<String>, mut fresh: Vec<String>) -> Result<(), String> {
    found.sort_unstable();
    fresh.sort_unstable();
    let only = |here: &[String], there: &[String]| here.iter().find(|one| !there.contains(one)).cloned();
    match (only(&found, &fresh), only(&fresh, &found)) {
        (Some(one), _) => Err(format!("{what} is there that a clean start does not leave: {one}")),
        (None, Some(one)) => Err(format!("{what} is missing that a clean start leaves: {one}")),
        (None, None) if found.len() != fresh.len() => {
            Err(format!("{what} is there more often or less than after a clean start"))
        }
        (None, None) => Ok(()),
    }
}
