//! `svclab run` in a microVM: the same command inside, with the same files, flags and proxy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::run::{RunArgs, check_breaks, write};
use super::{BROKEN, Exit, UNABLE, find};
use crate::microvm::VmError;
use crate::microvm::cache::Cache;
use crate::microvm::console::Ended;
use crate::microvm::image::Image;
use crate::microvm::job::Job;
use crate::microvm::kernels::Kernel;
use crate::microvm::launch;
use crate::microvm::qemu::{Clock, Program};
use crate::report::Machine;
use crate::scenario::run::Proxy;

/// Where scenarios are run.
#[derive(Args)]
pub(super) struct VmArgs {
    /// The kernel: `host`, `debian-6.1`, `debian-6.12`, the path of a kernel image with its modules, or `auto`: the host's,
    /// and debian-6.1 where that cannot do what is asked.
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    kernel: KernelArg,
    /// Run in a microVM that counts instructions: the same image, scenario and seed give the same report, byte for byte.
    #[arg(long)]
    deterministic: bool,
    /// Where fetched packages and built images are kept [default: $SVCLAB_CACHE, or svclab in the user's cache directory].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// How long a microVM may take for one seed, in seconds of this machine's time.
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// The microVM that this is the inside of.
    #[arg(long, hide = true, value_name = "JSON", value_parser = parse_machine)]
    pub(super) machine: Option<Machine>,
}

/// What `--kernel` takes.
#[derive(Clone)]
enum KernelArg {
    Auto,
    Host,
    Inside(Kernel),
}

impl std::str::FromStr for KernelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(KernelArg::Auto),
            "host" => Ok(KernelArg::Host),
            other => other.parse().map(KernelArg::Inside),
        }
    }
}

fn parse_machine(text: &str) -> Result<Machine, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The choice.
pub(super) enum Where {
    Host,
    Inside(Kernel),
}

impl VmArgs {
    pub(super) fn choose(&self) -> Result<Where, Exit> {
        match &self.kernel {
            KernelArg::Host if self.deterministic => {
                Err(Exit::usage("--deterministic needs a microVM: the host's kernel draws as it likes; leave --kernel host out"))
            }
            KernelArg::Auto if self.deterministic => Ok(Where::Inside(Kernel::default())),
            KernelArg::Auto | KernelArg::Host => Ok(Where::Host),
            KernelArg::Inside(kernel) => Ok(Where::Inside(kernel.clone())),
        }
    }
}

/// Time for the boot, and for each scenario in each mode: ten times what they take on an idle machine.
const BOOT: Duration = Duration::from_secs(120);
const SCENARIO: Duration = Duration::from_secs(300);
/// The reports' names among the results.
const JSON: &str = "json";
const JUNIT: &str = "junit";

pub(super) fn run(args: &RunArgs, kernel: &Kernel) -> Result<u8, Exit> {
    let first = args.lab.seed.each().start;
    let scenarios = find::load_all(&args.files, first)?;
    check_breaks(args, &scenarios)?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    let inside = Inside::prepare(args, kernel, &proxy)?;
    let most = BOOT + SCENARIO * u32::try_from(scenarios.len()).unwrap_or(u32::MAX);
    let deadline = args.vm.deadline.map_or(most, Duration::from_secs);
    eprintln!("kernel: {kernel} in a microVM, image {}", &inside.image.hash()[..12]);
    if args.lab.seed.are_several() {
        return several(args, &inside, deadline);
    }
    let ended = inside.run(args, first, deadline, &mut |line| eprintln!("{line}"))?;
    for (name, path) in [(JSON, &args.json), (JUNIT, &args.junit)] {
        if let Some(report) = ended.results.get(name) {
            write(path.as_deref(), &String::from_utf8_lossy(report))?;
        }
    }
    Ok(ended.status)
}

/// Everything that does not depend on the seed.
struct Inside {
    program: Program,
    image: Image,
    machine: Machine,
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
    names: Vec<String>,
    proxy: Option<String>,
}

impl Inside {
    fn prepare(args: &RunArgs, kernel: &Kernel, proxy: &Proxy) -> Result<Inside, Exit> {
        let unable = |error: VmError| Exit::unable(error.to_string());
        let cache = Cache::open(args.vm.cache_dir.as_deref()).map_err(unable)?;
        let (mut files, mut names) = (BTreeMap::new(), Vec::new());
        for file in &args.files {
            let path = find::scenario(file)?;
            let name = shown(&path);
            files.insert(name.clone(), read(&path)?);
            names.push(name);
        }
        let own = std::env::current_exe().map_err(|error| Exit::unable(format!("cannot find svclab itself: {error}")))?;
        let mut programs = BTreeMap::from([("svclab".to_owned(), own)]);
        let mut links = BTreeMap::new();
        let mut described = None;
        match proxy {
            Proxy::Own(path) => drop(programs.insert("svcproxy".to_owned(), path.clone())),
            Proxy::Foreign(foreign) => {
                let told = args.lab.proxy.as_deref().unwrap_or(Path::new(""));
                let name = shown(told);
                files.insert(name.clone(), read(told)?);
                described = Some(name);
                for program in foreign.command.first().into_iter().chain(foreign.cleanup.iter().flatten().take(1)) {
                    let path = PathBuf::from(program);
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    // Found by its name, and by the path that the description may give.
                    if path.parent() != Some(Path::new("/usr/bin")) {
                        links.insert(program.clone(), format!("/usr/bin/{name}"));
                    }
                    programs.insert(name, path);
                }
            }
        }
        let image = Image::get(&cache, kernel, &programs).map_err(unable)?;
        let program = Program::find(&cache).map_err(unable)?;
        let machine = Machine {
            kernel: kernel.to_string(),
            deterministic: args.vm.deterministic,
            image: image.hash().to_owned(),
        };
        Ok(Inside { program, image, machine, files, links, names, proxy: described })
    }

    fn run(&self, args: &RunArgs, seed: u64, deadline: Duration, progress: &mut dyn FnMut(&str)) -> Result<Ended, Exit> {
        let clock = if self.machine.deterministic { Clock::Counted { seed } } else { Clock::Host };
        let results = [JSON, JUNIT].map(|name| (name.to_owned(), out(name)));
        let job = Job {
            args: self.arguments(args, seed),
            results: results.into(),
            links: self.links.clone(),
            files: self.files.clone(),
        };
        launch::run(&self.program, &self.image, &job, clock, deadline, progress)
            .map_err(|error| Exit::unable(error.to_string()))
    }

    fn arguments(&self, args: &RunArgs, seed: u64) -> Vec<String> {
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(self.names.iter().cloned());
        let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        flag("kernel", "host".to_owned());
        flag("machine", serde_json::to_string(&self.machine).unwrap_or_default());
        flag("seed", seed.to_string());
        flag("patience", args.patience.to_string());
        flag("iptables-variant", word(args.lab.iptables_variant));
        flag("source", word(args.lab.source));
        flag("json", out(JSON));
        flag("junit", out(JUNIT));
        for mode in &args.mode {
            flag("mode", word(*mode));
        }
        for damage in &args.breaks {
            flag("break", damage.written.clone());
        }
        if let Some(proxy) = &self.proxy {
            flag("proxy", proxy.clone());
        }
        if args.keep_going {
            arguments.push("--keep-going".to_owned());
        }
        arguments
    }
}

/// A flag's value as it is written.
fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn out(name: &str) -> String {
    format!("/out/{name}")
}

fn read(path: &Path) -> Result<Vec<u8>, Exit> {
    std::fs::read(path).map_err(|error| Exit::usage(format!("cannot read {}: {error}", path.display())))
}

/// A file's path in the guest, and in its report: as it is written, so that the line that repeats a run works outside; only
/// a path that leads upwards becomes absolute.
fn shown(path: &Path) -> String {
    let plain = path.strip_prefix(".").unwrap_or(path);
    let upwards = plain.components().any(|part| part == std::path::Component::ParentDir);
    let path = if upwards { std::fs::canonicalize(plain).unwrap_or_else(|_| plain.to_owned()) } else { plain.to_owned() };
    path.display().to_string()
}

/// One run per seed, as many at once as there are processors.
fn several(args: &RunArgs, inside: &Inside, deadline: Duration) -> Result<u8, Exit> {
    let seeds: Vec<u64> = args.lab.seed.each().collect();
    let outcomes: Mutex<BTreeMap<u64, Result<Ended, Exit>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(seeds.len());
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = inside.run(args, *seed, deadline, &mut |_| {});
                    eprintln!("seed {seed}: {}", outcome_words(&outcome));
                    outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(*seed, outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum_up(args, &outcomes)
}

fn outcome_words(outcome: &Result<Ended, Exit>) -> String {
    match outcome {
        Ok(Ended { status: 0, .. }) => "all kept".to_owned(),
        Ok(Ended { status: BROKEN, .. }) => "broken".to_owned(),
        Ok(Ended { status, .. }) => format!("status {status}"),
        Err(exit) => exit.message.clone(),
    }
}

/// One report of all seeds, and for every broken one the line that repeats it.
fn sum_up(args: &RunArgs, outcomes: &BTreeMap<u64, Result<Ended, Exit>>) -> Result<u8, Exit> {
    let (mut scenarios, mut kept, mut worst) = (Vec::new(), 0, 0);
    for outcome in outcomes.values() {
        let Ok(ended) = outcome else {
            worst = UNABLE;
            continue;
        };
        kept += usize::from(ended.status == 0);
        worst = worst.max(ended.status);
        let report: Value = ended.results.get(JSON).and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
        for scenario in report["scenarios"].as_array().into_iter().flatten() {
            if scenario["passed"] != true {
                eprintln!("repeat with: {}", scenario["repeat"].as_str().unwrap_or_default());
            }
            scenarios.push(scenario.clone());
        }
    }
    eprintln!("{} seeds: {kept} all kept, {} not", outcomes.len(), outcomes.len() - kept);
    let report = serde_json::json!({ "passed": kept == outcomes.len(), "scenarios": scenarios });
    write(args.json.as_deref(), &format!("{report:#}\n"))?;
    Ok(worst)
}
