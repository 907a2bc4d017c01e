//! Whether a node's kernel is what a proxy leaves on a machine that nobody has touched.

use std::collections::BTreeMap;

use svclab_properties::nft_meaning::content;
use svclab_properties::programs::read;
use svclab_properties::proxies::Dump;
use svclab_sim::cluster::NodeState;
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::relays::Relays;

/// The first thing that is not as after a clean start.
pub(super) fn compare(found: &Dump, fresh: &Dump) -> Result<(), String> {
    for family in [Family::V4, Family::V6] {
        let text = |dump: &Dump| {
            let text = if family == Family::V4 { &dump.v4 } else { &dump.v6 };
            without_ports(text, family, &dump.relays)
        };
        same_rules(&text(found), &text(fresh))?;
    }
    let elements =
        |dump: &Dump| content(&dump.nft).map(|all| all.into_iter().collect()).map_err(|error| error.to_string());
    lists("an element or chain", elements(found)?, elements(fresh)?)?;
    let (found, fresh) = (state(found)?, state(fresh)?);
    lists("an IP set", sets(&found), sets(&fresh))?;
    lists("a virtual server", servers(&found), servers(&fresh))?;
    let addresses = |state: &NodeState| state.addresses.iter().map(|own| format!("{own:?}")).collect();
    lists("an address", addresses(&found), addresses(&fresh))?;
    let relays = |state: &NodeState| state.relays.values().map(|relay| format!("{:?}", relay.to)).collect();
    lists("a listening port", relays(&found), relays(&fresh))
}

fn state(dump: &Dump) -> Result<NodeState, String> {
    read(dump).map_err(|error| error.to_string())
}

fn same_rules(found: &str, fresh: &str) -> Result<(), String> {
    let (mut found, mut fresh) = (by_chain(found), by_chain(fresh));
    sort_jumps(&mut found);
    sort_jumps(&mut fresh);
    if !fresh.contains_key(&("filter", GUARD)) {
        found.remove(&("filter", GUARD));
        found.values_mut().for_each(|rules| rules.retain(|rule| *rule != GUARDED));
    }
    let chains = found.keys().chain(fresh.keys());
    if let Some(at) = chains.into_iter().find(|at| found.get(at) != fresh.get(at)) {
        let rules = |of: &BTreeMap<_, Vec<&str>>| match of.get(at) {
            Some(rules) => format!("  {}", rules.join("\n  ")),
            None => "  no such chain".to_owned(),
        };
        let (table, chain) = at;
        let (found, fresh) = (rules(&found), rules(&fresh));
        return Err(format!("{table} {chain} is\n{found}\nand after a clean start it is\n{fresh}"));
    }
    Ok(())
}

/// Rules by table and chain. The kernel's own chains are there or not, and say nothing while they are empty.
fn by_chain(text: &str) -> BTreeMap<(&str, &str), Vec<&str>> {
    let mut chains: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split(' ');
            if let (Some(chain), Some("-")) = (words.next(), words.next()) {
                chains.entry((table, chain)).or_default();
            }
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let (chain, rule) = rule.split_once(' ').unwrap_or((rule, ""));
            chains.entry((table, chain)).or_default().push(rule);
        }
    }
    chains
}

/// The guard of the loopback range, and the jump to it. It stays when a proxy needs it no more, on purpose: `route_localnet`
/// may have been set for good.
const GUARD: &str = "KUBE-FIREWALL";
const GUARDED: &str = "-j KUBE-FIREWALL";

/// Lets the order of jumps in the kernel's own chains go: one that somebody has taken away comes back before the others, and no two
/// of them lead to rules about the same packets.
fn sort_jumps(chains: &mut BTreeMap<(&str, &str), Vec<&str>>) {
    let own = chains.iter_mut().filter(|((_, chain), _)| !chain.starts_with("KUBE-"));
    own.for_each(|(_, rules)| rules.sort_unstable());
}

/// Listening ports by whom they lead to: of two listeners that would like the same number, the one that was there first has it.
fn without_ports(text: &str, family: Family, relays: &Relays) -> String {
    let line = |line: &str| {
        let protocol = if line.contains("-p udp ") { Protocol::UDP } else { Protocol::TCP };
        let word = |word: &str| {
            let (before, number) = word.rsplit_once(':').map_or(("", word), |(before, number)| (before, number));
            let to = number.parse().ok().and_then(|port: u16| relays.get(&(family, protocol, port)));
            to.map_or_else(|| word.to_owned(), |relay| format!("{before}:{:?}", relay.to))
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

/// Names and members. Who made a set first has decided how large its table is.
fn sets(state: &NodeState) -> Vec<String> {
    let set = |set: &svclab_sim::set::IpSet| {
        let mut elements: Vec<String> = set.elements.iter().map(|element| format!("{element:?}")).collect();
        elements.sort_unstable();
        format!("{}: {}", set.name, elements.join(" "))
    };
    state.sets.sets.iter().map(set).collect()
}

/// Servers that drain are in no fresh start.
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
