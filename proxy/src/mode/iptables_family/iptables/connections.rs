//! Counts each service port's connections and refused packets by rule counters. A rewritten rule counts from zero, and
//! shared chains are often rewritten, so earlier counts are kept here.

use std::collections::BTreeMap;

use super::names;
use crate::kernel::iptables::CountedRule;
use crate::model::ObjectKey;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedPort {
    pub service: ObjectKey,
    pub port: String,
    pub protocol: String,
    pub sort: CountKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountKind {
    Connection,
    /// Packets refused because no node has an endpoint.
    NoEndpoints,
    /// Packets dropped because this node has no endpoint.
    NoLocalEndpoints,
    /// Packets dropped because their source is not allowed.
    SourceRange,
}

#[derive(Debug, Default)]
pub struct ConnectionCounts {
    /// Rule counters at the last update, by chain and text.
    last: BTreeMap<(String, String), u64>,
    counts: BTreeMap<CountedPort, u64>,
}

impl ConnectionCounts {
    /// Reads the counters of `rules`, all rules of filter and nat. Forgets service ports without rules.
    pub fn update(&mut self, rules: impl IntoIterator<Item = CountedRule>) -> &BTreeMap<CountedPort, u64> {
        let mut before = std::mem::take(&mut self.last);
        let mut counts = BTreeMap::new();
        for CountedRule { chain, rule, packets } in rules {
            let Some(meter) = meter(&chain, &rule) else { continue };
            let known = self.counts.get(&meter).copied().unwrap_or_default();
            let count: &mut u64 = counts.entry(meter).or_insert(known);
            let key = (chain, rule);
            let seen = before.remove(&key).unwrap_or_default();
            // The rewritten rule has counted from zero.
            *count += packets.checked_sub(seen).unwrap_or(packets);
            self.last.insert(key, packets);
        }
        self.counts = counts;
        &self.counts
    }
}

fn meter(chain: &str, rule: &str) -> Option<CountedPort> {
    let after = |option: &str| Some(rule.split_once(option)?.1);
    let comment = after("--comment ")?;
    let comment = match comment.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => comment.split(' ').next()?,
    };
    let (name, sort) = if chain.starts_with(names::SEP) && rule.contains(" -j DNAT ") {
        (comment, CountKind::Connection)
    } else if let Some(name) = comment.strip_suffix(" has no endpoints") {
        (name, CountKind::NoEndpoints)
    } else if let Some(name) = comment.strip_suffix(" has no local endpoints") {
        (name, CountKind::NoLocalEndpoints)
    } else if chain == names::PROXY_FIREWALL {
        (comment.split_once(" traffic not accepted by ")?.0, CountKind::SourceRange)
    } else {
        return None;
    };
    let (namespace, rest) = name.split_once('/')?;
    let (service, port) = rest.split_once(':').unwrap_or((rest, ""));
    Some(CountedPort {
        service: ObjectKey::new(namespace, service),
        port: port.to_owned(),
        protocol: after("-p ")?.split(' ').next()?.to_owned(),
        sort,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(chain: &str, packets: u64) -> CountedRule {
        let rule = "-p tcp -m comment --comment \"default/web:http\" -m tcp -j DNAT --to-destination 10.0.0.1:80";
        CountedRule { chain: chain.to_owned(), rule: rule.to_owned(), packets }
    }

    fn counts(connections: &mut ConnectionCounts, rules: Vec<CountedRule>) -> Vec<(CountKind, u64)> {
        connections.update(rules).iter().map(|(meter, count)| (meter.sort, *count)).collect()
    }

    #[test]
    fn counts_survive_rewritten_rules() {
        let mut connections = ConnectionCounts::default();
        let both = vec![endpoint("KUBE-SEP-A", 3), endpoint("KUBE-SEP-B", 4)];
        assert_eq!(counts(&mut connections, both.clone()), [(CountKind::Connection, 7)]);
        assert_eq!(counts(&mut connections, both), [(CountKind::Connection, 7)], "nothing new");
        let rewritten = vec![endpoint("KUBE-SEP-A", 1), endpoint("KUBE-SEP-B", 6)];
        assert_eq!(counts(&mut connections, rewritten), [(CountKind::Connection, 10)]);
        assert_eq!(counts(&mut connections, vec![endpoint("KUBE-SEP-B", 6)]), [(CountKind::Connection, 10)]);
        assert_eq!(counts(&mut connections, vec![]), []);
    }

    #[test]
    fn a_rules_kind_follows_from_chain_and_comment() {
        for (chain, rule, sort) in [
            ("KUBE-SEP-A", "-s 10.0.0.1/32 -m comment --comment \"default/web\" -j KUBE-MARK-MASQ", None),
            (
                "KUBE-SERVICES",
                "-d 10.96.0.1/32 -p tcp -m comment --comment \"default/web has no endpoints\" -m tcp --dport 80 -j REJECT",
                Some(CountKind::NoEndpoints),
            ),
            (
                "KUBE-EXTERNAL-SERVICES",
                "-d 192.0.2.1/32 -p udp -m comment --comment \"default/web:dns has no local endpoints\" -m udp -j DROP",
                Some(CountKind::NoLocalEndpoints),
            ),
            (
                "KUBE-PROXY-FIREWALL",
                "-d 192.0.2.1/32 -p tcp -m comment --comment \"default/web:a traffic not accepted by KUBE-FW-X\" -m tcp -j DROP",
                Some(CountKind::SourceRange),
            ),
            (
                "KUBE-SERVICES",
                "-d 10.96.0.1/32 -p tcp -m comment --comment \"default/web cluster IP\" -j KUBE-SVC-X",
                None,
            ),
            ("INPUT", "-p tcp -j ACCEPT", None),
        ] {
            assert_eq!(meter(chain, rule).map(|meter| meter.sort), sort, "{rule}");
        }
        let dns = meter("KUBE-SEP-A", &endpoint("", 0).rule).unwrap();
        assert_eq!((&*dns.service.to_string(), &*dns.port, &*dns.protocol), ("default/web", "http", "tcp"));
    }
}
