//! Audits of nodes with rules, virtual servers and names of other programs.

use svclab_audit::audit::{AuditOptions, Report, audit};
use svclab_audit::owner::ProxyTables;
use svclab_audit::report;
use svclab_oracle::Mode;
use svclab_oracle::generate::recipe;
use svclab_properties::proxies::Proxies;
use svclab_properties::snapshots::snapshot;
use svclab_properties::sweep::in_mode;
use svclab_snapshot::Snapshot;

const NODE: &str = "node-a";

/// Returns the first generated node of which `fits` holds.
fn node(mode: Mode, fits: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let nodes = (0..200).map(|number| {
        let cluster = in_mode(&recipe(number), mode);
        snapshot(&cluster, NODE, &Proxies::synced(&cluster, NODE).unwrap().dump())
    });
    let found = nodes.filter(|node| node.network.is_some()).find(|node| fits(node) && audited(node).is_clean());
    found.unwrap_or_else(|| panic!("no generated node fits"))
}

fn audited(snapshot: &Snapshot) -> Report {
    audit(snapshot, &AuditOptions::default()).unwrap()
}

fn kinds(report: &Report) -> Vec<&str> {
    report.wrong().map(|finding| finding.kind).collect()
}

#[test]
fn probabilities_of_five_digits_are_even() {
    let exact = "--probability 0.33333333349";
    let healthy = node(Mode::Iptables, |node| node.nft_v4.as_ref().is_some_and(|rules| rules.contains(exact)));
    let with = |probability: &str| {
        let rules = healthy.nft_v4.clone().map(|rules| rules.replace(exact, &format!("--probability {probability}")));
        audited(&Snapshot { nft_v4: rules, ..healthy.clone() })
    };
    assert!(with("0.33332999982").is_clean(), "{:?}", kinds(&with("0.33332999982")));
    assert!(kinds(&with("0.33330000006")).contains(&"share"));
    assert!(kinds(&with("0.33333300008")).contains(&"share"), "six digits");
}

#[test]
fn tables_that_a_description_names_are_the_proxys_and_others_are_foreign() {
    let usual = node(Mode::Nftables, |node| node.nft.as_ref().is_some_and(|rules| rules.contains("dnat")));
    let expected = audited(&usual);
    let renamed = usual.nft.clone().unwrap().replace("kube-proxy", "my-proxy");
    let audited_as = |mode: Mode, rules: &str, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let tables = ProxyTables::named(&names).unwrap();
        let snapshot = Snapshot { nft: Some(rules.to_owned()), ..usual.clone() };
        audit(&snapshot, &AuditOptions { mode: Some(mode), tables, ..AuditOptions::default() }).unwrap()
    };
    let own = ["ip my-proxy", "ip6 my-proxy"];
    for mode in [Mode::Nftables, Mode::Other] {
        let report = audited_as(mode, &renamed, &own);
        assert!(report.is_clean(), "{:?}", kinds(&report));
        assert!(expected.coverage.total > 0 && report.coverage.total == expected.coverage.total);
        assert!(report.coverage.met > 0);
    }
    assert_eq!(audited_as(Mode::Nftables, &renamed, &["ip their-proxy"]).coverage.total, 0);

    let dropping = format!(
        "{renamed}\ntable inet early {{\n\tchain first {{\n\t\ttype filter hook prerouting priority -350; policy accept;\n\
         \t\tmeta l4proto {{ tcp, udp }} drop\n\t}}\n}}\n"
    );
    let causes = |names: &[&str]| {
        let report = audited_as(Mode::Other, &dropping, names);
        let causes: Vec<String> = report.wrong().map(|finding| finding.cause.clone()).collect();
        assert!(!causes.is_empty());
        causes
    };
    let foreign = |cause: &String| cause.starts_with("what is not the proxy's catches it: ");
    assert!(causes(&own).iter().any(foreign), "{:?}", causes(&own));
    let with_early = causes(&[own[0], own[1], "inet early"]);
    assert!(!with_early.iter().any(foreign), "{with_early:?}");
    // Another proxy's table is told by its name.
    let theirs = dropping.replace("table inet early", "table inet kube-proxy");
    let report = audited_as(Mode::Other, &theirs, &own);
    assert!(report.wrong().any(|finding| finding.cause.starts_with("a rule of kube-proxy catches it: ")));
}

#[test]
fn a_foreign_virtual_server_leaves_the_others_judged() {
    let mut beside = node(Mode::Ipvs, |node| node.servers.is_some());
    let own = audited(&beside);
    let foreign = "-A -t 192.0.2.200:443 -s wrr\n-a -t 192.0.2.200:443 -r 192.0.2.50:443 -g -w 1\n\
                   -A -f 7 -s ovf\n-a -f 7 -r 192.0.2.50:0 -i -w 1\n";
    beside.servers.as_mut().unwrap().push_str(foreign);
    let report = audited(&beside);
    assert!(report.is_clean(), "{:?}", kinds(&report));
    assert_eq!((report.calls, report.not_judged.len()), (own.calls, own.not_judged.len()));
}

#[test]
fn persistence_by_network_binds_neighbours() {
    let mut bound = node(Mode::Ipvs, |node| {
        node.servers.as_ref().is_some_and(|servers| servers.contains("-s rr -p ") && !servers.contains(" [f"))
    });
    let servers = bound.servers.as_mut().unwrap();
    let lines = servers.lines().map(|line| match line.contains("-s rr -p ") {
        true => format!("{line} -M 255.255.255.0\n"),
        false => format!("{line}\n"),
    });
    *servers = lines.collect();
    assert!(kinds(&audited(&bound)).contains(&"affinity"));
}

#[test]
fn control_characters_of_a_node_reach_no_report() {
    let mut hostile = node(Mode::Iptables, |node| node.nft_v4.as_ref().is_some_and(|rules| rules.contains("DNAT")));
    let rule = "-A FORWARD -p tcp -m comment --comment \"a\u{1b}[31mRED\u{7}\u{9b}\u{202e}\u{0}\" -j DROP\n-A FORWARD";
    hostile.nft_v4 = hostile.nft_v4.map(|rules| rules.replacen("-A FORWARD", rule, 1));
    let report = audited(&hostile);
    assert!(!report.is_clean());
    let is_odd = |char: char| char.is_control() && !matches!(char, '\n' | '\t') || char == '\u{202e}';
    let forms = [
        report::text(&report, true),
        report::markdown(&report),
        report::json(&report).unwrap(),
        report::junit(&report),
        report::html(&report),
        report::summary(&report),
    ];
    for form in &forms {
        assert!(!form.contains(is_odd), "{form}");
    }
    for form in &forms[..3] {
        assert!(form.contains("a\\u001b[31mRED\\u0007\\u009b\\u202e\\u0000") || form.contains("\\u001b"), "{form}");
    }
    assert!(serde_json::from_str::<serde_json::Value>(&forms[2]).is_ok());
}

/// A node with IPv6 services and the start of a table's text.
fn v6() -> Snapshot {
    node(Mode::Iptables, |node| {
        node.nft_v6.as_ref().is_some_and(|rules| rules.contains("DNAT") && rules.contains("-A INPUT"))
    })
}

#[test]
fn rules_on_extension_headers_change_nothing() {
    let mut node = v6();
    let rules = "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
                 -A PREROUTING -m ipv6header --header ipv6-frag --soft -j DROP\n\
                 -A PREROUTING -m rt --rt-type 0 -j DROP\n\
                 -A PREROUTING -m frag --fragid 0:4 -j DROP\n\
                 -A PREROUTING -m eui64 -j ACCEPT\nCOMMIT\n";
    node.nft_v6.as_mut().unwrap().push_str(rules);
    let report = audited(&node);
    assert!(report.is_clean() && report.not_judged.is_empty(), "{:?}", report.not_judged);
}

#[test]
fn dropped_neighbour_discovery_is_the_cause() {
    let healthy = v6();
    let with = |rule: &str| {
        let rules = healthy.nft_v6.clone().map(|rules| rules.replacen("-A INPUT", &format!("{rule}\n-A INPUT"), 1));
        audited(&Snapshot { nft_v6: rules, ..healthy.clone() })
    };
    let all = with("-A INPUT -p ipv6-icmp -j DROP");
    assert!(
        all.wrong().any(|finding| finding.cause.contains("of chain INPUT in table filter: -p ipv6-icmp -j DROP")),
        "{:?}",
        kinds(&all)
    );
    let half = with("-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j DROP");
    assert!(!half.not_judged.is_empty(), "{:?}", kinds(&half));
    assert!(with("-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 133 -j DROP").is_clean());
}
