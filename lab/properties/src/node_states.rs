use std::collections::BTreeMap;

use svclab_oracle::{ClusterModel, NodeMachine};
use svclab_sim::cluster::{NodeReadError, NodeState};
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::relays::Relays;

use crate::proxies::{Dump, Proxies};

pub fn read(dump: &Dump) -> Result<NodeState, NodeReadError> {
    let mut state = NodeState { relays: dump.relays.clone(), ..NodeState::default() };
    state.read_rules("iptables-save", Family::V4, &dump.v4)?;
    state.read_rules("ip6tables-save", Family::V6, &dump.v6)?;
    state.read_nft("nft list ruleset", &dump.nft)?;
    state.read_sets("ipset save", &dump.sets)?;
    state.read_servers("ipvsadm -Sn", &dump.servers)?;
    state.read_addresses("ip addr", &dump.addresses)?;
    Ok(state)
}

pub fn differ_only_in_rules(one: &NodeState, other: &NodeState) -> bool {
    let rest = |state: &NodeState| {
        let NodeState { v4: _, v6: _, second: _, nft: _, sets, servers, addresses, relays } = state.clone();
        (sets, servers, addresses, relays)
    };
    rest(one) == rest(other)
}

/// The error names a refused object, transaction or line.
pub fn of_fresh_proxies(cluster: &ClusterModel) -> Result<BTreeMap<String, NodeState>, String> {
    let state = |node: &NodeMachine| {
        let state = read(&Proxies::synced(cluster, &node.name)?.dump()).map_err(|error| error.to_string())?;
        Ok((node.name.clone(), state))
    };
    cluster.world.nodes.iter().map(state).collect()
}

/// Replaces port numbers, which differ between runs, by the ports' backends.
pub fn name_listening_ports(rules: &str, family: Family, relays: &Relays) -> String {
    let line = |line: &str| {
        let protocol = if line.contains("-p udp ") { Protocol::UDP } else { Protocol::TCP };
        let word = |word: &str| {
            let (before, number) = word.rsplit_once(':').unwrap_or(("", word));
            let relay = number.parse().ok().and_then(|port: u16| relays.get(&(family, protocol, port)));
            relay.map_or_else(|| word.to_owned(), |relay| format!("{before}:{:?}", relay.to))
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n"
    };
    rules.lines().map(line).collect()
}
