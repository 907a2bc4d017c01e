//! Compares the rules after many changes with a fresh proxy's on clean tables.

use std::collections::{BTreeMap, BTreeSet};

use super::super::marker;
use super::listeners;
use crate::expect::counters::Ruleset;

/// A node's rules by `FAMILY TABLE CHAIN`, including empty chains, sets, virtual servers and addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeRules(BTreeMap<String, Vec<String>>);

impl NodeRules {
    /// Reads `iptables-save`. Ignores counters and the order of chains, but not of rules.
    pub(super) fn read(&mut self, family: &str, saved: &str) {
        let ruleset = Ruleset::parse(saved);
        let name = |table: &str, chain: &str| format!("{family} {table} {chain}");
        self.0.extend(ruleset.chains.iter().map(|(table, chain)| (name(table, chain), Vec::new())));
        // Ignores the marker service, which changes all the time.
        let marker = marker::key();
        let (of_marker, others): (Vec<_>, Vec<_>) = ruleset.rules.iter().partition(|rule| rule.text.contains(&marker));
        for rule in others {
            self.0.entry(name(&rule.table, &rule.chain)).or_default().push(rule.text.clone());
        }
        let passed_over: BTreeSet<String> = of_marker.iter().map(|rule| name(&rule.table, &rule.chain)).collect();
        self.0.retain(|chain, rules| !(rules.is_empty() && passed_over.contains(chain)));
    }

    /// Reads `ipset save` without set options.
    pub(super) fn read_sets(&mut self, saved: &str) {
        for line in saved.lines() {
            let mut words = line.splitn(3, ' ');
            let (verb, name, rest) = (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let members = self.0.entry(format!("set {name}")).or_default();
            if verb == Some("add") {
                members.push(rest.to_owned());
                members.sort();
            }
        }
    }

    /// Reads `ipvsadm -Sn`. Ignores destinations with weight 0, which drain connections: a fresh proxy has none.
    pub(super) fn read_servers(&mut self, saved: &str) {
        for line in saved.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [verb, protocol, address, rest @ ..] = &words[..] else { continue };
            let server = self.0.entry(format!("virtual server {protocol} {address}")).or_default();
            // The kernel may list a server and its destinations twice while another namespace changes.
            if *verb == "-A" {
                server.clear();
            }
            if *verb == "-A" || !line.ends_with(" -w 0") {
                server.push(rest.join(" "));
                server.sort();
            }
        }
    }

    /// Reads `ip -o addr` for one device.
    pub(super) fn read_addresses(&mut self, device: &str, shown: &str) {
        let addresses = self.0.entry(format!("addresses of {device}")).or_default();
        let words = shown.lines().filter_map(|line| line.split_whitespace().nth(3));
        addresses.extend(words.map(str::to_owned));
        addresses.sort();
    }

    /// Reads `nft list table`. Ignores set sizes, dynamic elements, and the assignment of numbers to a frontend's
    /// endpoints. `marker`: the marker service's addresses.
    pub(super) fn read_nft(&mut self, listed: &str, marker: &[String]) {
        let (ruleset, key) = (Ruleset::parse_nft(listed), marker::key());
        let names = |table: &str, object: &str| format!("{table} {object}");
        let objects = ruleset.chains.iter().filter(|(_, object)| !object.contains(&key));
        self.0.extend(objects.map(|(table, object)| (names(table, object), Vec::new())));
        let of_marker =
            |text: &str| text.contains(&key) || text.split(' ').any(|word| marker.iter().any(|own| own == word));
        let mut numbered = BTreeSet::new();
        for declared in ruleset.declared.iter().filter(|declared| !declared.text.starts_with("size ")) {
            let name = names(&declared.table, &declared.chain);
            if declared.text.contains(" numgen ") {
                numbered.insert(name.clone());
            }
            self.0.entry(name).or_default().push(declared.text.clone());
        }
        let remembered = |text: &str| text.contains(" expires ");
        for rule in ruleset.rules.iter().filter(|rule| !remembered(&rule.text) && !of_marker(&rule.text)) {
            if let Some(rules) = self.0.get_mut(&names(&rule.table, &rule.chain)) {
                rules.push(rule.text.clone());
            }
        }
        for (name, elements) in self.0.iter_mut().filter(|(name, _)| !name.contains(" chain ")) {
            if numbered.contains(name) {
                *elements = without_numbers(elements);
            }
            elements.sort();
        }
        for rules in self.0.values_mut().filter(|rules| rules.iter().any(|rule| rule.starts_with(DRAWS))) {
            *rules = without_draw_order(rules);
        }
    }

    /// Ignores the order of rules, for foreign proxies.
    pub(super) fn sort(&mut self) {
        self.0.values_mut().for_each(|rules| rules.sort());
    }

    pub(super) fn name_listening_ports(&mut self) {
        listeners::name_ports(&mut self.0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Ignores the order of rules in base chains: a clean-up keeps the jump that guards loopback addresses ahead of
    /// later jumps.
    pub(super) fn sort_jumps(&mut self) {
        let of_kernel = |chain: &str| KERNELS.iter().any(|name| chain.ends_with(&format!(" {name}")));
        self.0.iter_mut().filter(|(chain, _)| of_kernel(chain)).for_each(|(_, rules)| rules.sort());
    }

    pub(super) fn differences(&self, fresh: &NodeRules) -> Vec<String> {
        let chains: BTreeSet<&String> = self.0.keys().chain(fresh.0.keys()).collect();
        chains.into_iter().filter_map(|chain| difference(chain, self.0.get(chain), fresh.0.get(chain))).collect()
    }
}

/// Sorts each frontend's numbers and endpoints separately; an element is `10.96.0.1 . tcp . 80 . 1 : 10.244.1.2 .
/// 8080`.
fn without_numbers(elements: &[String]) -> Vec<String> {
    let (mut frontends, mut others) = (BTreeMap::<&str, (Vec<u32>, Vec<&str>)>::new(), Vec::new());
    for element in elements {
        let parts = element.split_once(" : ").and_then(|(key, endpoint)| {
            let (frontend, number) = key.rsplit_once(" . ")?;
            Some((frontend, number.parse().ok()?, endpoint))
        });
        let Some((frontend, number, endpoint)) = parts else {
            others.push(element.clone());
            continue;
        };
        let (numbers, endpoints) = frontends.entry(frontend).or_default();
        numbers.push(number);
        endpoints.push(endpoint);
    }
    for (frontend, (mut numbers, mut endpoints)) in frontends {
        numbers.sort_unstable();
        endpoints.sort_unstable();
        let pairs = numbers.iter().zip(endpoints);
        others.extend(pairs.map(|(number, endpoint)| format!("{frontend} . {number} : {endpoint}")));
    }
    others
}

/// Sorts probabilities and endpoints of a chain that draws an endpoint: their assignment is arbitrary.
fn without_draw_order(rules: &[String]) -> Vec<String> {
    let (mut odds, mut others) = (Vec::new(), Vec::new());
    for rule in rules {
        match rule.rsplit_once("goto ") {
            Some((condition, to)) if condition.is_empty() || condition.starts_with(DRAWS) => {
                odds.push(condition.to_owned());
                others.push(format!("goto {to}"));
            }
            _ => others.push(rule.clone()),
        }
    }
    odds.sort();
    others.sort();
    [odds, others].concat()
}

const DRAWS: &str = "numgen random mod ";

/// The built-in chains of iptables(8).
const KERNELS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

fn difference(chain: &str, here: Option<&Vec<String>>, fresh: Option<&Vec<String>>) -> Option<String> {
    match (here, fresh) {
        (Some(here), Some(fresh)) if here == fresh => None,
        (Some(_), None) => Some(format!("{chain} would not be there after a fresh start")),
        (None, _) => Some(format!("{chain} is missing")),
        (Some(here), Some(fresh)) => {
            let extra = here.iter().find(|rule| !fresh.contains(rule)).map(|rule| format!("too much: {rule}"));
            let missing = fresh.iter().find(|rule| !here.contains(rule)).map(|rule| format!("missing: {rule}"));
            let words = extra.or(missing).unwrap_or_else(|| "the order, or the number, of its rules".to_owned());
            Some(format!("{chain} differs; {words}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> NodeRules {
        let mut rules = NodeRules::default();
        rules.read("ipv4", text);
        rules
    }

    #[test]
    fn counters_and_the_order_of_chains_are_ignored() {
        let one = "# x\n*nat\n:A - [1:2]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\nCOMMIT\n";
        let two = "*nat\n:B - [7:7]\n:A - [0:0]\n-A B -j RETURN\n-A A -j B\nCOMMIT\n# y\n";
        assert_eq!(rules(one).differences(&rules(two)), Vec::<String>::new());
        assert_eq!(rules(one).len(), 2);
    }

    #[test]
    fn differing_sets_servers_and_addresses_are_reported() {
        let state = |sets: &str, servers: &str, addresses: &str| {
            let mut rules = NodeRules::default();
            rules.read_sets(sets);
            rules.read_servers(servers);
            rules.read_addresses("kube-ipvs0", addresses);
            rules
        };
        let servers = "-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.0.0.2:80 -m -w 1\n-a -t 10.96.0.1:80 -r 10.0.0.1:80 -m -w 1\n";
        let set = "create A hash:ip maxelem 7 initval 0x1\nadd A 10.0.0.2\nadd A 10.0.0.1\n";
        let fresh =
            state(set, servers, "7: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0\\ valid_lft forever\n");
        assert_eq!(fresh.len(), 6);
        let twice = state(set, &servers.repeat(2), "7: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0\\ x\n");
        assert_eq!(fresh.differences(&twice), Vec::<String>::new(), "listed twice is there once");
        let draining = format!("{servers}-a -t 10.96.0.1:80 -r 10.0.0.3:80 -m -w 0\n");
        let other = "create A hash:ip maxelem 9 initval 0x2\nadd A 10.0.0.1\nadd A 10.0.0.2\n";
        let same = state(other, &draining, "9: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0\n");
        assert_eq!(same.differences(&fresh), Vec::<String>::new());
        for (sets, servers, addresses, says) in [
            (
                "create A hash:ip\nadd A 10.0.0.1\n",
                servers,
                "1: d inet 10.96.0.1/32 x\n",
                "set A differs; missing: 10.0.0.2",
            ),
            (set, "-A -t 10.96.0.1:80 -s lc\n", "1: d inet 10.96.0.1/32 x\n", "virtual server -t 10.96.0.1:80 differs"),
            (set, servers, "", "addresses of kube-ipvs0 differs; missing: 10.96.0.1/32"),
        ] {
            let found = state(sets, servers, addresses).differences(&fresh);
            assert!(matches!(&found[..], [one] if one.contains(says)), "{found:?}");
        }
    }

    #[test]
    fn differing_nftables_maps_sets_and_chains_are_reported() {
        let state = |text: &str| {
            let mut rules = NodeRules::default();
            rules.read_nft(text, &["10.96.255.253".to_owned()]);
            rules
        };
        let table = |map: &str, set: &str, chain: &str| {
            state(&format!(
                "table ip x {{\n map m {{\n typeof ip daddr . numgen random mod 2 : ip daddr\n size 7\n elements = {{ {map} }}\n }}\n\
                 set s {{\n type ipv4_addr\n timeout 3h\n {set}\n }}\n chain c {{\n {chain}\n }}\n}}\n"
            ))
        };
        let fresh = table("10.0.0.1 . 0 : 10.1.0.1, 10.0.0.1 . 1 : 10.1.0.2", "size 9", "jump a\n jump b");
        for same in [
            table("10.0.0.1 . 1 : 10.1.0.1, 10.0.0.1 . 0 : 10.1.0.2", "size 8", "jump a\n jump b"),
            table(
                "10.0.0.1 . 0 : 10.1.0.1, 10.0.0.1 . 1 : 10.1.0.2, 10.96.255.253 . 0 : 10.1.0.1",
                "elements = { 10.1.0.9 timeout 3h expires 2h }",
                "jump a\n jump b\n goto service-X-svclab/marker/tcp/",
            ),
        ] {
            assert_eq!(same.differences(&fresh), Vec::<String>::new());
        }
        for (other, says) in [
            (
                table("10.0.0.1 . 0 : 10.1.0.1, 10.0.0.1 . 2 : 10.1.0.2", "", "jump a\n jump b"),
                "ip x map m differs; too much: 10.0.0.1 . 2",
            ),
            (
                table("10.0.0.1 . 0 : 10.1.0.1, 10.0.0.1 . 1 : 10.1.0.3", "", "jump a\n jump b"),
                "ip x map m differs; too much: 10.0.0.1 . 1",
            ),
            (
                table("10.0.0.1 . 0 : 10.1.0.1, 10.0.0.1 . 1 : 10.1.0.2", "", "jump b\n jump a"),
                "ip x chain c differs; the order",
            ),
            (
                table("10.0.0.1 . 0 : 10.1.0.1, 10.0.0.1 . 1 : 10.1.0.2", "flags timeout", "jump a\n jump b"),
                "ip x set s differs; too much: flags",
            ),
            (state("table ip x {\n set t {\n type ipv4_addr\n }\n}\n"), "ip x chain c is missing"),
        ] {
            let found = other.differences(&fresh);
            assert!(found.iter().any(|found| found.starts_with(says)), "{says}: {found:?}");
        }
    }

    #[test]
    fn the_order_of_drawn_endpoints_is_ignored() {
        let state = |rules: [&str; 5]| {
            let mut all = NodeRules::default();
            all.read_nft(&format!("table ip x {{\n chain service-x {{\n {}\n }}\n}}\n", rules.join("\n ")), &[]);
            all
        };
        let [a, b] = ["ip saddr @affinity-a goto a", "ip saddr @affinity-b goto b"];
        let fresh = state([a, b, "numgen random mod 3 0 goto a", "numgen random mod 2 0 goto b", "goto c"]);
        let turned = state([b, a, "numgen random mod 3 0 goto c", "numgen random mod 2 0 goto a", "goto b"]);
        assert_eq!(turned.differences(&fresh), Vec::<String>::new());
        for other in [
            state([a, b, "numgen random mod 4 0 goto a", "numgen random mod 2 0 goto b", "goto c"]),
            state([a, b, "numgen random mod 3 0 goto a", "numgen random mod 2 0 goto a", "goto c"]),
            state([a, a, "numgen random mod 3 0 goto a", "numgen random mod 2 0 goto b", "goto c"]),
        ] {
            assert_eq!(other.differences(&fresh).len(), 1);
        }
    }

    #[test]
    fn rules_of_the_marker_are_ignored() {
        let with = "*nat\n:A - [0:0]\n:B - [0:0]\n:M - [0:0]\n-A A --comment svclab/marker -j M\n-A A -j B\n-A M --comment svclab/marker -j B\n";
        assert_eq!(rules(with), rules("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n"));
    }

    #[test]
    fn a_missing_extra_or_reordered_rule_is_reported() {
        let fresh = rules("*nat\n:A - [0:0]\n-A A -j X\n-A A -j Y\n");
        for (text, says) in [
            ("*nat\n:A - [0:0]\n-A A -j Y\n-A A -j X\n", "the order"),
            ("*nat\n:A - [0:0]\n-A A -j X\n", "missing: -j Y"),
            ("*nat\n:A - [0:0]\n-A A -j X\n-A A -j Y\n-A A -j Z\n", "too much: -j Z"),
            ("*nat\n:A - [0:0]\n:C - [0:0]\n-A A -j X\n-A A -j Y\n", "nat C would not be there"),
            ("*filter\n", "nat A is missing"),
        ] {
            let found = rules(text).differences(&fresh);
            assert!(matches!(&found[..], [one] if one.contains(says)), "{text}: {found:?}");
        }
        let mut turned = rules("*nat\n:A - [0:0]\n-A A -j Y\n-A A -j X\n");
        turned.sort();
        assert_eq!(turned.differences(&fresh), Vec::<String>::new(), "sorted, the order does not count");
    }
}
