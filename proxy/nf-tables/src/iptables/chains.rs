use crate::batch::{BaseChain, ChainPolicy, NfHook};

/// A chain of `xtables_ipv4` in iptables' `nft.c`.
const fn chain(
    table: &'static str,
    name: &'static str,
    kind: &'static str,
    hook: NfHook,
    priority: i32,
) -> (&'static str, &'static str, BaseChain<'static>) {
    (table, name, BaseChain { kind, hook, priority, policy: Some(ChainPolicy::Accept) })
}

/// Each chain's table, name and definition.
pub const BUILT_IN: [(&str, &str, BaseChain<'static>); 17] = [
    chain("raw", "PREROUTING", "filter", NfHook::Prerouting, -300),
    chain("raw", "OUTPUT", "filter", NfHook::Output, -300),
    chain("mangle", "PREROUTING", "filter", NfHook::Prerouting, -150),
    chain("mangle", "INPUT", "filter", NfHook::Input, -150),
    chain("mangle", "FORWARD", "filter", NfHook::Forward, -150),
    chain("mangle", "OUTPUT", "route", NfHook::Output, -150),
    chain("mangle", "POSTROUTING", "filter", NfHook::Postrouting, -150),
    chain("filter", "INPUT", "filter", NfHook::Input, 0),
    chain("filter", "FORWARD", "filter", NfHook::Forward, 0),
    chain("filter", "OUTPUT", "filter", NfHook::Output, 0),
    chain("security", "INPUT", "filter", NfHook::Input, 150),
    chain("security", "FORWARD", "filter", NfHook::Forward, 150),
    chain("security", "OUTPUT", "filter", NfHook::Output, 150),
    chain("nat", "PREROUTING", "nat", NfHook::Prerouting, -100),
    chain("nat", "INPUT", "nat", NfHook::Input, 100),
    chain("nat", "OUTPUT", "nat", NfHook::Output, -100),
    chain("nat", "POSTROUTING", "nat", NfHook::Postrouting, 100),
];

/// Returns the chain with this name.
pub fn built_in(table: &str, name: &str) -> Option<BaseChain<'static>> {
    BUILT_IN.iter().find(|(of, chain, _)| (*of, *chain) == (table, name)).map(|(_, _, chain)| *chain)
}
