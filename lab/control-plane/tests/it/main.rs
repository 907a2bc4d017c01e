//! Compares the responses of the lab's API and of a real kube-apiserver.
//!
//! Requires `$KUBEBUILDER_ASSETS`, a directory with etcd, kube-apiserver and optionally kube-controller-manager. The
//! test fails if responses differ in any other way than `known.yaml` lists.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking and tells what it compared"
)]

mod both;
mod encodings;
mod exchange;
mod known;
mod normal;

#[path = "../../../tests/support/process.rs"]
#[allow(dead_code, reason = "no test file uses all of it")]
mod process;

use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use svclab_control_plane::Programs;
use svclab_netns::sandbox;

const INSIDE: &str = "--inside";
const LIMIT: Duration = Duration::from_secs(300);

fn main() {
    if std::env::args().nth(1).as_deref() == Some(INSIDE) {
        if let Err(missing) = sandbox::enter() {
            eprintln!("{missing}");
            std::process::exit(3);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let differences = runtime.block_on(both::compare(&programs().unwrap()));
        println!("{differences}");
        std::process::exit(i32::from(!differences.is_empty()));
    }
    let trial = Trial::ignorable_test("the_labs_api_answers_as_a_real_one", run_inside);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn programs() -> Option<Programs> {
    Programs::find(&PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS")?)).ok()
}

fn run_inside() -> Result<Completion, Failed> {
    if programs().is_none() {
        return Ok(Completion::ignored_with("$KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"));
    }
    process::run_again(INSIDE, LIMIT)
}
