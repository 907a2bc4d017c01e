//! The cause of a finding is named once for the whole node.

use svclab_audit::audit::Finding;
use svclab_oracle::Mode;
use svclab_snapshot::Snapshot;

use crate::{healthy, report};

/// Returns the only finding.
fn only(snapshot: &Snapshot) -> Finding {
    let report = report(snapshot);
    let said: Vec<String> =
        report.wrong().map(|one| format!("{} of {:?}: {}", one.kind, one.services, one.cause)).collect();
    assert_eq!(said.len(), 1, "{}", said.join("\n"));
    report.wrong().next().unwrap().clone()
}

#[test]
fn a_kernel_setting_is_one_finding() {
    for (mode, key, value, cause) in [
        (Mode::Iptables, "net.ipv4.ip_forward", "0", "the kernel setting net.ipv4.ip_forward = 0"),
        (Mode::Nftables, "net.ipv4.ip_forward", "0", "the kernel setting net.ipv4.ip_forward = 0"),
        (Mode::Ipvs, "net.ipv4.vs.conntrack", "0", "the kernel setting net.ipv4.vs.conntrack = 0"),
    ] {
        let mut broken = healthy(mode);
        assert!(report(&broken).is_clean(), "{}", mode.name());
        broken.sysctls.insert(key.to_owned(), value.to_owned());
        let finding = only(&broken);
        assert_eq!(finding.cause, cause);
        assert!(finding.service_count > 1 && finding.count > finding.service_count, "{finding:?}");
    }
}

#[test]
fn a_policy_and_another_programs_rule_are_one_finding_each() {
    let healthy = healthy(Mode::Iptables);
    let with = |changes: &[(&str, &str)]| {
        let mut rules = healthy.nft_v4.clone().unwrap();
        for (from, to) in changes {
            assert!(rules.contains(from), "{rules}");
            rules = rules.replacen(from, to, 1);
        }
        Snapshot { nft_v4: Some(rules), ..healthy.clone() }
    };
    let policy = only(&with(&[(":FORWARD ACCEPT", ":FORWARD DROP")]));
    assert!(policy.cause.contains("the policy of FORWARD in filter"), "{}", policy.cause);
    let rule = only(&with(&[
        (":FORWARD", ":cali-FORWARD - [0:0]\n:FORWARD"),
        ("-A FORWARD", "-A cali-FORWARD -p tcp -j DROP\n-A FORWARD -j cali-FORWARD\n-A FORWARD"),
    ]));
    assert!(rule.cause.starts_with("a rule of Calico catches it: "), "{}", rule.cause);
    assert!(rule.cause.contains("rule 1 of chain cali-FORWARD in table filter"), "{}", rule.cause);
}

/// Another program's mark excuses the proxy's masquerade only if it is the masquerade mark.
#[test]
fn a_foreign_mark_does_not_excuse_the_proxys_masquerade() {
    let healthy = healthy(Mode::Iptables);
    let rules = healthy.nft_v4.as_deref().unwrap();
    let everything = rules.replacen("-A KUBE-POSTROUTING", "-A KUBE-POSTROUTING -j MASQUERADE\n-A KUBE-POSTROUTING", 1);
    let (others, mangle) = everything.split_once("*mangle\n").unwrap();
    let forward = if mangle.contains(":FORWARD") { "" } else { ":FORWARD ACCEPT [0:0]\n" };
    let marks = "-A FORWARD -j cali-mark\n-A cali-mark -j MARK --set-xmark 0x10000/0x10000\nCOMMIT";
    let mangle = mangle.replacen("COMMIT", marks, 1);
    let rules = format!("{others}*mangle\n:cali-mark - [0:0]\n{forward}{mangle}");
    let report = report(&Snapshot { nft_v4: Some(rules), ..healthy.clone() });
    assert!(report.wrong().any(|finding| finding.kind == "source"), "{:?}", report.assumed);
    assert!(report.wrong().all(|finding| !finding.cause.contains("Calico")), "{:?}", report.findings);
}

#[test]
fn a_full_connection_table_is_a_finding() {
    let mut full = healthy(Mode::Iptables);
    full.conntrack =
        [("count", 1024), ("max", 1024), ("drop", 0)].map(|(name, number)| (name.to_owned(), number)).into();
    assert!(report(&full).is_clean(), "no packet was dropped");
    full.conntrack.insert("drop".to_owned(), 7);
    assert_eq!(only(&full).kind, "conntrack-full");
}

/// The kernel removes the routes of an interface that is set down.
#[test]
fn an_interface_that_is_down_is_one_finding() {
    let mut broken = healthy(Mode::Iptables);
    let network = broken.network.as_mut().unwrap();
    network.links.iter_mut().filter(|link| link.name == "cni0").for_each(|link| link.up = false);
    network.routes.retain(|route| route.hops.iter().all(|hop| hop.interface.as_deref() != Some("cni0")));
    let finding = only(&broken);
    assert_eq!(finding.cause, "interface cni0 is down");
    assert!(finding.service_count > 1, "{finding:?}");
}

#[test]
fn rules_that_no_call_met_are_counted() {
    for mode in [Mode::Iptables, Mode::Nftables, Mode::Ipvs] {
        let coverage = report(&healthy(mode)).coverage;
        println!("{}: {} of {}\n  {}", mode.name(), coverage.met, coverage.total, coverage.unmet.join("\n  "));
        assert!(coverage.met > 0 && coverage.met < coverage.total, "{coverage:?}");
    }
    let mut snapshot = healthy(Mode::Iptables);
    let before = report(&snapshot).coverage;
    let rules = snapshot.nft_v4.take().unwrap();
    snapshot.nft_v4 =
        Some(rules.replacen("-A KUBE-", "-A KUBE-FORWARD -p tcp -m tcp --sport 7 --dport 7 -j DROP\n-A KUBE-", 1));
    let after = report(&snapshot).coverage;
    assert_eq!((after.met, after.total), (before.met, before.total + 1));
    assert!(after.unmet.iter().any(|line| line.contains("rule of KUBE-FORWARD with -j DROP")), "{:?}", after.unmet);
}
