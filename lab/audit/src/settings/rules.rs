//! The proxy's settings as its rules show them, in the forms of kube-proxy of any version and of svcproxy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use svclab_oracle::{DetectLocalMode, Mode, NodePortAddress, ProxySettings, Scheduler};
use svclab_sim::cluster::NodeState;
use svclab_sim::nft::{ElementKey, Expr, NftVerdict, Relation, Rule as NftRule, Statement, Table};
use svclab_sim::rules::matches::{Match, Side};
use svclab_sim::rules::{Rule, RuleTarget, TableName, Test};
use svclab_snapshot::Snapshot;

use super::{masquerade, scheduler};
use crate::cluster::own_addresses;
use crate::owner::ProxyTables;

/// What a rule takes for pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PodSource {
    Range(IpNet),
    Interface(String),
    Prefix(String),
}

/// What rules show. Rules contradict each other if some are wrong: the majority counts.
#[derive(Debug, Default)]
struct Shown {
    pods: BTreeMap<PodSource, usize>,
    /// Rules that masquerade every packet to a cluster IP.
    masquerade_all: usize,
    /// Rules that masquerade packets to cluster IPs unless they come from pods.
    masquerade_others: usize,
    /// Rules that would tell pods from others if the proxy did.
    cluster_ips: usize,
    every_address: bool,
    node_ports: BTreeSet<IpAddr>,
    /// Over IPv4: kube-proxy never serves node ports on ::1.
    not_loopback: bool,
}

/// Returns the settings that rules show, and whether they show how pods are told from others.
pub(super) fn settings(snapshot: &Snapshot, state: &NodeState, mode: Mode, own: &ProxyTables) -> (ProxySettings, bool) {
    let mut shown = Shown::default();
    match mode {
        Mode::Nftables => state.nft.tables.iter().filter(|table| own.has(table)).for_each(|table| shown.nft(table)),
        _ => {
            let tables = state.v4.tables.iter().chain(&state.v6.tables);
            let tables = tables.filter(|table| matches!(table.name, TableName::Nat | TableName::Filter));
            for (table, chain) in tables.flat_map(|table| table.chains.iter().map(move |chain| (table.name, chain))) {
                chain.rules.iter().for_each(|rule| shown.iptables(table, &chain.name, rule));
            }
        }
    }
    if mode == Mode::Ipvs {
        shown.servers(snapshot, state);
    }
    // With masqueradeAll only policy Local depends on it.
    let known = !shown.pods.is_empty() || shown.masquerade_all == 0 && shown.cluster_ips > 0;
    let (masquerade_source, no_masquerade) = masquerade::of_rules(state, own);
    let settings = ProxySettings {
        mode,
        masquerade_source,
        no_masquerade,
        masquerade_all: shown.masquerade_all > shown.masquerade_others,
        localhost_node_ports: !shown.not_loopback,
        node_port_addresses: shown.node_port_addresses(mode),
        scheduler: most_common(state.servers.services.iter().map(|one| one.scheduler.name()))
            .and_then(|name| scheduler(name).ok())
            .unwrap_or(Scheduler::RoundRobin),
        detect_local: shown.detect_local(),
        ..ProxySettings::default()
    };
    (settings, known)
}

fn most_common<T: Ord>(all: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(one, _)| one)
}

impl Shown {
    fn pods(&mut self, source: Option<PodSource>) {
        source.into_iter().for_each(|source| *self.pods.entry(source).or_default() += 1);
    }

    fn detect_local(&self) -> DetectLocalMode {
        let most = |v4: bool| {
            let of_family = self.pods.iter().filter(|(source, _)| match source {
                PodSource::Range(range) => range.addr().is_ipv4() == v4,
                PodSource::Interface(_) | PodSource::Prefix(_) => true,
            });
            of_family.max_by_key(|(_, count)| **count).map(|(source, _)| source.clone())
        };
        let found: Vec<PodSource> = [most(true), most(false)].into_iter().flatten().collect();
        let ranges =
            found.iter().filter_map(|source| if let PodSource::Range(range) = source { Some(*range) } else { None });
        match found.first() {
            None => DetectLocalMode::Off,
            Some(PodSource::Interface(name)) => DetectLocalMode::BridgeInterface(name.clone()),
            Some(PodSource::Prefix(prefix)) => DetectLocalMode::InterfaceNamePrefix(prefix.clone()),
            Some(PodSource::Range(_)) => DetectLocalMode::ClusterCidr(ranges.collect()),
        }
    }

    /// Without a rule for node ports: the mode's default, so that the rule is missed.
    fn node_port_addresses(&self, mode: Mode) -> Vec<NodePortAddress> {
        if self.node_ports.is_empty() && self.every_address && mode == Mode::Nftables {
            return vec![NodePortAddress::All];
        }
        self.node_ports.iter().map(|address| NodePortAddress::Range(IpNet::from(*address))).collect()
    }

    fn iptables(&mut self, table: TableName, chain: &str, rule: &Rule) {
        if table == TableName::Filter {
            // svcproxy in IPVS mode: what policy Local drops.
            let (source, _) = source(rule).filter(|(_, negated)| *negated && chain == "KUBE-PROXY-FIREWALL").unzip();
            return self.pods(source);
        }
        let marks = matches!(&rule.target, RuleTarget::Jump(target) if target == "KUBE-MARK-MASQ");
        let source = source(rule);
        // `KUBE-SVC-` from 1.20, `KUBE-SERVICES` before and in IPVS mode.
        if chain.starts_with("KUBE-SVC-") || chain == "KUBE-SERVICES" {
            self.cluster_ips += usize::from(chain.starts_with("KUBE-SVC-") || is_to_cluster_ips(rule));
            match source {
                Some((source, true)) if marks => {
                    self.masquerade_others += 1;
                    self.pods(Some(source));
                }
                None if marks && is_to_every_cluster_ip(rule) => self.masquerade_all += 1,
                _ => {}
            }
        }
        let short_circuit = match &rule.target {
            // `KUBE-XLB-` before 1.24.
            RuleTarget::Jump(target) => {
                target.starts_with("KUBE-SVC-") && (chain.starts_with("KUBE-EXT-") || chain.starts_with("KUBE-XLB-"))
            }
            RuleTarget::Redirect(_) | RuleTarget::Dnat(_) => {
                chain == "KUBE-PORTALS-CONTAINER" || chain == "KUBE-NODEPORT-CONTAINER"
            }
            _ => false,
        };
        if let Some((source, false)) = self::source(rule).filter(|_| short_circuit) {
            self.pods(Some(source));
        }
        let to_node_ports = match &rule.target {
            RuleTarget::Jump(target) => target == "KUBE-NODEPORTS" || target == "KUBE-NODE-PORT",
            RuleTarget::Redirect(_) => chain == "KUBE-NODEPORT-CONTAINER",
            _ => false,
        };
        if to_node_ports {
            match rule.header.destination {
                Some(Test { not: false, is }) => self.node_ports.extend(Some(is.address())),
                test => {
                    self.every_address = true;
                    self.not_loopback |= test.is_some_and(|test| test.is.address() == IpAddr::from([127, 0, 0, 0]));
                }
            }
        }
    }

    fn nft(&mut self, table: &Table) {
        for chain in &table.chains {
            self.cluster_ips +=
                usize::from(["service-", "cluster-ip-"].iter().any(|start| chain.name.starts_with(start)));
            // Its rules compare sources with the loopback range only.
            for rule in chain.rules.iter().filter(|_| chain.name != "masquerading") {
                self.nft_rule(table, &chain.name, rule);
            }
        }
    }

    fn nft_rule(&mut self, table: &Table, chain: &str, rule: &NftRule) {
        let marks = rule.statements.iter().any(|statement| match statement {
            Statement::Set { what: Expr::Meta(key), .. } => key == "mark",
            // kube-proxy before 1.34.
            Statement::Verdict(NftVerdict::Jump(to)) => to == "mark-for-masquerade",
            _ => false,
        });
        let leads_on = matches!(rule.statements.last(), Some(Statement::Verdict(NftVerdict::Goto(_))));
        let source = rule.statements.iter().find_map(nft_source);
        match source {
            Some((source, negated)) if negated && marks || !negated && leads_on => {
                self.masquerade_others += usize::from(negated);
                self.pods(Some(source));
            }
            None if marks
                && (chain == "services" || chain.starts_with("service-") || chain.starts_with("cluster-ip-")) =>
            {
                self.masquerade_all += 1;
            }
            _ => {}
        }
        let node_ports = |map: &Expr| matches!(map, Expr::SetRef(name) if name == "service-nodeports");
        if !rule
            .statements
            .iter()
            .any(|statement| matches!(statement, Statement::VerdictMap { map, .. } if node_ports(map)))
        {
            return;
        }
        let listed = rule.statements.iter().find_map(|statement| match statement {
            Statement::Match { right: Expr::SetRef(name), .. } => table.sets.iter().find(|set| set.name == *name),
            _ => None,
        });
        match listed {
            None => self.every_address = true,
            Some(set) => self.node_ports.extend(set.elements.iter().filter_map(|element| address(&element.key))),
        }
    }

    /// kube-proxy restricts node ports by the virtual servers alone.
    fn servers(&mut self, snapshot: &Snapshot, state: &NodeState) {
        let services = snapshot.objects.iter().flat_map(|objects| &objects.services);
        let ports = services.filter_map(|service| service.spec.as_ref()?.ports.as_ref()).flatten();
        let ports: BTreeSet<u16> = ports.filter_map(|port| u16::try_from(port.node_port?).ok()).collect();
        let own: BTreeSet<IpAddr> = own_addresses(snapshot).collect();
        let served = state.servers.services.iter().map(|service| service.address);
        let served = served.filter(|at| ports.contains(&at.port()) && own.contains(&at.ip()));
        let served: BTreeSet<IpAddr> = served.map(|at| at.ip()).collect();
        let of_family =
            |v4| own.iter().filter(move |own| own.is_ipv4() == v4 && !crate::machines::is_link_local(**own));
        let everywhere = [true, false]
            .into_iter()
            .all(|v4| of_family(v4).all(|own| served.contains(own)) || of_family(v4).all(|own| !served.contains(own)));
        if self.node_ports.is_empty() && !everywhere {
            self.node_ports = served;
        }
    }
}

/// The source range or input interface, and whether it is negated.
fn source(rule: &Rule) -> Option<(PodSource, bool)> {
    if let Some(test) = rule.header.source {
        let range = IpNet::new(test.is.address(), test.is.prefix()?).ok()?;
        return Some((PodSource::Range(range), test.not));
    }
    let test = rule.header.input.as_ref()?;
    let source = match test.is.0.strip_suffix('+') {
        Some(prefix) => PodSource::Prefix(prefix.to_owned()),
        None => PodSource::Interface(test.is.0.clone()),
    };
    Some((source, test.not))
}

fn is_to_cluster_ips(rule: &Rule) -> bool {
    let named = |name: &str| ["KUBE-CLUSTER-IP", "KUBE-6-CLUSTER-IP"].contains(&name);
    rule.matches.iter().any(|one| matches!(one, Match::Set(test) if named(&test.set)))
}

fn is_to_every_cluster_ip(rule: &Rule) -> bool {
    let by_set = rule
        .matches
        .iter()
        .any(|one| matches!(one, Match::Set(test) if test.sides.first() == Some(&Side::Destination)));
    let by_address = rule.header.destination.is_some_and(|test| !test.not && test.is.prefix().is_some());
    by_address || by_set && is_to_cluster_ips(rule)
}

fn nft_source(statement: &Statement) -> Option<(PodSource, bool)> {
    let Statement::Match { left, relation, right } = statement else { return None };
    let source = match (left, right) {
        (Expr::Payload { field, .. }, Expr::Prefix(address, length)) if field == "saddr" => {
            let Expr::Word(address) = address.as_ref() else { return None };
            PodSource::Range(IpNet::new(address.parse().ok()?, *length).ok()?)
        }
        (Expr::Meta(key), Expr::Word(name)) if key == "iifname" => match name.strip_suffix('*') {
            Some(prefix) => PodSource::Prefix(prefix.to_owned()),
            None => PodSource::Interface(name.clone()),
        },
        _ => return None,
    };
    Some((source, *relation == Relation::NotEqual))
}

fn address(key: &ElementKey) -> Option<IpAddr> {
    match key {
        ElementKey::Parts(parts) => match parts.as_slice() {
            [Expr::Word(word)] => word.parse().ok(),
            _ => None,
        },
        ElementKey::Any => None,
    }
}

#[cfg(test)]
mod tests {
    use svclab_sim::protocol::Family;

    use super::*;

    fn shown(mode: Mode, text: &str) -> (ProxySettings, bool) {
        let mut state = NodeState::default();
        let lines: String = text.lines().map(|line| format!("{}\n", line.trim())).collect();
        match mode {
            Mode::Nftables => state.read_nft("nft list ruleset", &lines).unwrap(),
            _ => {
                let chains =
                    ["KUBE-MARK-MASQ", "KUBE-SERVICES", "KUBE-SVC-A", "KUBE-EXT-A", "KUBE-XLB-A", "KUBE-NODEPORTS"];
                let declared: String = chains.into_iter().map(|chain| format!(":{chain} - [0:0]\n")).collect();
                let lines = format!("*nat\n{declared}{lines}COMMIT\n");
                state.read_any_rules("iptables-save", Family::V4, &lines).unwrap();
            }
        }
        settings(&Snapshot::default(), &state, mode, &ProxyTables::default())
    }

    fn range(text: &str) -> DetectLocalMode {
        DetectLocalMode::ClusterCidr(vec![text.parse().unwrap()])
    }

    #[test]
    fn rules_of_every_kube_proxy_show_how_pods_are_told_from_others() {
        let interface = || DetectLocalMode::InterfaceNamePrefix("cali".to_owned());
        let iptables = [
            (
                "-A KUBE-SVC-A ! -s 10.42.0.0/16 -d 10.43.0.10/32 -p udp -m udp --dport 53 -j KUBE-MARK-MASQ",
                range("10.42.0.0/16"),
            ),
            (
                "-A KUBE-SERVICES ! -s 10.42.0.0/16 -d 10.43.0.10/32 -p udp -m udp --dport 53 -j KUBE-MARK-MASQ",
                range("10.42.0.0/16"),
            ),
            ("-A KUBE-EXT-A -s 10.42.0.0/16 -j KUBE-SVC-A", range("10.42.0.0/16")),
            ("-A KUBE-XLB-A -s 10.42.0.0/16 -j KUBE-SVC-A", range("10.42.0.0/16")),
            ("-A KUBE-SVC-A ! -i cali+ -d 10.43.0.10/32 -p udp -m udp --dport 53 -j KUBE-MARK-MASQ", interface()),
            (
                "-A KUBE-SVC-A ! -i cni0 -d 10.43.0.10/32 -p udp -m udp --dport 53 -j KUBE-MARK-MASQ",
                DetectLocalMode::BridgeInterface("cni0".to_owned()),
            ),
            ("-A KUBE-SVC-A -p udp -m udp -j KUBE-SERVICES", DetectLocalMode::Off),
        ];
        for (text, expected) in iptables {
            let (settings, known) = shown(Mode::Iptables, text);
            assert_eq!((settings.detect_local, settings.masquerade_all, known), (expected, false, true), "{text}");
        }
        assert!(!shown(Mode::Iptables, "").1);
        let (settings, known) =
            shown(Mode::Iptables, "-A KUBE-SVC-A -d 10.43.0.10/32 -p udp -m udp --dport 53 -j KUBE-MARK-MASQ");
        assert!(settings.masquerade_all && !known, "only policy Local would show it");
        let set = "-m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ";
        assert_eq!(
            shown(Mode::Ipvs, &format!("-A KUBE-SERVICES ! -s 10.42.0.0/16 {set}")).0.detect_local,
            range("10.42.0.0/16")
        );
        assert!(shown(Mode::Ipvs, &format!("-A KUBE-SERVICES {set}")).0.masquerade_all);
        let (settings, known) =
            shown(Mode::Ipvs, "-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP src,dst -j KUBE-MARK-MASQ");
        assert!(!settings.masquerade_all && known && settings.detect_local == DetectLocalMode::Off);
    }

    #[test]
    fn tables_of_nftables_mode_show_it_too() {
        let table = |rules: &str| {
            format!(
                "table ip kube-proxy {{\nset cluster-ips {{\ntype ipv4_addr\n}}\nset nodeport-ips {{\ntype ipv4_addr\nelements = {{ 192.0.2.1 }}\n}}\n\
                 map service-nodeports {{\ntype inet_proto . inet_service : verdict\n}}\n\
                 chain mark-for-masquerade {{\nmeta mark set meta mark | 0x4000\n}}\nchain service-A {{\n}}\n{rules}\n}}\n"
            )
        };
        let services = |rule: &str| shown(Mode::Nftables, &table(&format!("chain services {{\n{rule}\n}}"))).0;
        let newer = services("ip daddr @cluster-ips ip saddr != 10.42.0.0/16 meta mark set meta mark | 0x4000");
        let older = shown(Mode::Nftables, &table("chain service-B {\nip daddr 10.43.0.10 tcp dport 53 ip saddr != 10.42.0.0/16 jump mark-for-masquerade\n}")).0;
        let local = shown(Mode::Nftables, &table("chain external-B {\nip saddr 10.42.0.0/16 goto service-A\n}")).0;
        for settings in [newer, older, local] {
            assert_eq!((settings.detect_local, settings.masquerade_all), (range("10.42.0.0/16"), false));
        }
        let interface = services("ip daddr @cluster-ips iifname != \"cali*\" meta mark set meta mark | 0x4000");
        assert_eq!(interface.detect_local, DetectLocalMode::InterfaceNamePrefix("cali".to_owned()));
        assert!(services("ip daddr @cluster-ips meta mark set meta mark | 0x4000").masquerade_all);
        let listed = services("ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports");
        assert_eq!(listed.node_port_addresses, [NodePortAddress::Range("192.0.2.1/32".parse().unwrap())]);
        let every =
            services("fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports");
        assert_eq!(every.node_port_addresses, [NodePortAddress::All]);
    }

    #[test]
    fn node_ports_answer_where_rules_say() {
        let of = |text: &str| shown(Mode::Iptables, text).0;
        let one = of("-A KUBE-SERVICES -d 192.0.2.1/32 -j KUBE-NODEPORTS");
        assert_eq!(one.node_port_addresses, [NodePortAddress::Range("192.0.2.1/32".parse().unwrap())]);
        let every = of("-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS");
        assert!(every.node_port_addresses.is_empty() && every.localhost_node_ports);
        let outside = of("-A KUBE-SERVICES ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS");
        assert!(outside.node_port_addresses.is_empty() && !outside.localhost_node_ports);
    }

    #[test]
    fn a_rule_that_differs_from_the_others_does_not_count() {
        let text = "-A KUBE-SVC-A ! -s 10.42.0.0/16 -d 10.43.0.10/32 -j KUBE-MARK-MASQ\n\
            -A KUBE-SVC-A ! -s 10.0.0.0/8 -d 10.43.0.11/32 -j KUBE-MARK-MASQ\n-A KUBE-EXT-A -s 10.42.0.0/16 -j KUBE-SVC-A";
        assert_eq!(shown(Mode::Iptables, text).0.detect_local, range("10.42.0.0/16"));
    }
}
