//! Generated clusters on the real kernel.

use std::time::Instant;

use crate::damage;
use crate::support::{Case, Inside};
use svclab_cluster::Cluster as Lab;
use svclab_kernel_properties::choice::choose;
use svclab_kernel_properties::frame::{self, Frame};
use svclab_kernel_properties::sweep::sweep;
use svclab_oracle::Mode;
use svclab_oracle::generate::recipes_on;
use svclab_properties::sweep::runner;

/// The frames in nftables mode.
const BY_TABLES: [&str; 5] = [
    "nftables_bridge_ipv4",
    "nftables_point_to_point_ipv6",
    "nftables_bridge_dual_stack",
    "nftables_point_to_point_dual_stack_legacy",
    "nftables_ptp_dual_stack",
];

/// The frames in userspace mode.
const RELAYED: [&str; 5] = [
    "userspace_bridge_ipv4",
    "userspace_point_to_point_ipv6",
    "userspace_bridge_dual_stack",
    "userspace_point_to_point_dual_stack_legacy",
    "userspace_ptp_dual_stack",
];

/// Every case of this part.
pub fn cases() -> Vec<Case> {
    let frames = frame::ALL.map(|frame| Case::inside(frame.name, by_rules));
    let tables = BY_TABLES.map(|name| Case::inside(name, by_tables));
    let relayed = RELAYED.map(|name| Case::inside(name, by_relays));
    let others = [
        Case::inside("the_same_seed_is_the_same_report", the_same_seed_is_the_same_report),
        Case::inside("broken_rules_of_one_node_are_noticed", damage::of_one_node_is_noticed),
        Case::inside("wrong_shares_are_noticed", damage::of_shares_is_noticed),
        Case::inside("relays_that_lead_elsewhere_or_nowhere_are_noticed", damage::of_relays_is_noticed),
        Case::outside("a_seed_is_what_is_asked", a_seed_is_what_is_asked),
    ];
    [&frames[..], &tables, &relayed, &others].concat()
}

fn by_rules(inside: &Inside<'_>) {
    whole_frame(inside.name, Mode::Iptables, inside.cases, inside);
}

fn by_tables(inside: &Inside<'_>) {
    whole_frame(inside.name.trim_start_matches("nftables_"), Mode::Nftables, inside.cases, inside);
}

/// Connections of their own and time for relays: half as many clusters.
fn by_relays(inside: &Inside<'_>) {
    whole_frame(inside.name.trim_start_matches("userspace_"), Mode::Userspace, inside.cases.div_ceil(2), inside);
}

/// The clusters of a frame: what the kernel does is what the simulator says and the oracle promises.
fn whole_frame(name: &str, mode: Mode, cases: u32, inside: &Inside<'_>) {
    let frame = Frame::named(name).unwrap();
    let frames = u32::try_from(frame::ALL.len()).unwrap();
    let lab = inside.runtime.block_on(Lab::build(&frame.spec())).unwrap();
    let begin = Instant::now();
    let tally = sweep(frame, mode, &lab, inside.runtime.handle(), inside.seed, cases.div_ceil(frames));
    let tally = tally.unwrap_or_else(|words| panic!("{words}"));
    println!("{name}: {tally}");
    eprintln!("{name}: {:?}", begin.elapsed());
    assert_eq!(tally.shortfalls(), [""; 0]);
}

fn the_same_seed_is_the_same_report(inside: &Inside<'_>) {
    let frame = frame::ALL[2];
    let lab = inside.runtime.block_on(Lab::build(&frame.spec())).unwrap();
    let sweep = |seed| {
        sweep(frame, Mode::Iptables, &lab, inside.runtime.handle(), seed, 3).unwrap_or_else(|words| panic!("{words}"))
    };
    let first = sweep(3);
    assert_eq!(first.to_string(), sweep(3).to_string());
    assert_ne!(first.to_string(), sweep(4).to_string());
}

/// Clusters and questions are the same ones again, without a kernel.
fn a_seed_is_what_is_asked() {
    let asked = |seed: u64| -> Vec<String> {
        let all = std::cell::RefCell::new(Vec::new());
        for frame in frame::ALL {
            let outcome = runner(seed, 1, 4).run(&recipes_on(frame.recipe()), |recipe| {
                let cluster = recipe.build();
                let chosen = choose(&cluster, seed, 18);
                assert!(chosen.len() > 10, "{}", chosen.len());
                all.borrow_mut().extend(chosen.iter().map(|one| format!("{} {}", one.question, one.often)));
                all.borrow_mut().push(cluster.scenario_yaml("generated", &chosen[0].question));
                Ok(())
            });
            outcome.unwrap();
        }
        all.into_inner()
    };
    assert_eq!(asked(1), asked(1));
    assert_ne!(asked(1), asked(2));
}
