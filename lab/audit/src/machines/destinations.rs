use std::collections::BTreeSet;
use std::net::IpAddr;

use svclab_sim::cluster::NodeState;
use svclab_sim::rules::{RuleTarget, Rules};

/// Returns the target addresses of rules, elements and virtual servers; of a range, the first address.
#[must_use]
pub fn destinations(state: &NodeState) -> BTreeSet<IpAddr> {
    let servers = state.servers.services.iter().flat_map(|service| &service.servers);
    let mut found: BTreeSet<IpAddr> = servers.map(|server| server.address.ip()).collect();
    for rules in [&state.v4, &state.v6] {
        found.extend(translated(rules));
    }
    found.extend(state.nft.translated_to());
    found
}

fn translated(rules: &Rules) -> impl Iterator<Item = IpAddr> {
    let all = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    all.filter_map(|rule| match &rule.target {
        RuleTarget::Dnat(range) => range.addresses.map(|(first, _)| first),
        _ => None,
    })
}
