//! The built-in chains of iptables.

use crate::batch::{BaseChain, Hook, Policy};

/// Table, name, type, hook and priority (`xtables_ipv4` in `nft.c` of iptables).
const fn chain(
    table: &'static str,
    name: &'static str,
    kind: &'static str,
    hook: Hook,
    priority: i32,
) -> (&'static str, &'static str, BaseChain<'static>) {
    (table, name, BaseChain { kind, hook, priority, policy: Some(Policy::Accept) })
}

/// Every built-in chain of both families: table, name, and the base chain that iptables-nft creates.
pub const BUILT_IN: [(&str, &str, BaseChain<'static>); 17] = [
    chain("raw", "PREROUTING", "filter", Hook::Prerouting, -300),
    chain("raw", "OUTPUT", "filter", Hook::Output, -300),
    chain("mangle", "PREROUTING", "filter", Hook::Prerouting, -150),
    chain("mangle", "INPUT", "filter", Hook::Input, -150),
    chain("mangle", "FORWARD", "filter", Hook::Forward, -150),
    chain("mangle", "OUTPUT", "route", Hook::Output, -150),
    chain("mangle", "POSTROUTING", "filter", Hook::Postrouting, -150),
    chain("filter", "INPUT", "filter", Hook::Input, 0),
    chain("filter", "FORWARD", "filter", Hook::Forward, 0),
    chain("filter", "OUTPUT", "filter", Hook::Output, 0),
    chain("security", "INPUT", "filter", Hook::Input, 150),
    chain("security", "FORWARD", "filter", Hook::Forward, 150),
    chain("security", "OUTPUT", "filter", Hook::Output, 150),
    chain("nat", "PREROUTING", "nat", Hook::Prerouting, -100),
    chain("nat", "INPUT", "nat", Hook::Input, 100),
    chain("nat", "OUTPUT", "nat", Hook::Output, -100),
    chain("nat", "POSTROUTING", "nat", Hook::Postrouting, 100),
];

/// The base chain that iptables-nft creates for a built-in chain; `None` for another name.
pub fn built_in(table: &str, name: &str) -> Option<BaseChain<'static>> {
    BUILT_IN.iter().find(|(of, chain, _)| (*of, *chain) == (table, name)).map(|(_, _, chain)| *chain)
}
