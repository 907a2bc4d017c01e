//! Each case runs in its own process, in the sandbox or a microVM. Where neither works it is skipped, or fails if `CI`
//! is set.

#[allow(dead_code, reason = "the tests of svclab use the rest")]
#[path = "../../../../tests/support/nightly.rs"]
mod nightly;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use svclab_kernel_properties::sweep::cases;
use svclab_netns::sandbox;
use svclab_properties::sweep::seed;
pub use tokio::runtime::Runtime;

/// Deadline of the boot and of each cluster, in seconds, on a busy machine.
const BOOT: u32 = 240;
const CLUSTER: u32 = 60;

pub struct CaseContext<'a> {
    pub name: &'a str,
    pub seed: u64,
    /// Clusters on all testbeds together.
    pub cases: u32,
    pub runtime: &'a Runtime,
}

pub type CaseGroup = (&'static str, Vec<KernelCase>);

#[derive(Clone, Copy)]
pub struct KernelCase {
    name: &'static str,
    run: CaseRun,
    is_nightly: bool,
}

#[derive(Clone, Copy)]
enum CaseRun {
    Inside(fn(&CaseContext<'_>)),
    InMicrovm(u32, fn(&CaseContext<'_>)),
    Outside(fn()),
}

impl KernelCase {
    pub fn inside(name: &'static str, run: fn(&CaseContext<'_>)) -> KernelCase {
        KernelCase { name, run: CaseRun::Inside(run), is_nightly: false }
    }

    /// `cases` is the default number of clusters.
    pub fn in_microvm(name: &'static str, cases: u32, run: fn(&CaseContext<'_>)) -> KernelCase {
        KernelCase { name, run: CaseRun::InMicrovm(cases, run), is_nightly: false }
    }

    pub fn outside(name: &'static str, run: fn()) -> KernelCase {
        KernelCase { name, run: CaseRun::Outside(run), is_nightly: false }
    }

    pub fn nightly(self) -> KernelCase {
        KernelCase { is_nightly: true, ..self }
    }
}

pub fn main(parts: &[CaseGroup]) -> ExitCode {
    let mut args = std::env::args();
    if args.next().is_some_and(|program| program.rsplit('/').next() == Some("svclab")) {
        // The test binary acts as svclab inside and outside the microVM.
        return svclab::cli::main();
    }
    if args.next().as_deref() == Some("--inside") {
        let words: Vec<String> = args.collect();
        let [part, name, seed, cases] = &words[..] else { panic!("--inside PART NAME SEED CASES, not {words:?}") };
        let (_, all) = parts.iter().find(|(other, _)| other == part).expect("a part of that name");
        inside(all, name, seed.parse().unwrap(), cases.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let all = parts.iter().flat_map(|(part, cases)| cases.iter().map(|case| (*part, *case)));
    let trials = all.map(|(part, KernelCase { name, run, is_nightly })| {
        let title = format!("{part}::{name}");
        let trial = match run {
            CaseRun::Inside(_) => Trial::ignorable_test(title, move || run_inside(part, name)),
            CaseRun::InMicrovm(few, _) => Trial::ignorable_test(title, move || run_in_microvm(part, name, few)),
            CaseRun::Outside(run) => Trial::test(title, move || {
                run();
                Ok(())
            }),
        };
        trial.with_ignored_flag(is_nightly)
    });
    let mut trials: Vec<Trial> = trials.collect();
    trials.push(nightly::every_ignored_one_is_listed(&trials));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn inside(all: &[KernelCase], name: &str, seed: u64, cases: u32) {
    if let Err(missing) = sandbox::enter() {
        eprintln!("{missing}");
        std::process::exit(3);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match all.iter().find(|case| case.name == name).map(|case| case.run) {
        Some(CaseRun::Inside(run) | CaseRun::InMicrovm(_, run)) => {
            run(&CaseContext { name, seed, cases, runtime: &runtime })
        }
        _ => panic!("no case inside is called {name}"),
    }
}

fn run_inside(part: &str, name: &str) -> Result<Completion, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--inside", part, name, &seed().to_string(), &cases().to_string()]);
    finish(command)
}

fn run_in_microvm(part: &str, name: &str, few: u32) -> Result<Completion, Failed> {
    let program = std::env::current_exe()?;
    let cases = std::env::var_os("KERNEL_CASES").map_or(few, |_| cases());
    let deadline = BOOT + CLUSTER * cases;
    let mut command = Command::new(&program);
    command.arg0("svclab").args(["guest-run", "--deadline", &deadline.to_string(), "--"]).arg(&program);
    command.args(["--inside", part, name, &seed().to_string(), &cases.to_string()]);
    finish(command)
}

fn finish(mut command: Command) -> Result<Completion, Failed> {
    let output = command.stdin(Stdio::null()).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {
            print!("{stdout}");
            eprint!("{said}");
            Ok(Completion::Completed)
        }
        Some(3) if std::env::var_os("CI").is_none() => {
            Ok(Completion::ignored_with(format!("THIS MACHINE CANNOT RUN IT: {}", said.trim())))
        }
        Some(3) => Err(format!("THIS MACHINE CANNOT RUN IT: {}", said.trim()).into()),
        _ => Err(format!("{}\n{stdout}{said}", output.status).into()),
    }
}
