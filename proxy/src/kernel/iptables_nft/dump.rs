//! The chains of the tables, and the rules of those that are to be read.

use nf_tables::{ReadError, Socket};

use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::ruleset::Table;

/// A chain.
pub(super) struct Dumped {
    pub(super) table: Table,
    pub(super) chain: String,
    /// Its rules' expressions; none of an unread chain.
    pub(super) rules: Vec<Vec<u8>>,
}

/// Reads them, one chain after the other.
pub(super) fn take(
    socket: &mut Socket,
    family: Family,
    tables: &[Table],
    unread: &dyn Fn(Table, &str) -> bool,
) -> Result<Vec<Dumped>, ReadError> {
    let family = of_kernel(family);
    let named = |name: &str| tables.iter().copied().find(|table| table.as_str() == name);
    let chains = socket.chains(family)?;
    let dumped = |(table, chain): (Table, &str)| Dumped { table, chain: chain.to_owned(), rules: Vec::new() };
    let mut chains: Vec<Dumped> =
        chains.filter_map(|chain| Some((named(chain.table)?, chain.name))).map(dumped).collect();
    for Dumped { table, chain, rules } in chains.iter_mut().filter(|chain| !unread(chain.table, &chain.chain)) {
        let of = nf_tables::Table::new(family, table.as_str());
        *rules = socket.rules(of, chain)?.map(|rule| rule.expressions.to_vec()).collect();
    }
    Ok(chains)
}
