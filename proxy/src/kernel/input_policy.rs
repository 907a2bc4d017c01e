//! Firewalls that drop what comes in to the node unless a rule accepts it.

use nf_tables::{Hook, Policy, Socket};

use super::iptables::Legacy;
use crate::model::Family;
use crate::nftables::text::of_kernel;

/// The chains at the hook `input` whose policy is to drop this family's packets, each in words for a message. Those that cannot be read
/// are left out.
pub fn dropping(family: Family) -> Vec<String> {
    let mut found: Vec<String> = [of_kernel(family), nf_tables::Family::Inet]
        .into_iter()
        .flat_map(|tables| of_nf_tables(tables).unwrap_or_default())
        .collect();
    if Legacy::open(family).is_ok_and(|legacy| legacy.drops_input()) {
        found.push("chain INPUT of iptables-legacy".to_owned());
    }
    found
}

fn of_nf_tables(family: nf_tables::Family) -> Option<Vec<String>> {
    let mut socket = Socket::open().ok()?;
    let chains = socket.chains(family).ok()?;
    let drops = chains
        .filter(|chain| chain.base.is_some_and(|base| base.hook == Some(Hook::Input) && base.policy == Policy::Drop));
    Some(drops.map(|chain| format!("chain {} of table {}", chain.name, chain.table)).collect())
}
