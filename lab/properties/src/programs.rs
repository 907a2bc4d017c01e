//! What proxies leave on nodes, as the simulator reads it from what the commands print.

use std::collections::BTreeMap;

use svclab_oracle::ClusterModel;
use svclab_sim::cluster::{NodeReadError, NodeState};
use svclab_sim::protocol::Family;

use crate::proxies::{Dump, Proxies, changes};

/// Reads what the commands of a node print.
///
/// # Errors
/// The first line that the simulator does not understand.
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

/// Whether everything but the rules is the same.
#[must_use]
pub fn differ_only_in_rules(one: &NodeState, other: &NodeState) -> bool {
    let rest = |state: &NodeState| {
        let NodeState { v4: _, v6: _, second: _, nft: _, sets, servers, addresses, relays } = state.clone();
        (sets, servers, addresses, relays)
    };
    rest(one) == rest(other)
}

/// Every node's, as fresh proxies leave it.
///
/// # Errors
/// What was refused: an object, a transaction, a line of what was printed.
pub fn programs(cluster: &ClusterModel) -> Result<BTreeMap<String, NodeState>, String> {
    let (changes, refused) = changes(&cluster.objects);
    if !refused.is_empty() {
        return Err(format!("refused: {}", refused.join("; ")));
    }
    let mut programs = BTreeMap::new();
    for node in &cluster.world.nodes {
        let mut proxies = Proxies::fresh(&cluster.world, &node.name);
        proxies.apply(&changes);
        proxies.sync()?;
        programs.insert(node.name.clone(), read(&proxies.dump()).map_err(|error| error.to_string())?);
    }
    Ok(programs)
}
