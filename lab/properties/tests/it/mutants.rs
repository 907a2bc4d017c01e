use svclab_oracle::Mode;
use svclab_properties::mutants::{Expectation, Mutant, Mutation, catalogue, fixtures, score};
use svclab_sim::rules::RuleTarget;

#[test]
fn every_mutant_of_iptables_mode_that_is_not_equivalent_is_noticed() {
    all_noticed(Mode::Iptables);
}

#[test]
fn every_mutant_of_ipvs_mode_that_is_not_equivalent_is_noticed() {
    all_noticed(Mode::Ipvs);
}

#[test]
fn every_mutant_of_nftables_mode_that_is_not_equivalent_is_noticed() {
    all_noticed(Mode::Nftables);
}

#[test]
fn every_mutant_of_userspace_mode_that_is_not_equivalent_is_noticed() {
    all_noticed(Mode::Userspace);
}

fn all_noticed(mode: Mode) {
    let fixtures = fixtures(mode, 32, 300).unwrap_or_else(|words| panic!("{words}"));
    let scores: Vec<_> = catalogue(mode).into_iter().map(|mutant| score(mutant, &fixtures)).collect();
    let broken = scores.iter().filter(|score| score.mutant.expectation == Expectation::Broken).count();
    assert!(broken >= if mode == Mode::Userspace { 30 } else { 40 }, "{broken}");
    let wrong: Vec<String> = scores.iter().filter(|score| !score.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rules_that_cannot_be_loaded_are_not_equivalent() {
    let fixtures = fixtures(Mode::Iptables, 1, 10).unwrap_or_else(|words| panic!("{words}"));
    let apply = |rules: &mut svclab_sim::rules::Rules| {
        let mut chains = rules.tables.iter_mut().flat_map(|table| &mut table.chains);
        let first = chains.find_map(|chain| chain.rules.first_mut());
        first.map(|rule| rule.target = RuleTarget::Jump("NO-SUCH-CHAIN".into())).is_some()
    };
    let expectation = Expectation::Equivalent("rules that are not loaded change no packet");
    let score = score(Mutant { name: "a jump to nowhere", change: Mutation::Rules(apply), expectation }, &fixtures);
    assert_eq!((score.clusters, score.unloadable), (1, 1));
    assert!(!score.is_right() && score.to_string().contains("1 clusters cannot load it"), "{score}");
}
