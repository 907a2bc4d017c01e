use nf_tables::{NfSocket, QueryError};

use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::ruleset::Table;

pub(super) struct DumpedChain {
    pub(super) table: Table,
    pub(super) chain: String,
    /// The expressions of each rule; empty for an unread chain.
    pub(super) rules: Vec<Vec<u8>>,
}

pub(super) fn take(
    socket: &mut NfSocket,
    family: Family,
    tables: &[Table],
    unread: &dyn Fn(Table, &str) -> bool,
) -> Result<Vec<DumpedChain>, QueryError> {
    let family = of_kernel(family);
    let named = |name: &str| tables.iter().copied().find(|table| table.as_str() == name);
    let chains = socket.chains(family)?;
    let dumped = |(table, chain): (Table, &str)| DumpedChain { table, chain: chain.to_owned(), rules: Vec::new() };
    let mut chains: Vec<DumpedChain> =
        chains.filter_map(|chain| Some((named(chain.table)?, chain.name))).map(dumped).collect();
    for DumpedChain { table, chain, rules } in chains.iter_mut().filter(|chain| !unread(chain.table, &chain.chain)) {
        let of = nf_tables::Table::new(family, table.as_str());
        *rules = socket.rules(of, chain)?.map(|rule| rule.expressions.to_vec()).collect();
    }
    Ok(chains)
}
