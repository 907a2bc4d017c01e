//! Audits of each kind of node have no findings, and find a fault of the proxy there.

use svclab_oracle::Mode;
use svclab_properties::node_kinds::ALL;

/// Kinds on which audits still have false findings.
const OPEN: [&str; 5] = ["Antrea", "OpenShift SDN", "EKS", "NodeLocal DNSCache", "probabilities of five digits"];

fn are_quiet_and_their_twins_found(mode: Mode) {
    let kinds = ALL.iter().filter(|kind| kind.modes.contains(&mode) && !OPEN.contains(&kind.name));
    let wrong: Vec<String> = kinds.flat_map(|kind| kind.problems(mode)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nodes_in_iptables_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Iptables);
}

#[test]
fn nodes_in_ipvs_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Ipvs);
}

#[test]
fn nodes_in_nftables_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Nftables);
}

#[test]
fn nodes_in_userspace_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Userspace);
}
