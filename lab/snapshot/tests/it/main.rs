#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking")]

mod api;
mod kernel;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../tests/support/process.rs"]
mod process;
mod programs;

use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use svclab_netns::sandbox;
use tokio::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(60);
const INSIDE: &str = "--inside";

macro_rules! api_trial {
    ($function:ident) => {
        Trial::test(concat!("api::", stringify!($function)), || {
            Runtime::new()?.block_on(api::$function());
            Ok(())
        })
    };
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some(INSIDE) {
        if let Err(missing) = sandbox::enter() {
            eprintln!("{missing}");
            std::process::exit(3);
        }
        return kernel::in_a_namespace();
    }
    let trials = vec![
        Trial::ignorable_test("kernel::what_is_made_is_found", || process::run_again(INSIDE, LIMIT)),
        api_trial!(every_page_of_every_kind_is_kept_without_what_is_private),
        api_trial!(a_watch_has_what_a_list_has_and_receives_changes),
        api_trial!(a_watch_reports_why_it_has_no_objects),
        api_trial!(a_list_that_expires_is_begun_again),
        api_trial!(an_api_that_refuses_costs_the_objects_alone),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
