//! One test per scenario, mode and damage. In a microVM this program runs histories of changes ([`history`]).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and prints how far it is"
)]

mod broken;
#[allow(dead_code, reason = "histories need only a part")]
#[path = "../../../proxy/tests/it/support/changes.rs"]
mod changes;
mod control_plane;
mod history;
mod kept;
mod mutants;
#[path = "../support/mod.rs"]
mod support;

use libtest_mimic::{Arguments, Trial};

/// The program's argument in a microVM, followed by the number of histories.
const HISTORIES: &str = "--histories";

/// The only selected test: cargo-nextest starts this program per test, and reading every scenario takes two seconds.
struct Only(Option<String>);

impl Only {
    fn may_start_with(&self, prefix: &str) -> bool {
        self.0.as_ref().is_none_or(|test| test.starts_with(prefix))
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(HISTORIES) {
        return history::all(args.next().and_then(|count| count.parse().ok()).expect("the number of histories"));
    }
    let arguments = Arguments::from_args();
    let only = Only(arguments.filter.clone().filter(|_| arguments.exact));
    let trials =
        [kept::trials(&only), broken::trials(&only), mutants::trials(), control_plane::trials(), history::trials()];
    let mut trials: Vec<Trial> = trials.into_iter().flatten().collect();
    trials.push(support::nightly::every_ignored_one_is_listed(&trials));
    libtest_mimic::run(&arguments, trials).exit();
}
