//! Connections and refused packets of each service port, from the counters of the rules that they met.
//!
//! A rule counts from when it was written. The chain of an endpoint is written once, the shared chains at each change
//! in them; what a rule counted before it was written anew is kept here, up to the last look at it.

use std::collections::BTreeMap;

use super::names;
use crate::kernel::iptables::Counted;

/// Whose connections, or packets, of which sort.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meter {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name of the port, if it has one.
    pub port: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// Which count.
    pub sort: Sort,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// Connections (or flows) that were led to an endpoint.
    Connection,
    /// Packets refused because there are no endpoints.
    NoEndpoints,
    /// Packets dropped because there are no endpoints on this node.
    NoLocalEndpoints,
    /// Packets dropped because their source is not allowed.
    SourceRange,
}

/// The counts of one family so far.
#[derive(Debug, Default)]
pub struct Connections {
    /// What each rule had counted at the last look, by chain and text.
    last: BTreeMap<(String, String), u64>,
    counts: BTreeMap<Meter, u64>,
}

impl Connections {
    /// Takes in all rules of filter and nat as they are now. A service port without any rule is forgotten.
    pub fn look(&mut self, rules: impl IntoIterator<Item = Counted>) -> &BTreeMap<Meter, u64> {
        let mut before = std::mem::take(&mut self.last);
        let mut counts = BTreeMap::new();
        for Counted { chain, rule, packets } in rules {
            let Some(meter) = meter(&chain, &rule) else { continue };
            let known = self.counts.get(&meter).copied().unwrap_or_default();
            let count: &mut u64 = counts.entry(meter).or_insert(known);
            let key = (chain, rule);
            let seen = before.remove(&key).unwrap_or_default();
            // Less than before: it was written anew, and has counted all this since.
            *count += packets.checked_sub(seen).unwrap_or(packets);
            self.last.insert(key, packets);
        }
        self.counts = counts;
        &self.counts
    }
}

fn meter(chain: &str, rule: &str) -> Option<Meter> {
    let after = |option: &str| Some(rule.split_once(option)?.1);
    let comment = after("--comment ")?;
    let comment = match comment.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => comment.split(' ').next()?,
    };
    let (name, sort) = if chain.starts_with(names::SEP) && rule.contains(" -j DNAT ") {
        (comment, Sort::Connection)
    } else if let Some(name) = comment.strip_suffix(" has no endpoints") {
        (name, Sort::NoEndpoints)
    } else if let Some(name) = comment.strip_suffix(" has no local endpoints") {
        (name, Sort::NoLocalEndpoints)
    } else if chain == names::PROXY_FIREWALL {
        (comment.split_once(" traffic not accepted by ")?.0, Sort::SourceRange)
    } else {
        return None;
    };
    let (namespace, rest) = name.split_once('/')?;
    let (service, port) = rest.split_once(':').unwrap_or((rest, ""));
    Some(Meter {
        namespace: namespace.to_owned(),
        service: service.to_owned(),
        port: port.to_owned(),
        protocol: after("-p ")?.split(' ').next()?.to_owned(),
        sort,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(chain: &str, packets: u64) -> Counted {
        let rule = "-p tcp -m comment --comment \"default/web:http\" -m tcp -j DNAT --to-destination 10.0.0.1:80";
        Counted { chain: chain.to_owned(), rule: rule.to_owned(), packets }
    }

    fn counts(connections: &mut Connections, rules: Vec<Counted>) -> Vec<(Sort, u64)> {
        connections.look(rules).iter().map(|(meter, count)| (meter.sort, *count)).collect()
    }

    #[test]
    fn counts_add_up_over_endpoints_and_outlive_their_rules() {
        let mut connections = Connections::default();
        let both = vec![endpoint("KUBE-SEP-A", 3), endpoint("KUBE-SEP-B", 4)];
        assert_eq!(counts(&mut connections, both.clone()), [(Sort::Connection, 7)]);
        assert_eq!(counts(&mut connections, both), [(Sort::Connection, 7)], "nothing new");
        let rewritten = vec![endpoint("KUBE-SEP-A", 1), endpoint("KUBE-SEP-B", 6)];
        assert_eq!(counts(&mut connections, rewritten), [(Sort::Connection, 10)]);
        assert_eq!(counts(&mut connections, vec![endpoint("KUBE-SEP-B", 6)]), [(Sort::Connection, 10)]);
        assert_eq!(counts(&mut connections, vec![]), []);
    }

    #[test]
    fn rules_are_told_by_chain_and_comment() {
        for (chain, rule, sort) in [
            ("KUBE-SEP-A", "-s 10.0.0.1/32 -m comment --comment \"default/web\" -j KUBE-MARK-MASQ", None),
            (
                "KUBE-SERVICES",
                "-d 10.96.0.1/32 -p tcp -m comment --comment \"default/web has no endpoints\" -m tcp --dport 80 -j REJECT",
                Some(Sort::NoEndpoints),
            ),
            (
                "KUBE-EXTERNAL-SERVICES",
                "-d 192.0.2.1/32 -p udp -m comment --comment \"default/web:dns has no local endpoints\" -m udp -j DROP",
                Some(Sort::NoLocalEndpoints),
            ),
            (
                "KUBE-PROXY-FIREWALL",
                "-d 192.0.2.1/32 -p tcp -m comment --comment \"default/web:a traffic not accepted by KUBE-FW-X\" -m tcp -j DROP",
                Some(Sort::SourceRange),
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
        assert_eq!((&*dns.namespace, &*dns.service, &*dns.port, &*dns.protocol), ("default", "web", "http", "tcp"));
    }
}
