//! The flowtable for long connections to services (KEP-4963), in its own table: the services' table is replaced when it
//! is too small. Packets in a flowtable skip the node's rules, so it is off by default.

use crate::model::{Family, Protocol};
use crate::nftables::text::Table;
use crate::nftables::{BaseHook, Chain, Name, NftHook, Rule, Statement};

pub const TABLE: &str = "kube-proxy-flowtable";
pub const PROBE: &str = "svcproxy-probe-flowtable";
pub const COMMENT: &str = "Long connections to Kubernetes Services, by svcproxy";
pub const FLOWTABLE: &str = "services";
pub const CHAIN: &str = "filter-forward";
/// The priority of the flowtable and of the chain: `NF_IP_PRI_FILTER`.
pub const PRIORITY: i32 = 0;
/// Connections with fewer packets are not offloaded (KEP-4963).
const SHORT: u64 = 20;

pub fn rule(protocol: Protocol) -> Rule {
    Rule::new([
        Statement::Protocol(protocol),
        Statement::Established,
        Statement::Translated,
        Statement::MorePackets(SHORT),
        Statement::Offload(FLOWTABLE),
    ])
}

/// Returns rules for TCP and UDP, the only supported protocols.
pub fn rules() -> Vec<Rule> {
    [Protocol::Tcp, Protocol::Udp].map(rule).into()
}

pub fn chain() -> (Name, Chain) {
    let base = BaseHook { is_nat: false, hook: NftHook::Forward, priority: PRIORITY };
    (CHAIN.into(), Chain { comment: "", base: Some(base), rules: rules() })
}

pub fn table(family: Family, links: &[String]) -> String {
    let chains = [chain()];
    Table {
        name: TABLE,
        comment: COMMENT,
        family,
        counters: &[],
        sets: &[],
        flowtable: Some((FLOWTABLE, links)),
        chains: &chains,
        elements: &[],
    }
    .to_string()
}
