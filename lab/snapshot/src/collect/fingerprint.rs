//! What an audit depends on, as one number that is cheap to compute: without counters, timeouts and connections, and
//! without listing nf_tables.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::tool::{Limits, run};
use super::{bpf, files, generation, ipvs, netlink, rules, sysctls};
use crate::network::Network;

/// Changes with every packet or connection.
const CONNECTIONS: &str = "net.netfilter.nf_conntrack_count";
const MOST_CONNECTIONS: &str = "net.netfilter.nf_conntrack_max";

/// Returns the fingerprint of the node's rules, network and settings.
pub(super) async fn read(limits: Limits) -> u64 {
    let (network, programs, sets, servers, legacy, nft) = tokio::join!(
        netlink::read(),
        bpf::read(),
        rules::sets(limits),
        ipvs::read(limits),
        legacy(limits),
        nf_tables(limits)
    );
    let mut hasher = DefaultHasher::new();
    for text in [sets, servers] {
        let text = text.map(|text| text.map(|(text, _)| text).unwrap_or_default());
        lines(&text.unwrap_or_else(|unread| unread.why), &mut hasher);
    }
    legacy.iter().for_each(|text| lines(text, &mut hasher));
    nft.hash(&mut hasher);
    let network = network.0.map(without_learned);
    let links = network.iter().flat_map(|network| &network.links).map(|link| link.name.as_str());
    let mut settings = sysctls::read(links);
    let connections = settings.remove(CONNECTIONS);
    let is_full = |count: &str| settings.get(MOST_CONNECTIONS).is_some_and(|most| number(count) >= number(most));
    connections.is_some_and(|count| is_full(&count)).hash(&mut hasher);
    settings.hash(&mut hasher);
    serde_json::to_string(&(&network, programs.0)).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// The generation stands for all rules of nf_tables; without it, their listing does.
async fn nf_tables(limits: Limits) -> Result<u32, u64> {
    if let Some(generation) = generation::read() {
        return Ok(generation);
    }
    let mut hasher = DefaultHasher::new();
    if rules::module("nf_tables") {
        let text = run(&["nft", "list", "ruleset"], limits).await.unwrap_or_else(|error| error.to_string());
        lines(&text, &mut hasher);
    }
    Err(hasher.finish())
}

async fn legacy(limits: Limits) -> Vec<String> {
    let mut texts = Vec::new();
    for (names, program) in [("ip_tables_names", "iptables-legacy-save"), ("ip6_tables_names", "ip6tables-legacy-save")]
    {
        if files::net(names).is_ok_and(|names| !names.is_empty()) {
            texts.push(run(&[program], limits).await.unwrap_or_else(|error| error.to_string()));
        }
    }
    texts
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn without_learned(network: Network) -> Network {
    Network { neighbours: Vec::new(), unresolved: Vec::new(), forwarding: Vec::new(), ..network }
}

fn lines(text: &str, hasher: &mut impl Hasher) {
    text.lines().filter_map(without_counters).for_each(|line| line.hash(hasher));
}

/// Returns the line without counters and timeouts; `None` for a comment, which contains the time.
fn without_counters(line: &str) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let chain = line.strip_prefix(':').and_then(|rest| rest.split_once(" [")).map_or(line, |(chain, _)| chain);
    let mut kept = String::with_capacity(chain.len());
    let mut words = chain.split(' ');
    while let Some(word) = words.next() {
        if matches!(word, "timeout" | "expires" | "packets" | "bytes") {
            words.next();
            continue;
        }
        kept.push_str(word);
        kept.push(' ');
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_no_change_and_rules_are() {
        let of = |text: &str| {
            let mut hasher = DefaultHasher::new();
            lines(text, &mut hasher);
            hasher.finish()
        };
        let rules = "# Generated on Monday\n*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n";
        let later = "# Generated on Tuesday\n*nat\n:KUBE-SERVICES - [7:8]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n";
        assert_eq!(of(rules), of(later));
        assert_ne!(of(rules), of(&rules.replace("RETURN", "DROP")));
        assert_eq!(of("add s 10.0.0.1 timeout 7 packets 1 bytes 9"), of("add s 10.0.0.1 timeout 5 packets 2 bytes 99"));
        assert_ne!(of("add s 10.0.0.1 timeout 7"), of("add s 10.0.0.2 timeout 7"));
    }
}
