//! Whoever breaks the rules is noticed.

use svclab_properties::mutants::{Worth, benches, catalogue, score};

#[test]
fn every_mutant_that_is_not_equivalent_is_noticed() {
    let benches = benches(24, 300).unwrap_or_else(|words| panic!("{words}"));
    let scores: Vec<_> = catalogue().into_iter().map(|mutant| score(mutant, &benches)).collect();
    let broken = scores.iter().filter(|score| score.mutant.worth == Worth::Broken).count();
    assert!(broken >= 40, "{broken}");
    let wrong: Vec<String> = scores.iter().filter(|score| !score.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
