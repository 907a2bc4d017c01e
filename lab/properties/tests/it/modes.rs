//! Modes treat a flow alike unless the oracle's promises differ.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::check_all;
use proptest::test_runner::TestCaseError;
use svclab_oracle::generate::recipes;
use svclab_oracle::{Backend, Mode, Promise, PromisedVerdict, Scheduler};
use svclab_properties::judge::outcomes;
use svclab_properties::sweep::{cases, in_mode, networks};
use svclab_sim::network::{Outcomes, PacketVerdict as Found};

/// Returns the reachable endpoints, or the kind of refusal.
fn essence(promise: &Promise) -> (u8, BTreeSet<SocketAddr>) {
    let addresses = |backends: &[Backend]| backends.iter().map(|backend| backend.address).collect();
    match &promise.verdict {
        PromisedVerdict::Deliver(delivery) => (0, addresses(&delivery.backends)),
        PromisedVerdict::Drop => (1, BTreeSet::new()),
        PromisedVerdict::Reject => (2, BTreeSet::new()),
        PromisedVerdict::Refuse => (3, BTreeSet::new()),
        PromisedVerdict::Untouched => (4, BTreeSet::new()),
        PromisedVerdict::Undefined => (5, BTreeSet::new()),
    }
}

fn found(outcomes: &Outcomes) -> (BTreeSet<SocketAddr>, bool, bool) {
    let mut sum = (BTreeSet::new(), false, false);
    for one in &outcomes.outcomes {
        match &one.verdict {
            Found::Answered { at, .. } | Found::Unanswered { at, .. } => drop(sum.0.insert(*at)),
            Found::Rejected { .. } | Found::Refused { .. } => sum.1 = true,
            Found::Dropped { .. } => sum.2 = true,
        }
    }
    sum
}

#[test]
fn iptables_and_ipvs_agree() {
    agree(Mode::Ipvs, 200, 2);
}

#[test]
fn iptables_and_userspace_agree() {
    agree(Mode::Userspace, 201, 10);
}

#[test]
fn iptables_and_nftables_agree() {
    // nftables mode closes unused ports and addresses of cluster IPs.
    agree(Mode::Nftables, 202, 1);
}

/// `alike`: the minimum number of equal flows per flow that is not compared.
fn agree(with: Mode, property: u64, alike: u64) {
    let compared = std::cell::Cell::new((0u64, 0u64));
    check_all(property, cases() / 5, &recipes(), |recipe| {
        let mut clusters = [Mode::Iptables, with].map(|mode| in_mode(&recipe, mode));
        clusters[1].world.proxy.scheduler = Scheduler::RoundRobin;
        let networks = clusters.each_ref().map(|cluster| networks(cluster).unwrap());
        let oracles = clusters.each_ref().map(|cluster| cluster.oracle());
        for question in clusters[0].questions().iter().step_by(29) {
            let promises = oracles.each_ref().map(|oracle| oracle.ask(question));
            let (mut same, mut declared) = compared.get();
            let undefined =
                promises[0].verdict == PromisedVerdict::Undefined || promises[0].verdict == PromisedVerdict::Refuse;
            if undefined || essence(&promises[0]) != essence(&promises[1]) {
                declared += 1;
                compared.set((same, declared));
                continue;
            }
            let [one, other] = [0, 1].map(|at| outcomes(&networks[at].machines, &clusters[at].world, question));
            let (Some(one), Some(other)) = (one, other) else { continue };
            if found(&one) != found(&other) {
                let (one, other) = (found(&one), found(&other));
                let words = format!("{question}\niptables: {one:?}\n{}: {other:?}\n{}", with.name(), promises[0]);
                return Err(TestCaseError::fail(words + &clusters[0].scenario_yaml("generated", question)));
            }
            same += 1;
            compared.set((same, declared));
        }
        Ok(())
    });
    let (same, declared) = compared.get();
    println!("{same} flows alike, {declared} with a declared difference or without a promise");
    assert!(same > alike * declared, "{same} of {declared}");
}
