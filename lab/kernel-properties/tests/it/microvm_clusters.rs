//! Generated clusters in IPVS mode in a microVM. `KERNEL_CASES=40 cargo nextest run -p svclab-kernel-properties
//! microvm_clusters` tries 40.

use crate::support::{CaseContext, KernelCase};
use svclab_cluster::Cluster as Lab;
use svclab_kernel_properties::sweep::sweep;
use svclab_kernel_properties::testbed::{self, Testbed};
use svclab_oracle::Mode;

/// Clusters per testbed by default: emulation is slow.
const FEW: u32 = 3;
/// The testbed that every run uses; the others are for nightly runs.
const EACH_TIME: &str = "bridge_dual_stack";

pub fn cases() -> Vec<KernelCase> {
    let case = |testbed: Testbed| {
        let case = KernelCase::in_microvm(testbed.name, FEW, whole_frame);
        if testbed.name == EACH_TIME { case } else { case.nightly() }
    };
    testbed::ALL.map(case).to_vec()
}

fn whole_frame(inside: &CaseContext<'_>) {
    let testbed = Testbed::named(inside.name).unwrap();
    let lab = inside.runtime.block_on(Lab::build(&testbed.spec())).unwrap();
    let counts = sweep(testbed, Mode::Ipvs, &lab, inside.runtime.handle(), inside.seed, inside.cases);
    let counts = counts.unwrap_or_else(|words| panic!("{words}"));
    println!("{}: {counts}", inside.name);
    assert_eq!(counts.clusters, u64::from(inside.cases));
    assert_eq!(counts.shortfalls(), [""; 0]);
}
