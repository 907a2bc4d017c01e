//! Runs test cases that need the sandbox: each in a process of its own, which enters it before any thread exists.
//!
//! A machine that cannot do it skips the case loudly, or fails it where `CI` is set.
#![allow(
    dead_code,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test runner prints, and no test file uses all of this"
)]

pub mod clusters;

use std::future::Future;
use std::pin::Pin;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use svclab::netns::sandbox;

/// How long one case may take.
const LIMIT: Duration = Duration::from_secs(120);

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// A test case.
pub enum Case {
    /// Runs in the sandbox, on a multi-threaded runtime.
    Inside(&'static str, fn() -> Boxed),
    /// Runs outside; the argument starts helpers. Panics when it fails.
    Outside(&'static str, fn()),
    /// No test: what [`start_helper`] runs in the sandbox.
    Helper(&'static str, fn() -> Boxed),
}

/// Makes a [`Case`] out of functions, named after them.
#[macro_export]
macro_rules! case {
    (Outside $function:ident) => {
        $crate::support::Case::Outside(stringify!($function), $function)
    };
    ($kind:ident $function:ident) => {
        $crate::support::Case::$kind(stringify!($function), || Box::pin($function()))
    };
}

/// A command that runs helper or case `name` of this test binary in the sandbox.
pub fn inside_command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--inside", name]).stdin(Stdio::null());
    command
}

/// The test binary's `main`.
pub fn main(cases: &[Case]) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--inside") => inside(cases, &args[1]),
        // nextest asks twice: for all tests, and for those that are `#[ignore]`d. There are none of these.
        Some("--list") if args.iter().any(|arg| arg == "--ignored") => {}
        Some("--list") => cases.iter().filter_map(test_name).for_each(|n| println!("{n}: test")),
        _ => run_all(cases, &args),
    }
}

fn test_name(case: &Case) -> Option<&'static str> {
    match case {
        Case::Inside(name, _) | Case::Outside(name, _) => Some(name),
        Case::Helper(..) => None,
    }
}

fn inside(cases: &[Case], wanted: &str) {
    if let Err(missing) = sandbox::enter() {
        eprintln!("{missing}");
        std::process::exit(3);
    }
    let found = cases.iter().find_map(|case| match case {
        Case::Inside(name, run) | Case::Helper(name, run) if *name == wanted => Some(run),
        _ => None,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(found.expect("a case of that name")());
}

enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

fn run_all(cases: &[Case], args: &[String]) {
    let exact = args.iter().any(|arg| arg == "--exact");
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let chosen = |name: &str| {
        let matches = |f: &&String| if exact { name == f.as_str() } else { name.contains(f.as_str()) };
        filters.is_empty() || filters.iter().any(matches)
    };
    let chosen: Vec<(&Case, &str)> =
        cases.iter().filter_map(|case| Some((case, test_name(case)?))).filter(|(_, name)| chosen(name)).collect();
    println!("\nrunning {} tests", chosen.len());
    let begin = Instant::now();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (case, name) in chosen {
        match run_one(case, name) {
            Verdict::Passed => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Verdict::Skipped(why) => {
                skipped += 1;
                println!("test {name} ... ignored, THIS MACHINE CANNOT RUN IT: {why}");
            }
            Verdict::Failed(why) => {
                failed += 1;
                println!("test {name} ... FAILED\n{why}");
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let time = begin.elapsed().as_secs_f32();
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out; finished in {time:.2}s\n"
    );
    std::process::exit(i32::from(failed > 0) * 101);
}

fn run_one(case: &Case, name: &str) -> Verdict {
    if let Case::Outside(_, run) = case {
        // The message went to standard error.
        return match std::panic::catch_unwind(run) {
            Ok(()) => Verdict::Passed,
            Err(_) => Verdict::Failed(String::new()),
        };
    }
    let output = finish(inside_command(name), LIMIT);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            Verdict::Passed
        }
        Some(3) if std::env::var_os("CI").is_none() => Verdict::Skipped(text.trim().to_owned()),
        _ => Verdict::Failed(format!("{}\n{text}", output.status)),
    }
}

/// Runs a command to its end; kills it at the limit.
pub fn finish(mut command: Command, limit: Duration) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let (done, waiter) = std::sync::mpsc::channel::<()>();
    let killer = std::thread::spawn(move || {
        if waiter.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    killer.join().unwrap();
    output
}

/// Waits until `condition` holds; panics with `what` when it does not within ten seconds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    let mut pause = Duration::from_millis(1);
    while !condition() {
        assert!(Instant::now() < end, "not within ten seconds: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
