use std::collections::BTreeMap;

use svclab_oracle::{Mode, PromisedVerdict, generate};
use svclab_properties::judge::{Networks, judge};
use svclab_properties::machines::SimulatedMachines;
use svclab_properties::sweep::{self, sweep_in_parts};

fn promises_are_kept(mode: Mode) {
    let counts = sweep_in_parts(mode, 2).unwrap_or_else(|words| panic!("{words}"));
    println!("{}: {counts:?}", mode.name());
    // Conflicting claims are judged, about 100 in 40,000 questions.
    assert!(counts.disputed * 500 > counts.questions, "{counts:?}");
    let share = |verdict: usize| counts.verdicts[verdict] * 1000 / counts.questions;
    let [deliver, drop, reject, either, untouched, undefined] = [0, 1, 2, 3, 4, 5].map(share);
    // Thousandths of all questions.
    assert!(deliver >= 250 && drop >= 15 && reject >= 80 && either >= 1 && untouched >= 150, "{counts:?}");
    assert!(undefined <= 20, "too much is judged by nothing: {counts:?}");
}

#[test]
fn iptables_rules_keep_the_promises() {
    promises_are_kept(Mode::Iptables);
}

#[test]
fn ipvs_keeps_the_promises() {
    promises_are_kept(Mode::Ipvs);
}

#[test]
fn nftables_rules_keep_the_promises() {
    promises_are_kept(Mode::Nftables);
}

#[test]
fn userspace_mode_keeps_the_promises() {
    promises_are_kept(Mode::Userspace);
}

#[test]
fn a_seed_is_a_sweep() {
    for mode in Mode::ALL {
        let sweep = |seed| sweep::sweep(mode, seed, 9, 20).unwrap_or_else(|words| panic!("{words}"));
        assert_eq!(sweep(3), sweep(3));
        assert_ne!(sweep(3), sweep(4));
    }
}

/// Ignores promised rejects at a node's address: without a listening socket the node rejects such packets anyway.
#[test]
fn without_rules_every_service_fails() {
    let mut tried = 0;
    for seed in 0..60 {
        let cluster = generate::cluster(seed);
        let bare = SimulatedMachines::build(&cluster, &BTreeMap::new()).unwrap();
        let networks = Networks { machines: bare.clone(), bare };
        let oracle = cluster.oracle();
        for question in cluster.questions().iter().skip(seed as usize % 7).step_by(7) {
            let promise = oracle.ask(question);
            let delivers = match &promise.verdict {
                // A call to an endpoint's own address needs no rules.
                PromisedVerdict::Deliver(delivery) => {
                    delivery.backends.iter().all(|backend| backend.address != question.to)
                }
                _ => false,
            };
            let to_a_node =
                question.to.ip().is_loopback() || cluster.world.nodes.iter().any(|node| node.has(question.to.ip()));
            let refuses = matches!(promise.verdict, PromisedVerdict::Drop | PromisedVerdict::Reject) && !to_a_node;
            if !delivers && !refuses {
                continue;
            }
            tried += 1;
            let judgement = judge(&networks, (&cluster, &oracle), question, promise);
            assert!(!judgement.faults.is_empty(), "seed {seed}: {question}: {}", judgement.promise);
        }
    }
    assert!(tried > 1000, "{tried}");
}
