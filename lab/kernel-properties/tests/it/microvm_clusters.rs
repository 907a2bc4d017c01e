//! Generated clusters in IPVS mode, on the real kernel of a microVM.
//!
//! `KERNEL_CASES=40 cargo nextest run -p svclab-kernel-properties microvm_clusters` does so many on each frame.

use crate::support::{Case, Inside};
use svclab_cluster::Cluster as Lab;
use svclab_kernel_properties::frame::{self, Frame};
use svclab_kernel_properties::sweep::sweep;
use svclab_oracle::Mode;

/// Clusters on each frame where nobody says how many: emulation is slow.
const FEW: u32 = 3;
/// The frame that every run has; the others are for the night.
const EACH_TIME: &str = "bridge_dual_stack";

/// Every case of this part.
pub fn cases() -> Vec<Case> {
    let case = |frame: Frame| {
        let case = Case::in_microvm(frame.name, FEW, whole_frame);
        if frame.name == EACH_TIME { case } else { case.nightly() }
    };
    frame::ALL.map(case).to_vec()
}

/// The clusters of a frame: what the kernel does is what the simulator says and the oracle promises.
fn whole_frame(inside: &Inside<'_>) {
    let frame = Frame::named(inside.name).unwrap();
    let lab = inside.runtime.block_on(Lab::build(&frame.spec())).unwrap();
    let tally = sweep(frame, Mode::Ipvs, &lab, inside.runtime.handle(), inside.seed, inside.cases);
    let tally = tally.unwrap_or_else(|words| panic!("{words}"));
    println!("{}: {tally}", inside.name);
    assert_eq!(tally.clusters, u64::from(inside.cases));
    assert_eq!(tally.shortfalls(), [""; 0]);
}
