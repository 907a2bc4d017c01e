//! The connections that a proxy resets because their endpoint is lost. `svcproxy render` prints a clean start, without
//! what a proxy remembers of earlier endpoints, and comments with the endpoints that keep their connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

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
pub(super) struct LostFlows(BTreeMap<(SocketAddr, SocketAddr), Duration>);

impl LostFlows {
    pub(super) fn change(&mut self, before: &KeptFlows, now: &KeptFlows, time: Duration) {
        for (destination, old) in before {
            let delay = now.get(destination).map_or(old.delay, |new| new.delay);
            for endpoint in &old.serving {
                if let Some(delay) = delay.filter(|_| !keeps(now, destination, endpoint)) {
                    self.0.entry((*destination, *endpoint)).or_insert(time + delay);
                }
            }
        }
        self.0.retain(|(destination, endpoint), _| !keeps(now, destination, endpoint));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        let lost = self.0.iter().filter(|((destination, _), since)| destination.is_ipv4() == of_v4 && **since <= time);
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
    fn a_line_with_a_mistake_is_an_error() {
        for wrong in ["", "reset", "reset x", "reset 10.0.0.1:80 x", "drain=5 10.0.0.1:80"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
