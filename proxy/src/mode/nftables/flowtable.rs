//! The flowtable for connections to services that have become long (KEP-4963): a table of its own, so that it does not depend on what becomes
//! of services' table, which is replaced when it is too small.
//!
//! What goes by a flowtable meets none of the node's rules any more: no filter, no counter, no mangling. So it is off by default.

use crate::model::{Family, Protocol};
use crate::nftables::text::Table;
use crate::nftables::{Base, Chain, Hook, Name, Rule, Statement};

/// The table, of each family.
pub const TABLE: &str = "kube-proxy-flowtable";
/// The table in which the kernel is asked whether it has flowtables.
pub const PROBE: &str = "svcproxy-probe-flowtable";
/// What the table says of itself.
pub const COMMENT: &str = "Long connections to Kubernetes Services, by svcproxy";
/// The flowtable.
pub const FLOWTABLE: &str = "services";
/// The chain that puts connections there.
pub const CHAIN: &str = "filter-forward";
/// `NF_IP_PRI_FILTER`, of the flowtable and of the chain.
pub const PRIORITY: i32 = 0;
/// Connections with no more packets than these, in both directions, are not worth it: KEP-4963's number, by which they are no longer short.
const SHORT: u64 = 20;

/// Puts the connections of a protocol there.
pub fn rule(protocol: Protocol) -> Rule {
    Rule::new([
        Statement::Protocol(protocol),
        Statement::Established,
        Statement::Translated,
        Statement::MorePackets(SHORT),
        Statement::Offload(FLOWTABLE),
    ])
}

/// The rules: flowtables know no other protocols.
pub fn rules() -> Vec<Rule> {
    [Protocol::Tcp, Protocol::Udp].map(rule).into()
}

/// The chain with its name.
pub fn chain() -> (Name, Chain) {
    let base = Base { is_nat: false, hook: Hook::Forward, priority: PRIORITY };
    (CHAIN.into(), Chain { comment: "", base: Some(base), rules: rules() })
}

/// The table as `nft -f` takes it, on these links.
pub fn table(family: Family, links: &[String]) -> String {
    let chains = [chain()];
    Table {
        name: TABLE,
        comment: COMMENT,
        family,
        sets: &[],
        flowtable: Some((FLOWTABLE, links)),
        chains: &chains,
        elements: &[],
    }
    .to_string()
}
