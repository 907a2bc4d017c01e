//! Runs each case that needs the sandbox in a process of its own, which enters it before any thread exists.
//!
//! A machine that cannot do it skips the case loudly, or fails it where `CI` is set.

use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use svclab::netns::sandbox;
pub use tokio::runtime::Runtime;

/// A test case.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    Inside(fn(&str, &Runtime)),
    Outside(fn()),
}

impl Case {
    /// Runs in the sandbox; it is told its name.
    pub fn inside(name: &'static str, run: fn(&str, &Runtime)) -> Case {
        Case { name, run: Run::Inside(run) }
    }

    /// Runs outside.
    pub fn outside(name: &'static str, run: fn()) -> Case {
        Case { name, run: Run::Outside(run) }
    }
}

/// The test binary's `main`.
pub fn main(cases: &[Case]) {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--inside") {
        let wanted = args.next().unwrap();
        return inside(cases.iter().find(|case| case.name == wanted).unwrap());
    }
    let trials = cases.iter().map(|case| {
        let Case { name, run } = *case;
        match run {
            Run::Inside(_) => Trial::ignorable_test(name, move || run_inside(name)),
            Run::Outside(run) => Trial::test(name, move || {
                run();
                Ok(())
            }),
        }
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn inside(case: &Case) {
    if let Err(missing) = sandbox::enter() {
        eprintln!("{missing}");
        std::process::exit(3);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Run::Inside(run) = case.run {
        run(case.name, &runtime);
    }
}

fn run_inside(name: &str) -> Result<Completion, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(["--inside", name]).stdin(Stdio::null()).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {
            print!("{told}");
            eprint!("{said}");
            Ok(Completion::Completed)
        }
        Some(3) if std::env::var_os("CI").is_none() => {
            Ok(Completion::ignored_with(format!("THIS MACHINE CANNOT RUN IT: {}", said.trim())))
        }
        Some(3) => Err(format!("THIS MACHINE CANNOT RUN IT: {}", said.trim()).into()),
        _ => Err(format!("{}\n{told}{said}", output.status).into()),
    }
}
