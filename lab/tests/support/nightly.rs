//! Tests that only `./just test --full` and the workflow `nightly` run; also in docs/properties.md.

use libtest_mimic::{Failed, Trial};

/// Parts of test names, with reasons.
pub const NIGHTLY: [(&str, &str); 9] = [
    ("::legacy", "the tests of svcproxy compare rules that commands write with those written by netlink"),
    ("::nft-commands", "the tests of svcproxy compare rules that commands write with those written by netlink"),
    ("kept::microvm::all_in_", "one to five minutes each in an emulated processor"),
    ("::further_", "a scenario's first damage shows that the scenario can fail"),
    ("mutants::nightly_", "one wrong proxy of five shows that scenarios still notice them"),
    ("broken::microvm::", "one to four minutes each in an emulated processor"),
    ("history::microvm::", "the tests of svcproxy run the same histories against IPVS in memory"),
    ("microvm_clusters::", "one machine of five compares the judges in IPVS mode each time"),
    ("microvm::every_kernel", "boots four guests"),
];

pub fn is_listed(test: &str) -> bool {
    NIGHTLY.iter().any(|(part, _)| test.contains(part))
}

pub fn every_ignored_one_is_listed(trials: &[Trial]) -> Trial {
    let unlisted = trials.iter().find(|trial| trial.has_ignored_flag() && !is_listed(trial.name()));
    let unlisted = unlisted.map(|trial| trial.name().to_owned());
    Trial::test("nightly::every_ignored_test_is_listed", move || match unlisted {
        None => Ok(()),
        Some(test) => Err(Failed::from(format!("{test} is ignored, and the table in nightly.rs does not list it"))),
    })
}
