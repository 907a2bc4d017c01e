//! After any history rules equal a clean start's, keep the promises, and spare foreign rules.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use svclab_oracle::generate::{ApiWrite, ObjectName, histories, writes};
use svclab_oracle::{ClusterModel, Mode};
use svclab_properties::disagreement;
use svclab_properties::judge::{Networks, judge};
use svclab_properties::machines::SimulatedMachines;
use svclab_properties::nft_compare::normalised;
use svclab_properties::node::families;
use svclab_properties::node_states::{name_listening_ports, of_fresh_proxies, read};
use svclab_properties::proxies::{Dump, Kernel, Proxies, changes, dump};
use svclab_properties::sweep::cases;
use svclab_sim::protocol::Family;
use svcproxy::kernel::iptables::Table;
use svcproxy::model::{Change, ObjectKey};
use svcproxy::source;

use crate::check_all;

const FOREIGN: [(Table, &str, &str); 3] = [
    (Table::Nat, "PREROUTING", "DOCKER"),
    (Table::Filter, "INPUT", "ufw-user"),
    (Table::Nat, "POSTROUTING", "KUBE-HOSTPORTS"),
];

fn inhabited(cluster: &ClusterModel) -> Vec<Kernel> {
    let kernels = families(&cluster.world).into_iter().map(|family| {
        let mut kernel = Kernel::new(cluster.world.proxy.mode, family);
        let Some(rules) = kernel.rules() else { return kernel };
        for (table, built_in, chain) in FOREIGN {
            let chains = rules.tables.get_mut(&table).unwrap();
            chains.insert(chain.into(), vec!["-p tcp -m comment --comment \"not mine\" -j RETURN".into()]);
            chains.get_mut(built_in).unwrap().push(format!("-j {chain}"));
        }
        kernel
    });
    kernels.collect()
}

pub(crate) fn change(write: ApiWrite) -> Option<Change> {
    let key = |of: ObjectName| ObjectKey::new(&of.namespace, &of.name);
    match write {
        ApiWrite::Service(service) => Some(source::admit_service(service).unwrap()),
        ApiWrite::Slice(slice) => source::admit_endpoint_slice(slice).unwrap(),
        ApiWrite::DeleteService(name) => Some(Change::Service(key(name), None)),
        ApiWrite::DeleteSlice(name) => Some(Change::EndpointSlice(key(name), None)),
    }
}

/// Removes draining destinations (weight 0) and numbers of listening ports and endpoints.
fn settled(dump: &Dump) -> Dump {
    let serving = dump.servers.lines().filter(|line| !line.ends_with("-w 0"));
    let named = |text, family| name_listening_ports(text, family, &dump.relays);
    let (v4, v6) = (named(&dump.v4, Family::V4), named(&dump.v6, Family::V6));
    let servers = serving.map(|line| format!("{line}\n")).collect();
    let nft = without_unused_ranges(&normalised(&dump.nft).unwrap());
    Dump { servers, v4, v6, nft, relays: Default::default(), ..dump.clone() }
}

/// Removes the sets of node ports' source ranges and their rule where they are empty: they stay until a restart once a
/// Service has asked for them, and match nothing.
fn without_unused_ranges(nft: &str) -> String {
    let table = |text: &str| {
        let is_unused = |block: &&str| {
            let is_set = |name: &str| block.contains(&format!("set firewall-{name}-nodeports {{"));
            (is_set("allowed") || is_set("restricted")) && !block.contains("elements")
        };
        let blocks: Vec<&str> = text.split("\n\n").collect();
        let left: Vec<&str> = blocks.iter().copied().filter(|block| !is_unused(block)).collect();
        let is_used = left.len() == blocks.len();
        let lines = left.join("\n\n");
        let lines =
            lines.split_inclusive('\n').filter(|line| is_used || !line.contains("@firewall-restricted-nodeports"));
        lines.collect::<String>()
    };
    nft.split_inclusive("\n}\n").map(table).collect()
}

fn without_guard(mut dump: Dump) -> Dump {
    let kept = dump.v4.lines().filter(|line| !line.contains("KUBE-FIREWALL"));
    dump.v4 = kept.map(|line| format!("{line}\n")).collect();
    dump
}

fn of_others(dump: &Dump) -> Vec<String> {
    let lines = dump.v4.lines().chain(dump.v6.lines());
    let foreign = lines.filter(|line| FOREIGN.iter().any(|(_, _, chain)| line.contains(chain)));
    foreign.map(str::to_owned).collect()
}

/// Syncs once per state, and restarts the proxy before state `crash + 1`.
fn stepwise(states: &[ClusterModel], node: &str, crash: usize) -> Proxies {
    let world = &states[0].world;
    let mut proxies = Proxies::start(world, node, inhabited(&states[0]));
    proxies.apply(&changes(&states[0].objects).0);
    proxies.sync().unwrap();
    for (at, pair) in states.windows(2).enumerate() {
        if at == crash {
            proxies = Proxies::start(world, node, proxies.kernels());
            proxies.apply(&changes(&pair[1].objects).0);
        } else {
            let changes: Vec<Change> =
                writes(&pair[0].objects, &pair[1].objects).into_iter().filter_map(change).collect();
            proxies.apply(&changes);
        }
        proxies.sync().unwrap();
    }
    proxies.finish().unwrap();
    proxies
}

fn at_once(states: &[ClusterModel], node: &str) -> Proxies {
    let mut proxies = Proxies::start(&states[0].world, node, inhabited(&states[0]));
    proxies.apply(&changes(&states[0].objects).0);
    proxies.sync().unwrap();
    for pair in states.windows(2) {
        let changes: Vec<Change> = writes(&pair[0].objects, &pair[1].objects).into_iter().filter_map(change).collect();
        proxies.apply(&changes);
    }
    proxies.sync().unwrap();
    proxies.finish().unwrap();
    proxies
}

fn check(states: &[ClusterModel], crash: usize) -> Result<(), TestCaseError> {
    let last = states.last().unwrap();
    let node = last.world.nodes[0].name.clone();
    let untouched = dump(&families(&last.world), &inhabited(last));
    let mut clean = Proxies::start(&last.world, &node, inhabited(last));
    clean.apply(&changes(&last.objects).0);
    clean.sync().unwrap();
    let clean = clean.dump();
    for (way, mut proxies) in [("step by step", stepwise(states, &node, crash)), ("at once", at_once(states, &node))] {
        let found = proxies.dump();
        prop_assert_eq!(&settled(&found), &settled(&clean), "{}", way);
        prop_assert_eq!(of_others(&found), of_others(&untouched), "{}", way);
        prop_assert!(!proxies.sync().unwrap(), "{}: a second sync sends something", way);
        proxies.require_full_sync();
        // In IPVS mode a full sync may also change draining destinations.
        prop_assert!(
            !proxies.sync().unwrap() || last.world.proxy.mode == Mode::Ipvs,
            "{}: a full sync sends something",
            way
        );
        verdicts(last, &node, &found)?;
        if last.world.proxy.mode != Mode::Ipvs {
            let mut kernels = proxies.kernels();
            for kernel in &mut kernels {
                kernel.clean_up().unwrap();
            }
            // kubelet also uses the loopback guard, so it stays.
            let left = Dump { relays: Default::default(), ..dump(&families(&last.world), &kernels) };
            prop_assert_eq!(&without_guard(left), &untouched, "after the clean-up");
        }
    }
    Ok(())
}

fn verdicts(cluster: &ClusterModel, node: &str, found: &Dump) -> Result<(), TestCaseError> {
    let mut all = of_fresh_proxies(cluster).unwrap();
    all.insert(node.to_owned(), read(found).map_err(|error| TestCaseError::fail(error.to_string()))?);
    let machines = SimulatedMachines::build(cluster, &all).unwrap();
    let networks = Networks { machines, bare: SimulatedMachines::build(cluster, &BTreeMap::new()).unwrap() };
    let oracle = cluster.oracle();
    for question in cluster.questions().iter().step_by(37) {
        let judgement = judge(&networks, (cluster, &oracle), question, oracle.ask(question));
        if !judgement.faults.is_empty() {
            return Err(TestCaseError::fail(disagreement::text(&networks, cluster, question, &judgement)));
        }
    }
    Ok(())
}

fn histories_end_as_a_clean_start(mode: Mode, part: u64) {
    check_all(part, cases() / 10, &(histories(8), 0..8usize), |(history, crash)| {
        let mut states = history.states();
        states.iter_mut().for_each(|state| state.world.proxy.mode = mode);
        check(&states, crash)
    });
}

#[test]
fn iptables_histories_end_as_a_clean_start() {
    histories_end_as_a_clean_start(Mode::Iptables, 100);
}

#[test]
fn ipvs_histories_end_as_a_clean_start() {
    histories_end_as_a_clean_start(Mode::Ipvs, 101);
}

#[test]
fn nftables_histories_end_as_a_clean_start() {
    histories_end_as_a_clean_start(Mode::Nftables, 103);
}

#[test]
fn userspace_histories_end_as_a_clean_start() {
    histories_end_as_a_clean_start(Mode::Userspace, 102);
}
