//! Whoever breaks the rules is noticed.

use svclab_oracle::Mode;
use svclab_properties::mutants::{Worth, benches, catalogue, score};

#[test]
fn every_mutant_of_iptables_mode_that_is_not_equivalent_is_noticed() {
    all_noticed(Mode::Iptables);
}

#[test]
fn every_mutant_of_ipvs_mode_that_is_not_equivalent_is_noticed() {
    all_noticed(Mode::Ipvs);
}

#[test]
fn every_mutant_of_userspace_mode_that_is_not_equivalent_is_noticed() {
    all_noticed(Mode::Userspace);
}

fn all_noticed(mode: Mode) {
    let benches = benches(mode, 24, 300).unwrap_or_else(|words| panic!("{words}"));
    let scores: Vec<_> = catalogue(mode).into_iter().map(|mutant| score(mutant, &benches)).collect();
    let broken = scores.iter().filter(|score| score.mutant.worth == Worth::Broken).count();
    assert!(broken >= if mode == Mode::Userspace { 30 } else { 40 }, "{broken}");
    let wrong: Vec<String> = scores.iter().filter(|score| !score.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
