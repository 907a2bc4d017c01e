//! Tests with the fake kernel: the final state of histories, and the cost of changes.

mod affinity;
mod hashing;
mod source_ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::support::changes::{any_node, any_service, any_slice};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use svcproxy::config::{Config, DetectLocal, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::kernel::nftables::FakeNftTable;
use svcproxy::kernel::nftables::fake::FakeContent;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::nftables::syncer::NftablesSyncer;
use svcproxy::model::{Change, Family};
use svcproxy::nftables::change::TableAction;
use svcproxy::nftables::{Chain, ElementValue, Name, NftChange};
use svcproxy::relay;
use svcproxy::testing::{self, key};

type NftablesProxy = FamilyProxy<NftablesSyncer<FakeNftTable>>;

fn proxy(table: FakeNftTable) -> NftablesProxy {
    with_settings(table, ChangedSettings::default())
}

#[derive(Debug, Clone, Copy, Default)]
struct ChangedSettings {
    masquerade_all: bool,
    service_counters: bool,
}

fn with_settings(table: FakeNftTable, settings: ChangedSettings) -> NftablesProxy {
    let ChangedSettings { masquerade_all, service_counters } = settings;
    let config = Config {
        mode: Mode::Nftables,
        masquerade_all,
        service_counters: service_counters.then(|| "*/svc-*".parse().unwrap()),
        detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        node_port_addresses: NodePortAddresses::Primary,
        ..Config::for_node("node-a")
    };
    let mut proxy = assemble::nftables(&config, Family::V4, table, |_| relay::FakeRelays::default());
    let own = "172.18.0.2".parse().unwrap();
    proxy.set_addresses(&NodeAddresses { local: vec![own], primary: vec![own], ..NodeAddresses::default() });
    proxy
}

fn content(proxy: &mut NftablesProxy) -> FakeContent {
    proxy.mode().table().table.clone().unwrap()
}

/// A table's content without the indexes of endpoints.
#[derive(Debug, PartialEq, Eq)]
struct Meaning {
    chains: BTreeMap<Name, (usize, String)>,
    sets: BTreeSet<Name>,
    counters: BTreeSet<Name>,
    elements: BTreeSet<(&'static str, Vec<u8>, String)>,
}

fn meaning(content: &FakeContent) -> Meaning {
    let mut numbers: BTreeMap<(&str, Vec<u8>), BTreeSet<u32>> = BTreeMap::new();
    let elements = content.elements.iter().map(|((set, key), value)| {
        let key = match value {
            ElementValue::Endpoint(_) => {
                let (frontend, number) = key.split_number().unwrap();
                let frontend = frontend.bytes().to_vec();
                assert!(numbers.entry((set, frontend.clone())).or_default().insert(number));
                frontend
            }
            _ => key.bytes().to_vec(),
        };
        (*set, key, format!("{value:?}"))
    });
    let elements = elements.collect();
    for (of, numbers) in numbers {
        assert!(numbers.iter().copied().eq(0..u32::try_from(numbers.len()).unwrap()), "{of:?} has gaps: {numbers:?}");
    }
    Meaning {
        chains: content
            .chains
            .iter()
            .map(|(name, chain)| (name.clone(), (chain.rules.len(), rules(name, chain))))
            .collect(),
        sets: content.sets.keys().cloned().collect(),
        counters: content.counters.clone(),
        elements,
    }
}

/// Rules that pick an endpoint are in the order of indexes, which depends on history, so their statements are sorted.
fn rules(name: &str, chain: &Chain) -> String {
    if !["service-", "local-"].iter().any(|prefix| name.starts_with(prefix)) {
        return format!("{:?}", chain.rules);
    }
    let statements = chain.rules.iter().flat_map(|rule| &rule.statements);
    let mut statements: Vec<String> = statements.map(|statement| format!("{statement:?}")).collect();
    statements.sort_unstable();
    statements.join("\n")
}

fn settle(proxy: &mut NftablesProxy) {
    let later = Instant::now() + Duration::from_secs(60);
    let mut done = || {
        let synced = !proxy.is_due() || proxy.sync().is_ok();
        synced && proxy.follow_up(later).is_ok_and(|again| again.is_none()) && !proxy.is_due()
    };
    assert!((0..100).any(|_| done()), "{:?}", proxy.sync());
}

#[derive(Debug, Clone)]
enum NftablesStep {
    Apply(Change),
    Sync,
    Refuse,
    /// Restarts with other settings; the first sync has this many quarters of the objects.
    Restart(ChangedSettings, usize),
    Tamper(bool),
    FollowUp,
}

fn service_cidr(name: &str, ranges: &[&str]) -> Change {
    let value = json!({ "metadata": { "name": name }, "spec": { "cidrs": ranges } });
    Change::ServiceCidr(name.to_owned(), Some(testing::object(value)))
}

/// Overlapping and adjacent ranges, and one that ends with the last address.
fn any_service_cidr() -> impl Strategy<Value = Change> {
    let ranges = vec!["10.96.0.0/16", "10.96.0.0/12", "10.96.128.0/17", "10.112.0.0/16", "10.95.0.0/16", "240.0.0.0/4"];
    let range = prop::option::of(prop::sample::select(ranges));
    (0u8..3, range).prop_map(|(index, range)| {
        let name = format!("range-{index}");
        range.map_or(Change::ServiceCidr(name.clone(), None), |range| service_cidr(&name, &[range, "fd00::/112"]))
    })
}

fn any_step() -> impl Strategy<Value = NftablesStep> {
    prop_oneof![
        4 => any_service().prop_map(NftablesStep::Apply),
        4 => any_slice().prop_map(NftablesStep::Apply),
        1 => any_node().prop_map(NftablesStep::Apply),
        2 => any_service_cidr().prop_map(NftablesStep::Apply),
        1 => (0u8..4).prop_map(|index| NftablesStep::Apply(Change::Service(key(&format!("svc-{index}")), None))),
        4 => Just(NftablesStep::Sync),
        1 => Just(NftablesStep::Refuse),
        2 => (any::<[bool; 2]>(), 0..=4usize).prop_map(|([masquerade_all, service_counters], part)| {
            NftablesStep::Restart(ChangedSettings { masquerade_all, service_counters }, part)
        }),
        1 => any::<bool>().prop_map(NftablesStep::Tamper),
        1 => Just(NftablesStep::FollowUp),
    ]
}

proptest! {
    #[test]
    fn every_history_ends_as_a_clean_start(steps in prop::collection::vec(any_step(), 1..40)) {
        let mut settings = ChangedSettings { service_counters: true, ..ChangedSettings::default() };
        let (mut now, mut applied) = (with_settings(FakeNftTable::new(Family::V4), settings), Vec::new());
        for step in steps {
            match step {
                NftablesStep::Apply(change) => {
                    now.apply([&change]);
                    applied.push(change);
                }
                NftablesStep::Sync => drop(now.sync()),
                NftablesStep::Refuse => now.mode().table().refuses += 1,
                NftablesStep::Restart(changed, part) => {
                    settings = changed;
                    now = with_settings(now.mode().table().clone(), settings);
                    let (first, then) = applied.split_at(applied.len() * part / 4);
                    now.apply(first);
                    drop(now.sync());
                    now.apply(then);
                }
                NftablesStep::Tamper(rules) => {
                    if let Some(content) = &mut now.mode().table().table {
                        if rules {
                            content.chains.values_mut().for_each(|chain| chain.rules.clear());
                        } else {
                            content.elements.clear();
                            content.counters.clear();
                        }
                    }
                    now.require_full_sync();
                }
                NftablesStep::FollowUp => drop(now.follow_up(Instant::now() + Duration::from_secs(60))),
            }
        }
        settle(&mut now);
        let mut clean = with_settings(FakeNftTable::new(Family::V4), settings);
        clean.apply(&applied);
        settle(&mut clean);
        prop_assert_eq!(meaning(&content(&mut now)), meaning(&content(&mut clean)));
        let before = content(&mut now);
        let table = now.mode().table().clone();
        let mut next = with_settings(table, settings);
        next.apply(&applied);
        let report = next.sync().unwrap();
        let own = before.chains.keys().any(|name| name.starts_with("endpoint-"));
        prop_assert!(own || (report.rules == 0 && report.changes == 0), "{report:?}");
    }
}

fn slice(number: u8, hosts: &[u8]) -> Change {
    let name = format!("svc-{number}");
    let endpoints: Vec<Json> =
        hosts.iter().map(|host| json!({ "addresses": [format!("10.244.0.{host}")], "nodeName": "node-b" })).collect();
    testing::slice(&name, json!(endpoints), json!([{ "port": 8080 }]))
}

fn plain(number: u8) -> Change {
    let spec = json!({ "clusterIP": format!("10.96.1.{number}"), "ports": [{ "port": 80 }] });
    testing::service(&format!("svc-{number}"), spec)
}

#[test]
fn a_replaced_endpoint_removes_one_element_and_adds_one() {
    let mut proxy = proxy(FakeNftTable::new(Family::V4));
    for number in 0..200 {
        proxy.apply([&plain(number), &slice(number, &[1, 2, 3])]);
    }
    assert!(proxy.sync().unwrap().full);
    proxy.apply([&slice(7, &[1, 4, 3])]);
    proxy.sync().unwrap();
    let change = proxy.mode().table().changes.last().unwrap().clone();
    assert_eq!((change.delete_elements.len(), change.add_elements.len(), change.rules()), (1, 1, 0));
    // The chain that picks endpoints exists already, because the kernel would walk all endpoints for a new one.
    proxy.apply([&slice(7, &[1, 4, 3, 5])]);
    proxy.sync().unwrap();
    let change = proxy.mode().table().changes.last().unwrap().clone();
    assert_eq!((change.delete_elements.len(), change.add_elements.len()), (1, 2));
    assert_eq!(change.add_chains.keys().map(|name| &**name).collect::<Vec<_>>(), ["cluster-ip-tcp-4"]);
    assert!(!content(&mut proxy).chains.contains_key("tcp-5"), "it is not what the sync waits for");
    settle(&mut proxy);
    assert!(content(&mut proxy).chains.contains_key("tcp-5"));
    proxy.apply([&slice(7, &[1, 3])]);
    proxy.sync().unwrap();
    // Objects without references stay for a second.
    assert!(["cluster-ip-tcp-4", "tcp-5"].iter().all(|name| content(&mut proxy).chains.contains_key(*name)));
    settle(&mut proxy);
    let chains = content(&mut proxy).chains;
    let draws: Vec<_> = chains.keys().filter(|name| name.contains("tcp")).map(|name| &**name).collect();
    assert_eq!(draws, ["cluster-ip-tcp-2", "cluster-ip-tcp-3", "tcp-1", "tcp-2", "tcp-3", "tcp-4"]);
}

#[test]
fn counters_stay_while_endpoints_change_and_leave_with_their_service_port() {
    let settings = ChangedSettings { service_counters: true, ..ChangedSettings::default() };
    let mut proxy = with_settings(FakeNftTable::new(Family::V4), settings);
    proxy.apply([&plain(1), &slice(1, &[1, 2]), &plain(2)]);
    assert!(proxy.sync().unwrap().full);
    let names = |proxy: &mut NftablesProxy| {
        let counters = content(proxy).counters;
        counters.iter().filter_map(|name| name.strip_prefix("reply-")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut proxy), ["default/svc-1/tcp", "default/svc-2/tcp"]);
    assert_eq!(content(&mut proxy).counters.len(), 6, "connections and both directions");
    let counted = |change: &NftChange| {
        let elements = change.add_elements.iter().chain(&change.delete_elements);
        elements.filter(|element| matches!(element.value, ElementValue::Counter(_))).count()
            + change.add_counters.len()
            + change.delete_counters.len()
    };
    for hosts in [&[3, 4, 5][..], &[], &[1]] {
        proxy.apply([&slice(1, hosts)]);
        proxy.sync().unwrap();
        assert_eq!(counted(proxy.mode().table().changes.last().unwrap()), 0, "{hosts:?}");
    }
    proxy.apply([&Change::Service(key("svc-1"), None)]);
    proxy.sync().unwrap();
    assert_eq!(counted(proxy.mode().table().changes.last().unwrap()), 3, "elements");
    // A service port that returns within a second goes on counting.
    proxy.apply([&plain(1)]);
    proxy.sync().unwrap();
    assert_eq!(counted(proxy.mode().table().changes.last().unwrap()), 3, "elements");
    proxy.apply([&Change::Service(key("svc-1"), None)]);
    settle(&mut proxy);
    assert_eq!(names(&mut proxy), ["default/svc-2/tcp"]);
}

#[test]
fn a_service_without_affinity_has_no_chain_of_its_own() {
    let chains = |count: u8| {
        let mut proxy = proxy(FakeNftTable::new(Family::V4));
        for number in 0..count {
            proxy.apply([&plain(number), &slice(number, &[1, 2])]);
        }
        proxy.sync().unwrap();
        content(&mut proxy).chains.len()
    };
    assert_eq!(chains(1), chains(100));
}

/// The kernel allocates the memory of a set's size, and searches all of it every second for expired elements.
#[test]
fn sets_with_elements_from_rules_have_no_size() {
    let mut proxy = proxy(FakeNftTable::new(Family::V4));
    let spec = json!({ "clusterIP": "10.96.1.1", "sessionAffinity": "ClientIP", "ports": [{ "port": 80 }] });
    proxy.apply([&testing::service("svc-1", spec), &slice(1, &[1, 2])]);
    proxy.sync().unwrap();
    let sets = content(&mut proxy).sets;
    let filled: Vec<_> = sets.iter().filter(|(_, set)| set.expires).collect();
    assert!(filled.len() == 2 && filled.iter().all(|(_, set)| set.size.is_none()), "{filled:?}");
}

#[test]
fn another_programs_table_of_this_name_is_replaced_in_one_change() {
    let mut first = proxy(FakeNftTable::new(Family::V4));
    first.apply([&plain(1), &slice(1, &[1])]);
    first.sync().unwrap();
    let mut table = first.mode().table().clone();
    table.is_foreign = true;
    table.changes.clear();
    let mut next = proxy(table);
    next.apply([&plain(1), &slice(1, &[1])]);
    next.sync().unwrap();
    let changes = &next.mode().table().changes;
    assert_eq!(changes.iter().map(|change| change.table).collect::<Vec<_>>(), [TableAction::Replace]);
}

#[test]
fn a_full_set_is_replaced_by_a_larger_one() {
    let mut proxy = proxy(FakeNftTable::new(Family::V4));
    let many = |count: u16| {
        let endpoints: Vec<Json> =
            (0..count).map(|host| json!({ "addresses": [format!("10.244.{}.{}", host / 250, host % 250)] })).collect();
        testing::slice("svc-1", json!(endpoints), json!([{ "port": 8080 }]))
    };
    proxy.apply([&plain(1), &many(10)]);
    proxy.sync().unwrap();
    let room = |proxy: &mut NftablesProxy| content(proxy).sets["service-endpoints"].size.unwrap();
    let before = room(&mut proxy);
    proxy.apply([&many(5000)]);
    settle(&mut proxy);
    assert!(room(&mut proxy) > before);
    let endpoints = content(&mut proxy).elements.keys().filter(|(set, _)| *set == "service-endpoints").count();
    assert_eq!(endpoints, 5000);
}

fn dropped(proxy: &mut NftablesProxy) -> Vec<String> {
    let content = content(proxy);
    let ranges = content.elements.iter().filter(|((set, _), _)| *set == "service-cidrs");
    let address = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map(std::net::Ipv4Addr::from).unwrap();
    let text = |((_, first), last): (&(&str, svcproxy::nftables::ElementKey), &ElementValue)| match last {
        ElementValue::To(last) => format!("{}-{}", address(first.bytes()), address(last.bytes())),
        other => panic!("{other:?}"),
    };
    ranges.map(text).collect()
}

#[test]
fn a_change_of_service_cidrs_sends_only_elements() {
    let mut proxy = proxy(FakeNftTable::new(Family::V4));
    for number in 0..100 {
        proxy.apply([&plain(number), &slice(number, &[1])]);
    }
    proxy.apply([&service_cidr("kubernetes", &["10.96.0.0/16", "fd00:10:96::/112"])]);
    assert!(proxy.sync().unwrap().full);
    assert_eq!(dropped(&mut proxy), ["10.96.0.0-10.96.255.255"]);
    for (change, ranges, counts) in [
        (service_cidr("more", &["10.97.0.0/16"]), &["10.96.0.0-10.97.255.255"][..], (1, 1)),
        (service_cidr("more", &["10.112.0.0/20"]), &["10.96.0.0-10.96.255.255", "10.112.0.0-10.112.15.255"], (1, 2)),
        (service_cidr("within", &["10.96.7.0/24"]), &["10.96.0.0-10.96.255.255", "10.112.0.0-10.112.15.255"], (0, 0)),
        (
            Change::ServiceCidr("kubernetes".to_owned(), None),
            &["10.96.7.0-10.96.7.255", "10.112.0.0-10.112.15.255"],
            (1, 1),
        ),
    ] {
        proxy.apply([&change]);
        assert!(proxy.is_due() && !proxy.needs_full());
        let report = proxy.sync().unwrap();
        assert_eq!((report.full, report.rules, report.changes), (false, 0, counts.0 + counts.1), "{change:?}");
        assert_eq!(dropped(&mut proxy), ranges, "{change:?}");
    }
    proxy.apply([&service_cidr("six", &["fd00:11::/112"]), &service_cidr("more", &["10.112.0.0/20"])]);
    assert!(!proxy.is_due());
    proxy.mode().table().refuses = 1;
    proxy.apply([&service_cidr("last", &["10.200.0.0/24"])]);
    proxy.sync().unwrap_err();
    settle(&mut proxy);
    assert_eq!(dropped(&mut proxy).last().map(String::as_str), Some("10.200.0.0-10.200.0.255"));
    assert_eq!(dropped(&mut proxy).len(), 3);
}

#[test]
fn without_service_cidrs_no_range_is_dropped() {
    let mut proxy = proxy(FakeNftTable::new(Family::V4));
    proxy.apply([&plain(1)]);
    proxy.sync().unwrap();
    assert_eq!(dropped(&mut proxy), Vec::<String>::new());
}

/// The chain's rules follow the settings of the proxy that created it.
#[test]
fn an_inherited_chain_gets_the_rules_of_the_new_settings() {
    let mut first = with_settings(
        FakeNftTable::new(Family::V4),
        ChangedSettings { masquerade_all: true, ..ChangedSettings::default() },
    );
    first.apply([&plain(1), &slice(1, &[1])]);
    first.sync().unwrap();
    let mut next = proxy(first.mode().table().clone());
    next.apply([&plain(2)]);
    next.sync().unwrap();
    next.apply([&plain(1), &slice(1, &[1])]);
    next.sync().unwrap();
    let mut clean = proxy(FakeNftTable::new(Family::V4));
    clean.apply([&plain(1), &plain(2), &slice(1, &[1])]);
    settle(&mut clean);
    assert_eq!(
        meaning(&content(&mut next)).chains["cluster-ip-tcp-1"],
        meaning(&content(&mut clean)).chains["cluster-ip-tcp-1"]
    );
    settle(&mut next);
    assert_eq!(meaning(&content(&mut next)), meaning(&content(&mut clean)));
}

fn fated(name: &str, cluster_ip: &str, fate: Option<&str>) -> Change {
    let annotations = fate.map_or(json!({}), |fate| json!({ "svcproxy/flow-fate": fate }));
    let spec = json!({ "type": "NodePort", "clusterIP": cluster_ip, "ports": [{ "port": 80, "nodePort": 30080 }] });
    let service = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    Change::Service(key(name), Some(testing::object(service)))
}

fn lost_flows(proxy: &mut NftablesProxy) -> Vec<String> {
    let content = content(proxy);
    let lost = content.elements.keys().filter(|(set, _)| *set == "lost-flows");
    let flows = lost.map(|(_, key)| key.as_flow().unwrap());
    flows.map(|(destination, endpoint)| format!("{destination} {endpoint}")).collect()
}

#[test]
fn lost_flows_are_in_the_transaction_that_removes_the_endpoint() {
    let mut proxy = proxy(FakeNftTable::new(Family::V4));
    let hosts = |hosts: &[&str]| testing::slice_of_hosts("web", hosts, "TCP");
    proxy.apply(&[fated("web", "10.96.0.1", None), hosts(&["10.244.1.1", "10.244.1.2"])]);
    proxy.sync().unwrap();
    assert!(!content(&mut proxy).sets.contains_key("lost-flows"), "nothing changes before a Service asks");
    proxy.apply(&[fated("web", "10.96.0.1", Some("reset"))]);
    assert!(proxy.sync().unwrap().full);
    assert!(content(&mut proxy).sets.contains_key("lost-flows"));
    assert!(proxy.mode().table().changes.last().unwrap().table == TableAction::Keep, "the table stays");
    proxy.apply(&[hosts(&["10.244.1.2"])]);
    let before = proxy.mode().table().changes.len();
    assert!(!proxy.sync().unwrap().full);
    assert_eq!(proxy.mode().table().changes.len(), before + 1);
    let first = ["10.96.0.1:80 10.244.1.1:8080", "172.18.0.2:30080 10.244.1.1:8080"];
    assert_eq!(lost_flows(&mut proxy), first);
    proxy.require_full_sync();
    assert_eq!(proxy.sync().unwrap().changes, 0);
    // The next proxy finds both what was reset, and what was lost meanwhile.
    let mut next = self::proxy(proxy.mode().table().clone());
    next.apply(&[fated("web", "10.96.0.1", Some("reset")), hosts(&["10.244.1.3"])]);
    next.sync().unwrap();
    let second = first.map(|flow| flow.replace("1.1:", "1.2:"));
    let all = [first[0], &second[0], first[1], &second[1]];
    assert_eq!(lost_flows(&mut next), all);
    next.apply(&[hosts(&["10.244.1.1"])]);
    next.sync().unwrap();
    let third = first.map(|flow| flow.replace("1.1:", "1.3:"));
    assert_eq!(lost_flows(&mut next), [&second[0], &third[0], &second[1], &third[1]].map(String::as_str));
    next.follow_up(Instant::now() + Duration::from_secs(25 * 3600)).unwrap();
    assert_eq!(lost_flows(&mut next), [""; 0], "conntrack forgets idle connections after 24 hours");
}

#[test]
fn a_drain_ends_between_syncs_and_a_deleted_service_resets_its_connections() {
    let mut proxy = proxy(FakeNftTable::new(Family::V4));
    let hosts = |hosts: &[&str]| testing::slice_of_hosts("web", hosts, "TCP");
    proxy.apply(&[fated("web", "10.96.0.1", Some("drain=30s")), hosts(&["10.244.1.1"])]);
    proxy.sync().unwrap();
    proxy.apply(&[Change::Service(key("web"), None)]);
    proxy.sync().unwrap();
    assert_eq!(lost_flows(&mut proxy), [""; 0]);
    let next = proxy.follow_up(Instant::now()).unwrap();
    assert!(next.is_some_and(|next| next <= Instant::now() + Duration::from_secs(30)));
    proxy.follow_up(Instant::now() + Duration::from_secs(31)).unwrap();
    assert_eq!(lost_flows(&mut proxy).len(), 2);
}
