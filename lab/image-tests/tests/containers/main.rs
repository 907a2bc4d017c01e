//! Tests the image in real containers: in a node's network namespace, with the lab's API and traffic. `./just
//! image-test` builds the needed files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says so"
)]

mod cases;
mod keeper;
mod stand;
mod versions;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if std::env::var_os(keeper::PROC).is_none() && !arguments.list {
        return keeper::run().unwrap_or_else(|error| {
            eprintln!("image-test: {error:#}");
            ExitCode::FAILURE
        });
    }
    // Two at once: each case has half a dozen containers.
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(2));
    let trials = cases::all().chain([Trial::test("versions_are_translated", versions::check)]);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
