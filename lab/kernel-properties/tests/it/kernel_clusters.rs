use std::time::Instant;

use crate::damage;
use crate::support::{CaseContext, KernelCase};
use svclab_cluster::Cluster as Lab;
use svclab_kernel_properties::question_sample::choose;
use svclab_kernel_properties::sweep::sweep;
use svclab_kernel_properties::testbed::{self, Testbed};
use svclab_oracle::Mode;
use svclab_oracle::generate::recipes_on;
use svclab_properties::sweep::runner;

const BY_TABLES: [&str; 5] = [
    "nftables_bridge_ipv4",
    "nftables_point_to_point_ipv6",
    "nftables_bridge_dual_stack",
    "nftables_point_to_point_dual_stack_legacy",
    "nftables_ptp_dual_stack",
];

const RELAYED: [&str; 5] = [
    "userspace_bridge_ipv4",
    "userspace_point_to_point_ipv6",
    "userspace_bridge_dual_stack",
    "userspace_point_to_point_dual_stack_legacy",
    "userspace_ptp_dual_stack",
];

pub fn cases() -> Vec<KernelCase> {
    let testbeds = testbed::ALL.map(|testbed| KernelCase::inside(testbed.name, by_rules));
    let tables = BY_TABLES.map(|name| KernelCase::inside(name, by_tables));
    let relayed = RELAYED.map(|name| KernelCase::inside(name, by_relays));
    let others = [
        KernelCase::inside("the_same_seed_is_the_same_report", the_same_seed_is_the_same_report),
        KernelCase::inside("broken_rules_of_one_node_are_noticed", damage::of_one_node_is_noticed),
        KernelCase::inside("wrong_shares_are_noticed", damage::of_shares_is_noticed),
        KernelCase::inside("relays_that_lead_elsewhere_or_nowhere_are_noticed", damage::of_relays_is_noticed),
        KernelCase::outside("a_seed_is_what_is_asked", a_seed_is_what_is_asked),
    ];
    [&testbeds[..], &tables, &relayed, &others].concat()
}

fn by_rules(inside: &CaseContext<'_>) {
    whole_frame(inside.name, Mode::Iptables, inside.cases, inside);
}

fn by_tables(inside: &CaseContext<'_>) {
    whole_frame(inside.name.trim_start_matches("nftables_"), Mode::Nftables, inside.cases, inside);
}

/// Tries fewer clusters, because relays are slow.
fn by_relays(inside: &CaseContext<'_>) {
    whole_frame(inside.name.trim_start_matches("userspace_"), Mode::Userspace, inside.cases.div_ceil(2), inside);
}

fn whole_frame(name: &str, mode: Mode, cases: u32, inside: &CaseContext<'_>) {
    let testbed = Testbed::named(name).unwrap();
    let testbeds = u32::try_from(testbed::ALL.len()).unwrap();
    let lab = inside.runtime.block_on(Lab::build(&testbed.spec())).unwrap();
    let begin = Instant::now();
    let counts = sweep(testbed, mode, &lab, inside.runtime.handle(), inside.seed, cases.div_ceil(testbeds));
    let counts = counts.unwrap_or_else(|words| panic!("{words}"));
    println!("{name}: {counts}");
    eprintln!("{name}: {:?}", begin.elapsed());
    assert_eq!(counts.shortfalls(), [""; 0]);
}

fn the_same_seed_is_the_same_report(inside: &CaseContext<'_>) {
    let testbed = testbed::ALL[2];
    let lab = inside.runtime.block_on(Lab::build(&testbed.spec())).unwrap();
    let sweep = |seed| {
        sweep(testbed, Mode::Iptables, &lab, inside.runtime.handle(), seed, 3).unwrap_or_else(|words| panic!("{words}"))
    };
    let first = sweep(3);
    assert_eq!(first.to_string(), sweep(3).to_string());
    assert_ne!(first.to_string(), sweep(4).to_string());
}

fn a_seed_is_what_is_asked() {
    let asked = |seed: u64| -> Vec<String> {
        let all = std::cell::RefCell::new(Vec::new());
        for testbed in testbed::ALL {
            let outcome = runner(seed, 1, 4).run(&recipes_on(testbed.recipe()), |recipe| {
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
