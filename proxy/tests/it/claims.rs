//! After any changes each claimed frontend has the rule's owner, and only Services that won or lost a frontend are
//! marked as changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use svcproxy::config::Config;
use svcproxy::kernel::iptables::FakeIptables;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::iptables::syncer::IptablesSyncer;
use svcproxy::model::{Change, Family, ObjectKey, Protocol};
use svcproxy::plan::stale_flows::{Flow, Frontend};
use svcproxy::state::State;
use svcproxy::state::claims::{Claim, ClaimRank};
use svcproxy::state::service::ServicePort;
use svcproxy::testing::{self, key};

use crate::support::changes::any_service;

fn object(name: &str, created: Option<&str>, spec: Value) -> Change {
    let (namespace, short) = name.split_once('/').unwrap();
    let object = json!({ "metadata": { "creationTimestamp": created }, "spec": spec });
    let key = ObjectKey { namespace: namespace.into(), name: short.into() };
    Change::Service(key, Some(Arc::new(serde_json::from_value(object).unwrap())))
}

fn gone(name: &str) -> Change {
    let (namespace, name) = name.split_once('/').unwrap();
    Change::Service(ObjectKey { namespace: namespace.into(), name: name.into() }, None)
}

fn dns(cluster_ip: &str, external_ips: &[&str]) -> Value {
    json!({ "clusterIP": cluster_ip, "externalIPs": external_ips, "ports": [{ "port": 53, "protocol": "UDP" }] })
}

fn owners(state: &State) -> Vec<String> {
    let line = |port: &ServicePort| {
        let frontends: Vec<String> = port
            .frontends()
            .map(|frontend| match frontend {
                Frontend::Address(address) => address.ip().to_string(),
                Frontend::NodePort(number) => number.to_string(),
            })
            .chain(port.health_check_node_port.map(|number| format!("check {number}")))
            .collect();
        format!("{} {}", port.name.service, frontends.join(" "))
    };
    state.service_ports().map(|port| line(&port)).collect()
}

fn state(changes: &[Change]) -> State {
    let mut state = State::new(Family::V4, "node-a");
    changes.iter().for_each(|change| state.apply(change));
    state
}

fn changed(state: &mut State) -> Vec<String> {
    state.take_changed().service_ports.iter().map(|name| name.service.to_string()).collect()
}

#[test]
fn a_cluster_ip_wins_over_an_older_external_ip() {
    let evil = object("aaa/evil", Some("2020-01-01T00:00:00Z"), dns("10.96.0.66", &["10.96.0.10", "203.0.113.1"]));
    let kube_dns = object("kube-system/kube-dns", Some("2026-01-01T00:00:00Z"), dns("10.96.0.10", &[]));
    for order in [[&evil, &kube_dns], [&kube_dns, &evil]] {
        let state = state(&order.map(Clone::clone));
        assert_eq!(owners(&state), ["aaa/evil 10.96.0.66 203.0.113.1", "kube-system/kube-dns 10.96.0.10"]);
    }
}

#[test]
fn among_equals_the_older_wins_then_the_first_by_name_and_no_age_counts_as_younger() {
    let one = |name: &str, created| object(name, created, dns(&format!("10.96.0.{}", name.len()), &["203.0.113.1"]));
    let (old, new) = (Some("2026-01-01T00:00:00Z"), Some("2026-01-01T00:00:01Z"));
    for (a, bb, winner) in [(old, new, "a"), (new, old, "bb"), (old, old, "a"), (None, new, "bb"), (None, None, "a")] {
        let state = state(&[one("x/a", a), one("x/bb", bb)]);
        let with: Vec<String> = owners(&state).into_iter().filter(|line| line.ends_with("203.0.113.1")).collect();
        assert_eq!(with.len(), 1);
        assert!(with[0].starts_with(&format!("x/{winner} ")), "{with:?}");
    }
}

#[test]
fn node_ports_and_health_checks_have_one_owner_and_the_loser_keeps_the_rest() {
    let spec = |ip: &str, check: u16| {
        json!({
            "type": "LoadBalancer", "clusterIP": ip, "externalTrafficPolicy": "Local", "healthCheckNodePort": check,
            "ports": [{ "name": "a", "port": 80, "nodePort": 30_080 }, { "name": "b", "port": 81, "nodePort": check - 1 }],
        })
    };
    let state =
        state(&[object("x/a", None, spec("10.96.0.1", 32_001)), object("x/b", None, spec("10.96.0.2", 32_001))]);
    assert_eq!(
        owners(&state),
        ["x/a 10.96.0.1 30080 check 32001", "x/a 10.96.0.1 32000 check 32001", "x/b 10.96.0.2", "x/b 10.96.0.2",]
    );
}

#[test]
fn a_shared_address_with_different_ports_is_no_dispute() {
    let at = |ip: &str, port: u16, protocol: &str| json!({ "clusterIP": ip, "externalIPs": ["203.0.113.1"], "ports": [{ "port": port, "protocol": protocol }] });
    let services = [
        object("x/a", None, at("10.96.0.1", 53, "UDP")),
        object("x/b", None, at("10.96.0.2", 53, "TCP")),
        object("x/c", None, at("10.96.0.3", 54, "TCP")),
    ];
    let mut state = state(&services);
    assert!(owners(&state).iter().all(|line| line.ends_with("203.0.113.1")), "{:?}", owners(&state));
    assert_eq!(state.take_disputes(), []);
}

#[test]
fn only_winners_and_losers_are_marked_and_each_loss_is_reported_once() {
    let one = |name: &str, second: u8| {
        let created = format!("2026-01-01T00:00:{second:02}Z");
        let ip = format!("10.96.0.{}", second + 1);
        object(name, Some(&created), dns(&ip, &["203.0.113.1"]))
    };
    let mut state = state(&[one("x/a", 1), one("x/b", 2), one("x/c", 3), object("x/d", None, dns("10.96.1.1", &[]))]);
    state.take_changed();
    let reports = |state: &mut State| {
        let line = |dispute: svcproxy::state::claims::Dispute| {
            let winner = dispute.winner.map(|(name, rank)| format!("{} {rank:?}", name.service));
            format!("{} {} {}", dispute.loser.service, dispute.claim, winner.unwrap_or_else(|| "-".to_owned()))
        };
        state.take_disputes().into_iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(reports(&mut state), ["x/b 203.0.113.1:53/udp x/a Other", "x/c 203.0.113.1:53/udp x/a Other"]);
    state.apply(&one("x/c", 3));
    assert_eq!((changed(&mut state), reports(&mut state)), (vec![], vec![]), "nothing changed");
    state.apply(&one("x/e", 9));
    assert_eq!(changed(&mut state), ["x/e"], "who loses from the start changes nothing for others");
    assert_eq!(reports(&mut state), ["x/e 203.0.113.1:53/udp x/a Other"]);
    state.apply(&gone("x/a"));
    assert_eq!(changed(&mut state), ["x/a", "x/b"], "the next one has it in the same sync");
    assert_eq!(reports(&mut state), ["x/b 203.0.113.1:53/udp -"]);
    state.apply(&gone("x/e"));
    assert_eq!(
        (changed(&mut state), reports(&mut state)),
        (vec!["x/e".to_owned()], vec!["x/e 203.0.113.1:53/udp -".to_owned()])
    );
    // The Service is created again with the same content, so it is younger.
    state.apply(&object("x/b", Some("2026-01-02T00:00:00Z"), dns("10.96.0.3", &["203.0.113.1"])));
    assert_eq!(changed(&mut state), ["x/b", "x/c"]);
    state.apply(&object("x/d", Some("2026-01-02T00:00:00Z"), dns("10.96.1.1", &[])));
    assert_eq!(changed(&mut state), Vec::<String>::new(), "an age alone changes nothing");
}

/// Returns the owners, computed from all Services.
fn by_the_rule(services: &BTreeMap<ObjectKey, Change>) -> BTreeMap<Claim, String> {
    type Best = (ClaimRank, bool, String, String);
    let mut best: BTreeMap<Claim, (Best, String)> = BTreeMap::new();
    for change in services.values() {
        let Change::Service(key, Some(service)) = change else { continue };
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
        for port in state(std::slice::from_ref(change)).service_ports() {
            let cluster_ip = port.cluster_ip;
            let frontends = port.frontends().map(|f| Claim::Frontend(port.name.protocol, f));
            for claim in frontends.chain(port.health_check_node_port.map(Claim::HealthCheck)) {
                let own = matches!(claim, Claim::Frontend(_, Frontend::Address(a)) if Some(a.ip()) == cluster_ip);
                let rank = if own { ClaimRank::ClusterIp } else { ClaimRank::Other };
                let mine = (rank, created.is_none(), created.clone().unwrap_or_default(), key.to_string());
                let place = best.entry(claim).or_insert_with(|| (mine.clone(), key.to_string()));
                if mine < place.0 {
                    *place = (mine, key.to_string());
                }
            }
        }
    }
    best.into_iter().map(|(claim, (_, owner))| (claim, owner)).collect()
}

fn as_it_is(state: &State) -> BTreeMap<Claim, String> {
    let mut owners = BTreeMap::new();
    for port in state.service_ports() {
        let frontends = port.frontends().map(|f| Claim::Frontend(port.name.protocol, f));
        for claim in frontends.chain(port.health_check_node_port.map(Claim::HealthCheck)) {
            let owner = port.name.service.to_string();
            let before = owners.insert(claim, owner.clone());
            assert!(before.is_none_or(|before| before == owner), "{claim} has two owners");
        }
    }
    owners
}

fn by_name(state: &State) -> BTreeMap<svcproxy::model::ServicePortName, ServicePort> {
    state.service_ports().map(|port| (port.name.clone(), port.into_owned())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn by_whatever_changes_each_claim_is_with_who_the_rule_says(
        changes in prop::collection::vec(prop_oneof![
            4 => any_service(),
            1 => (0u8..4).prop_map(|index| Change::Service(key(&format!("svc-{index}")), None)),
        ], 1..20)
    ) {
        let mut objects: BTreeMap<ObjectKey, Change> = BTreeMap::new();
        let mut state = State::new(Family::V4, "node-a");
        let mut standing = BTreeSet::new();
        for change in &changes {
            let Change::Service(key, _) = change else { continue };
            let before = by_name(&state);
            objects.insert(key.clone(), change.clone());
            state.apply(change);
            prop_assert_eq!(as_it_is(&state), by_the_rule(&objects));
            let after = by_name(&state);
            let marked = state.take_changed().service_ports;
            for name in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
                let differs = before.get(name) != after.get(name);
                prop_assert!(!differs || marked.contains(name), "{} changed and is not marked", name);
                prop_assert!(differs || !marked.contains(name) || name.service == *key, "{} is marked for nothing", name);
            }
            for dispute in state.take_disputes() {
                let place = (dispute.loser, dispute.claim);
                match dispute.winner {
                    Some(_) => prop_assert!(standing.insert(place), "reported twice"),
                    None => prop_assert!(standing.remove(&place), "ended, and never began"),
                }
            }
        }
        let wanted: usize = objects.values().map(|change| as_it_is(&self::state(std::slice::from_ref(change))).len()).sum();
        prop_assert_eq!(standing.len(), wanted - as_it_is(&state).len(), "each loss is reported");
    }
}

#[test]
fn a_health_check_port_passes_to_the_next_older_service() {
    let spec = |ip: &str| {
        json!({
            "type": "LoadBalancer", "clusterIP": ip, "externalTrafficPolicy": "Local", "healthCheckNodePort": 32_000,
            "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 81 }],
        })
    };
    let mut proxy = assemble::iptables(&Config::for_node("node-a"), Family::V4, FakeIptables::default());
    let young = object("x/young", Some("2026-01-01T00:00:05Z"), spec("10.96.0.1"));
    let old = object("x/old", Some("2026-01-01T00:00:01Z"), spec("10.96.0.2"));
    let asked = |proxy: &mut FamilyProxy<IptablesSyncer<FakeIptables>>| {
        proxy.sync().unwrap();
        let line = |(service, check): (ObjectKey, Option<svcproxy::plan::health::ServiceCheck>)| {
            format!("{service} {:?}", check.map(|check| check.port))
        };
        proxy.take_health_changes().into_iter().map(line).collect::<Vec<_>>()
    };
    proxy.apply(&[young]);
    assert_eq!(asked(&mut proxy), ["x/young Some(32000)"]);
    proxy.apply(&[old]);
    assert_eq!(asked(&mut proxy), ["x/old Some(32000)", "x/young None"]);
    proxy.apply(&[gone("x/old")]);
    assert_eq!(asked(&mut proxy), ["x/old None", "x/young Some(32000)"]);
}

/// UDP flows keep the old owner's endpoint until their conntrack entry is deleted.
#[test]
fn flows_to_the_old_owners_endpoint_are_stale_once_another_has_the_frontend() {
    let slice = |service: &str, address: &str| {
        let ports = json!([{ "port": 53, "protocol": "UDP" }]);
        match testing::slice(service, json!([{ "addresses": [address] }]), ports) {
            Change::EndpointSlice(key, object) => {
                Change::EndpointSlice(ObjectKey { namespace: "x".into(), ..key }, object)
            }
            other => other,
        }
    };
    let flow = |server: &str| Flow {
        protocol: Protocol::Udp,
        client: "10.244.0.9".parse().unwrap(),
        destination: "203.0.113.1:53".parse().unwrap(),
        server: server.parse().unwrap(),
        translated: true,
        by_ipvs: false,
    };
    let mut proxy = assemble::iptables(&Config::for_node("node-a"), Family::V4, FakeIptables::default());
    let a = object("x/a", Some("2026-01-01T00:00:05Z"), dns("10.96.0.1", &["203.0.113.1"]));
    let b = object("x/b", Some("2026-01-01T00:00:09Z"), dns("10.96.0.2", &["203.0.113.1"]));
    proxy.apply(&[a, b, slice("a", "10.244.0.1"), slice("b", "10.244.0.2")]);
    proxy.sync().unwrap();
    let flows = proxy.stale_flows().unwrap();
    assert!(!flows.is_stale(&flow("10.244.0.1:53")) && flows.is_stale(&flow("10.244.0.2:53")));
    proxy.conntrack_reconciled();
    // An older Service gets the frontend, in a partial sync.
    let older = object("x/b", Some("2026-01-01T00:00:01Z"), dns("10.96.0.2", &["203.0.113.1"]));
    proxy.apply(&[older]);
    assert!(!proxy.sync().unwrap().full);
    let flows = proxy.stale_flows().unwrap();
    assert!(flows.is_stale(&flow("10.244.0.1:53")) && !flows.is_stale(&flow("10.244.0.2:53")));
    proxy.conntrack_reconciled();
    proxy.apply(&[gone("x/b")]);
    proxy.sync().unwrap();
    let flows = proxy.stale_flows().unwrap();
    assert!(!flows.is_stale(&flow("10.244.0.1:53")) && flows.is_stale(&flow("10.244.0.2:53")));
}
