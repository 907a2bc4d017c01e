//! Replaces userspace mode's listening ports in rules by service port names: the proxy takes any free port, so two
//! dumps differ.

use std::collections::BTreeMap;

/// The chain that accepts packets to listening ports, with service port names in comments.
const LISTENERS: &str = "filter KUBE-NODEPORT-NON-LOCAL";
const LEADING: [&str; 2] = ["nat KUBE-PORTALS-", "nat KUBE-NODEPORT-"];

/// Replaces the ports in `rules`, which are by `FAMILY TABLE CHAIN`. A port without a listener keeps its number.
pub(super) fn name_ports(rules: &mut BTreeMap<String, Vec<String>>) {
    for family in ["IPv4", "IPv6"] {
        let Some(letting_in) = rules.get_mut(&format!("{family} {LISTENERS}")) else { continue };
        let names: BTreeMap<(String, String), String> = letting_in.iter().filter_map(|rule| listener(rule)).collect();
        for rule in letting_in.iter_mut() {
            rename(rule, &names, "--dport ");
        }
        let leads = |chain: &str| LEADING.iter().any(|begin| chain.starts_with(&format!("{family} {begin}")));
        for rule in rules.iter_mut().filter(|(chain, _)| leads(chain)).flat_map(|(_, rules)| rules) {
            rename(rule, &names, "--to-ports ");
            rename(rule, &names, "--to-destination ");
        }
    }
}

/// Returns protocol, port and service port of a rule for a listener.
fn listener(rule: &str) -> Option<((String, String), String)> {
    let name = rule.split('"').nth(1)?;
    let of = |flag: &str| rule.split_once(flag)?.1.split(' ').next().map(str::to_owned);
    rule.ends_with("-j ACCEPT").then_some(((of("-p ")?, of("--dport ")?), name.to_owned()))
}

fn rename(rule: &mut String, names: &BTreeMap<(String, String), String>, flag: &str) {
    let protocol = rule.split_once("-p ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default();
    let Some(at) = rule.find(flag).map(|at| at + flag.len()) else { return };
    let end = rule[at..].find(' ').map_or(rule.len(), |length| at + length);
    let port = rule[..end].rfind([' ', ':']).map_or(at, |before| before + 1);
    if let Some(name) = names.get(&(protocol.to_owned(), rule[port..end].to_owned())) {
        let name = format!("<{name}>");
        rule.replace_range(port..end, &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(port: u16, led: u16) -> BTreeMap<String, Vec<String>> {
        let web =
            format!("-m comment --comment \"a/web:\" -m conntrack --ctstate DNAT -m tcp --dport {port} -j ACCEPT");
        let of_udp =
            format!("-m comment --comment \"a/dns:\" -m conntrack --ctstate DNAT -m udp --dport {led} -j ACCEPT");
        let to = |target: String| vec![format!("-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j {target}")];
        BTreeMap::from([
            (format!("IPv4 {LISTENERS}"), vec![format!("-p tcp {web}"), format!("-p udp {of_udp}")]),
            ("IPv4 nat KUBE-PORTALS-CONTAINER".to_owned(), to(format!("REDIRECT --to-ports {led}"))),
            ("IPv4 nat KUBE-NODEPORT-HOST".to_owned(), to(format!("DNAT --to-destination 172.18.0.2:{led}"))),
        ])
    }

    fn named(port: u16, led: u16) -> BTreeMap<String, Vec<String>> {
        let mut rules = rules(port, led);
        name_ports(&mut rules);
        rules
    }

    #[test]
    fn ports_of_the_same_listener_compare_equal() {
        assert_eq!(named(61_000, 61_000), named(62_000, 62_000));
        assert_ne!(named(61_000, 61_000), named(61_000, 62_000));
        let rules = named(61_000, 61_000);
        let leading =
            ["IPv4 nat KUBE-PORTALS-CONTAINER", "IPv4 nat KUBE-NODEPORT-HOST"].map(|chain| rules[chain][0].as_str());
        let begin = "-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j";
        assert_eq!(leading[0], format!("{begin} REDIRECT --to-ports <a/web:>"));
        assert_eq!(leading[1], format!("{begin} DNAT --to-destination 172.18.0.2:<a/web:>"));
    }
}
