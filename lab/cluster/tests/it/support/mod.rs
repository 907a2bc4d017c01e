//! Runs each case in its own process and sandbox, which must be entered before any thread exists.
//!
//! On a machine without sandbox a case is skipped, or fails in CI.

pub mod clusters;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../tests/support/process.rs"]
mod process;

use std::future::Future;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
pub use process::{eventually, finish, unable};
use svclab_netns::sandbox;

const LIMIT: Duration = Duration::from_secs(120);

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

pub enum SandboxCase {
    /// A case that runs in the sandbox on a multi-threaded runtime.
    Inside(&'static str, fn() -> Boxed),
    /// Runs outside and may start helpers.
    Outside(&'static str, fn()),
    /// No test, but a program that `inside_command` runs in the sandbox.
    Helper(&'static str, fn() -> Boxed),
}

macro_rules! case {
    (Outside $function:ident) => {
        $crate::support::SandboxCase::Outside(concat!(module_path!(), "::", stringify!($function)), $function)
    };
    (Inside $function:ident) => {
        $crate::support::SandboxCase::Inside(concat!(module_path!(), "::", stringify!($function)), || {
            Box::pin($function())
        })
    };
    (Helper $function:ident) => {
        $crate::support::SandboxCase::Helper(stringify!($function), || Box::pin($function()))
    };
}
pub(crate) use case;

/// Runs a helper or case of this test binary in the sandbox.
pub fn inside_command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--inside", name]).stdin(Stdio::null());
    command
}

pub fn main(cases: &[&'static SandboxCase]) {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--inside") {
        return inside(cases, &args.next().unwrap());
    }
    let trials = cases.iter().filter_map(|case| match case {
        SandboxCase::Inside(name, _) => {
            Some(Trial::ignorable_test(name.trim_start_matches("it::"), || run_inside(name)))
        }
        SandboxCase::Outside(name, run) => Some(Trial::test(name.trim_start_matches("it::"), || {
            run();
            Ok(())
        })),
        SandboxCase::Helper(..) => None,
    });
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn inside(cases: &[&'static SandboxCase], wanted: &str) {
    if let Err(missing) = sandbox::enter() {
        eprintln!("{missing}");
        std::process::exit(3);
    }
    let found = cases.iter().find_map(|case| match case {
        SandboxCase::Inside(name, run) | SandboxCase::Helper(name, run) if *name == wanted => Some(run),
        _ => None,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(found.expect("a case of that name")());
}

fn run_inside(name: &str) -> Result<Completion, Failed> {
    let output = finish(inside_command(name), LIMIT);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            Ok(Completion::Completed)
        }
        Some(3) => unable(text.trim()),
        _ => Err(format!("{}\n{text}", output.status).into()),
    }
}
