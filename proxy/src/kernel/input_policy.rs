//! Firewalls that drop incoming packets by default.

use nf_tables::{ChainPolicy, NfHook, NfSocket};

use super::iptables::LegacyTables;
use crate::model::Family;
use crate::nftables::text::of_kernel;

pub fn dropping(family: Family) -> Vec<String> {
    let mut found: Vec<String> = [of_kernel(family), nf_tables::Family::Inet]
        .into_iter()
        .flat_map(|tables| of_nf_tables(tables).unwrap_or_default())
        .collect();
    if LegacyTables::open(family).is_ok_and(|legacy| legacy.drops_input()) {
        found.push("chain INPUT of iptables-legacy".to_owned());
    }
    found
}

fn of_nf_tables(family: nf_tables::Family) -> Option<Vec<String>> {
    let mut socket = NfSocket::open().ok()?;
    let chains = socket.chains(family).ok()?;
    let drops = chains.filter(|chain| {
        chain.base.is_some_and(|base| base.hook == Some(NfHook::Input) && base.policy == ChainPolicy::Drop)
    });
    Some(drops.map(|chain| format!("chain {} of table {}", chain.name, chain.table)).collect())
}
