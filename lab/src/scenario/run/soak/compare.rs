//! The rules that a proxy has arrived at, change by change, against those that a fresh one writes on clean tables.

use std::collections::{BTreeMap, BTreeSet};

use super::super::marker;
use super::listeners;
use crate::expect::counters::Ruleset;

/// Rules of every chain, by `FAMILY TABLE CHAIN`; a chain without rules is there, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rules(BTreeMap<String, Vec<String>>);

impl Rules {
    /// Reads `iptables-save`'s output. Counters and comments go, and so does the order of chains; that of a chain's rules
    /// stays.
    pub(super) fn read(&mut self, family: &str, saved: &str) {
        // The lab's own service changes with every look.
        let marker = marker::key();
        let mut table = "";
        let mut passed_over = BTreeSet::new();
        for line in saved.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
            } else if let Some(chain) = line.strip_prefix(':') {
                let name = chain.split(' ').next().unwrap_or_default();
                self.0.entry(format!("{family} {table} {name}")).or_default();
            } else if let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rule| rule.split_once(' ')) {
                let chain = format!("{family} {table} {chain}");
                if rule.contains(&marker) {
                    passed_over.insert(chain);
                } else {
                    self.0.entry(chain).or_default().push(rule.to_owned());
                }
            }
        }
        // The marker's own chains.
        self.0.retain(|chain, rules| !(rules.is_empty() && passed_over.contains(chain)));
    }

    /// Reads `ipset save`'s output: every set with its members. How large it may grow is no difference.
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

    /// Reads `ipvsadm -Sn`'s output: every virtual server with its destinations. One that has weight 0 keeps the connections
    /// that it has, which a fresh proxy has none of.
    pub(super) fn read_servers(&mut self, saved: &str) {
        for line in saved.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [verb, protocol, address, rest @ ..] = &words[..] else { continue };
            let server = self.0.entry(format!("virtual server {protocol} {address}")).or_default();
            // One that another namespace's changes have made the kernel list twice comes with its destinations again.
            if *verb == "-A" {
                server.clear();
            }
            if *verb == "-A" || !line.ends_with(" -w 0") {
                server.push(rest.join(" "));
                server.sort();
            }
        }
    }

    /// Reads `ip -o addr`'s output for one device.
    pub(super) fn read_addresses(&mut self, device: &str, shown: &str) {
        let addresses = self.0.entry(format!("addresses of {device}")).or_default();
        let words = shown.lines().filter_map(|line| line.split_whitespace().nth(3));
        addresses.extend(words.map(str::to_owned));
        addresses.sort();
    }

    /// Reads what `nft list table` prints. How large a set may grow is no difference, nor are the clients that it remembers, nor
    /// which of a frontend's endpoints has which number, as long as each number from 0 on is one's. `marker` has the
    /// addresses of the lab's own service.
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
                *elements = unnumbered(elements);
            }
            elements.sort();
        }
        for rules in self.0.values_mut().filter(|rules| rules.iter().any(|rule| rule.starts_with(DRAWS))) {
            *rules = undrawn(rules);
        }
    }

    /// Lets the order of rules go as well: of a proxy that has none.
    pub(super) fn sort(&mut self) {
        self.0.values_mut().for_each(|rules| rules.sort());
    }

    /// Lets the numbers of a relay's listening ports go.
    pub(super) fn name_listening_ports(&mut self) {
        listeners::name_ports(&mut self.0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Lets the order of rules go in the kernel's own chains: a clean-up leaves the guard of the loopback range, whose jump
    /// then comes before those that the next proxy puts in.
    pub(super) fn sort_jumps(&mut self) {
        let of_kernel = |chain: &str| KERNELS.iter().any(|name| chain.ends_with(&format!(" {name}")));
        self.0.iter_mut().filter(|(chain, _)| of_kernel(chain)).for_each(|(_, rules)| rules.sort());
    }

    /// Every chain that differs, in words.
    pub(super) fn differences(&self, fresh: &Rules) -> Vec<String> {
        let chains: BTreeSet<&String> = self.0.keys().chain(fresh.0.keys()).collect();
        chains.into_iter().filter_map(|chain| difference(chain, self.0.get(chain), fresh.0.get(chain))).collect()
    }
}

/// Elements such as `10.96.0.1 . tcp . 80 . 1 : 10.244.1.2 . 8080`, the numbers and the endpoints of a frontend each in order.
fn unnumbered(elements: &[String]) -> Vec<String> {
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

/// Rules of a chain that draws one of several endpoints, with the odds and the endpoints each in order: the first may be any of them.
fn undrawn(rules: &[String]) -> Vec<String> {
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

/// How a rule begins that is met by some packets, at random.
const DRAWS: &str = "numgen random mod ";

/// The kernel's own chains (iptables(8)).
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

    fn rules(text: &str) -> Rules {
        let mut rules = Rules::default();
        rules.read("ipv4", text);
        rules
    }

    #[test]
    fn counters_and_the_order_of_chains_do_not_count() {
        let one = "# x\n*nat\n:A - [1:2]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\nCOMMIT\n";
        let two = "*nat\n:B - [7:7]\n:A - [0:0]\n-A B -j RETURN\n-A A -j B\nCOMMIT\n# y\n";
        assert_eq!(rules(one).differences(&rules(two)), Vec::<String>::new());
        assert_eq!(rules(one).len(), 2);
    }

    #[test]
    fn sets_and_virtual_servers_count_as_well() {
        let state = |sets: &str, servers: &str, addresses: &str| {
            let mut rules = Rules::default();
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
    fn sets_and_maps_of_nftables_count_as_well() {
        let state = |text: &str| {
            let mut rules = Rules::default();
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
    fn which_endpoint_of_a_service_with_affinity_is_drawn_first_does_not_count() {
        let state = |rules: [&str; 5]| {
            let mut all = Rules::default();
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
    fn the_marker_does_not_count() {
        let with = "*nat\n:A - [0:0]\n:B - [0:0]\n:M - [0:0]\n-A A --comment svclab/marker -j M\n-A A -j B\n-A M --comment svclab/marker -j B\n";
        assert_eq!(rules(with), rules("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n"));
    }

    #[test]
    fn anything_else_does() {
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
