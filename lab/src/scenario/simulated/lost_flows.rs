//! The connections that a proxy resets because their endpoint is lost. `svcproxy render` prints a clean start, without
//! what a proxy remembers of earlier endpoints, and comments with the endpoints that keep their connections.
//!
//! In nftables mode the lost connections are elements of a set. In iptables mode their conntrack entries are deleted, and
//! destinations that no Service has any more reset what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use svclab_sim::network::TrackedConnection;
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::relays;

/// The prefix of a destination's comment line.
pub(super) const LINE: &str = "# flows ";

/// The endpoints that keep their connections, by destination.
pub type KeptFlows = BTreeMap<SocketAddr, DestinationFate>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestinationFate {
    /// How long connections to other endpoints are kept; `None`: for good.
    delay: Option<Duration>,
    serving: BTreeSet<SocketAddr>,
}

/// Parses the text after [`LINE`]: the fate, a destination, and endpoints.
pub(super) fn parse(text: &str) -> Result<(SocketAddr, DestinationFate), String> {
    let (fate, rest) = text.split_once(' ').unwrap_or((text, ""));
    let address = |word: &str| word.parse::<SocketAddr>().map_err(|_| format!("{word:?} is no address with a port"));
    let mut addresses = rest.split(' ').map(address);
    let destination = addresses.next().unwrap_or_else(|| Err("a destination is missing".to_owned()))?;
    Ok((destination, DestinationFate { delay: relays::fate(fate)?, serving: addresses.collect::<Result<_, _>>()? }))
}

/// Lost connections with the time from which they are reset.
#[derive(Debug, Default)]
pub(super) struct LostFlows {
    flows: BTreeMap<(SocketAddr, SocketAddr), Duration>,
    /// Destinations of Services with a fate that none has any more.
    frontends: BTreeSet<SocketAddr>,
}

impl LostFlows {
    pub(super) fn change(&mut self, before: &KeptFlows, now: &KeptFlows, time: Duration) {
        let fated = before.iter().filter(|(_, fate)| fate.delay.is_some());
        self.frontends.extend(fated.map(|(destination, _)| *destination));
        self.frontends.retain(|destination| !now.contains_key(destination));
        for (destination, old) in before {
            let delay = now.get(destination).map_or(old.delay, |new| new.delay);
            for endpoint in &old.serving {
                if let Some(delay) = delay.filter(|_| !keeps(now, destination, endpoint)) {
                    self.flows.entry((*destination, *endpoint)).or_insert(time + delay);
                }
            }
        }
        self.flows.retain(|(destination, endpoint), _| !keeps(now, destination, endpoint));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whether a conntrack entry is of a connection that is reset.
    pub(super) fn has_ended(&self, entry: &TrackedConnection, time: Duration) -> bool {
        let destination = SocketAddr::new(entry.original.destination, entry.original.destination_port);
        let endpoint = SocketAddr::new(entry.reply.source, entry.reply.source_port);
        entry.original.protocol == Protocol::TCP
            && self.flows.get(&(destination, endpoint)).is_some_and(|since| *since <= time)
    }

    /// Adds the rules of lost destinations to one family's `iptables-restore` input; `None`: there are none. At the
    /// node's own addresses they do what its kernel does without them.
    pub(super) fn reset_lost_frontends(&self, family: Family, rules: &str) -> Option<String> {
        let of_family = self.frontends.iter().filter(|to| to.is_ipv4() == (family == Family::V4));
        let added: String = of_family
            .map(|to| {
                let (ip, port) = (to.ip(), to.port());
                format!(
                    "-A KUBE-SERVICES -d {ip} -p tcp -m tcp --dport {port} ! --syn -j REJECT --reject-with tcp-reset\n"
                )
            })
            .collect();
        let (before, filter) = rules.split_once("*filter\n").filter(|_| !added.is_empty())?;
        let (filter, after) = filter.split_once("COMMIT\n")?;
        Some(format!("{before}*filter\n{filter}{added}COMMIT\n{after}"))
    }

    /// Adds the elements of connections that are reset to `tables`, as `svcproxy render` prints them.
    pub(super) fn add_to(&self, tables: &str, time: Duration) -> String {
        let mut text = String::with_capacity(tables.len());
        let mut of_v4 = None;
        for line in tables.lines() {
            match line.trim() {
                "set lost-flows {" => of_v4 = Some(true),
                fields if fields.starts_with("type ipv6_addr") => of_v4 = of_v4.map(|_| false),
                "}" => {
                    let elements = of_v4.take().map(|of_v4| self.elements(of_v4, time)).unwrap_or_default();
                    if !elements.is_empty() {
                        text.push_str(&format!("\t\telements = {{ {} }}\n", elements.join(", ")));
                    }
                }
                _ => {}
            }
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    fn elements(&self, of_v4: bool, time: Duration) -> Vec<String> {
        let lost =
            self.flows.iter().filter(|((destination, _), since)| destination.is_ipv4() == of_v4 && **since <= time);
        let text = |at: &SocketAddr| format!("{} . {}", at.ip(), at.port());
        lost.map(|((destination, endpoint), _)| format!("{} . {}", text(destination), text(endpoint))).collect()
    }
}

fn keeps(now: &KeptFlows, destination: &SocketAddr, endpoint: &SocketAddr) -> bool {
    now.get(destination).is_some_and(|fate| fate.delay.is_none() || fate.serving.contains(endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "table ip kube-proxy {\n\tset lost-flows {\n\t\ttype ipv4_addr . inet_service\n\t}\n}\n\
                          table ip6 kube-proxy {\n\tset lost-flows {\n\t\ttype ipv6_addr . inet_service\n\t}\n}\n";

    fn kept(lines: &[&str]) -> KeptFlows {
        lines.iter().map(|line| parse(line).unwrap()).collect()
    }

    #[test]
    fn a_lost_connection_is_in_its_familys_set_after_the_drain() {
        let before = kept(&["drain=5s 10.96.0.1:80 10.0.0.1:80 10.0.0.2:80", "reset [fd00::1]:80 [fd01::1]:80"]);
        let mut lost = LostFlows::default();
        let seconds = Duration::from_secs;
        lost.change(&before, &kept(&["drain=5s 10.96.0.1:80 10.0.0.2:80"]), seconds(1));
        let elements = |lost: &LostFlows, time| {
            let text = lost.add_to(TABLES, seconds(time));
            let lines = text.lines().filter_map(|line| line.trim().strip_prefix("elements = "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(elements(&lost, 5), ["{ fd00::1 . 80 . fd01::1 . 80 }"]);
        let both = ["{ 10.96.0.1 . 80 . 10.0.0.1 . 80 }", "{ fd00::1 . 80 . fd01::1 . 80 }"];
        assert_eq!(elements(&lost, 6), both);
        lost.change(&KeptFlows::new(), &kept(&["keep 10.96.0.1:80"]), seconds(6));
        assert_eq!(elements(&lost, 6), both[1..]);
        lost.change(&KeptFlows::new(), &before, seconds(6));
        assert!(lost.is_empty());
        assert_eq!(lost.add_to(TABLES, seconds(6)), TABLES);
    }

    #[test]
    fn a_lost_destination_has_a_rule_until_a_service_has_it() {
        let rules = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n*filter\n:KUBE-SERVICES - [0:0]\nCOMMIT\n";
        let before = kept(&["reset 10.96.0.1:80 10.0.0.1:80", "keep 10.96.0.2:80", "reset [fd00::1]:80"]);
        let mut lost = LostFlows::default();
        lost.change(&before, &KeptFlows::new(), Duration::ZERO);
        let added = |lost: &LostFlows, family| {
            let text = lost.reset_lost_frontends(family, rules).unwrap();
            assert!(text.starts_with("*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n*filter\n"), "{text}");
            text.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect::<Vec<_>>()
        };
        let rule = |to: &str| {
            let reset = "-p tcp -m tcp --dport 80 ! --syn -j REJECT --reject-with tcp-reset";
            vec![format!("-A KUBE-SERVICES -d {to} {reset}")]
        };
        assert_eq!(added(&lost, Family::V4), rule("10.96.0.1"));
        assert_eq!(added(&lost, Family::V6), rule("fd00::1"));
        lost.change(&KeptFlows::new(), &before, Duration::ZERO);
        assert_eq!(lost.reset_lost_frontends(Family::V4, rules), None);
    }

    #[test]
    fn a_line_with_a_mistake_is_an_error() {
        for wrong in ["", "reset", "reset x", "reset 10.0.0.1:80 x", "drain=5 10.0.0.1:80"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
