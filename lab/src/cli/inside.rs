//! `svclab run` in a microVM: the same command inside, with the same files, flags and proxy.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::run::{RunArgs, write};
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
use crate::scenario::file::Need;
use crate::scenario::run::{ForeignProxy, Proxy};
use crate::scenario::{Action, Scenario, Step};

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
    Inside(Guest),
}

/// A microVM to run in.
pub(super) struct Guest {
    kernel: Kernel,
    deterministic: bool,
    /// Why not the host's kernel, unless that was told.
    because: String,
}

impl VmArgs {
    /// Where `scenarios` are run.
    pub(super) fn choose(&self, scenarios: &[Scenario]) -> Result<Where, Exit> {
        let needing = |need| scenarios.iter().find(|scenario| scenario.needs.contains(&need));
        let timeless = needing(Need::VirtualTime).filter(|_| !self.deterministic);
        let guest = |kernel: &Kernel, deterministic, because: String| {
            Ok(Where::Inside(Guest { kernel: kernel.clone(), deterministic, because }))
        };
        match (&self.kernel, timeless) {
            // The inside of a microVM.
            (KernelArg::Host, _) if self.machine.is_some() => Ok(Where::Host),
            (KernelArg::Host, _) if self.deterministic => Err(Exit::usage(
                "--deterministic needs a microVM: the host's kernel draws as it likes; leave --kernel host out",
            )),
            (KernelArg::Host | KernelArg::Inside(_), Some(scenario)) => Err(Exit::usage(format!(
                "{} needs virtual time, which only a deterministic microVM has: add --deterministic, without --kernel host",
                scenario.name
            ))),
            (KernelArg::Host, None) => match lacking(scenarios)? {
                None => Ok(Where::Host),
                Some(because) => {
                    Err(Exit::unable(format!("not on the host{because}; without --kernel host a microVM is taken")))
                }
            },
            (KernelArg::Inside(kernel), None) => guest(kernel, self.deterministic, String::new()),
            (KernelArg::Auto, Some(scenario)) => {
                guest(&Kernel::default(), true, format!(", for {} needs virtual time", scenario.name))
            }
            (KernelArg::Auto, None) if self.deterministic => guest(&Kernel::default(), true, String::new()),
            (KernelArg::Auto, None) => match lacking(scenarios)? {
                None => Ok(Where::Host),
                Some(because) => guest(&Kernel::default(), false, because),
            },
        }
    }
}

/// Time for the boot, and for each scenario in each mode: ten times what they take on an idle machine.
const BOOT: Duration = Duration::from_secs(120);
const SCENARIO: Duration = Duration::from_secs(300);
/// Virtual time that passes, at least, in the same time of the host: 58 were seen on two shared processors.
const SKIPPED: u32 = 20;
/// The reports' names among the results.
const JSON: &str = "json";
const JUNIT: &str = "junit";

/// How long a microVM may take for `scenarios`, where nobody says.
fn most(scenarios: &[Scenario]) -> Duration {
    let skipped = |step: &Step| match step.action {
        Action::Advance(time) => time,
        _ => step.eventually.unwrap_or_default(),
    };
    let one = |scenario: &Scenario| SCENARIO + scenario.steps.iter().map(skipped).sum::<Duration>() / SKIPPED;
    BOOT + scenarios.iter().map(one).sum::<Duration>()
}

/// What the host's kernel lacks for `scenarios`, as the end of a sentence. It is asked only if one of them needs something.
fn lacking(scenarios: &[Scenario]) -> Result<Option<String>, Exit> {
    if scenarios.iter().all(|scenario| scenario.needs.is_empty()) {
        return Ok(None);
    }
    let host = super::kernels::on_host()?;
    Ok(scenarios.iter().find_map(|scenario| {
        let need = scenario.needs.iter().find(|need| !host.has(**need))?;
        Some(format!(", for {} needs {}, which this machine's kernel lacks", scenario.name, need.name()))
    }))
}

/// Runs `scenarios`, which are those that `args` names, in a microVM.
pub(super) fn run(args: &RunArgs, guest: &Guest, scenarios: &[Scenario]) -> Result<u8, Exit> {
    let first = args.lab.seed.each().start;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    let inside = Inside::prepare(args, guest, scenarios, &proxy)?;
    let most = most(scenarios);
    let deadline = args.vm.deadline.map_or(most, Duration::from_secs);
    let how = if guest.deterministic { "deterministic" } else { "fast" };
    let image = &inside.image.hash()[..12];
    eprintln!("kernel: {} in a microVM ({how}, image {image}){}", guest.kernel, guest.because);
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
    ipvs: bool,
    proxy: Option<String>,
}

impl Inside {
    fn prepare(args: &RunArgs, guest: &Guest, scenarios: &[Scenario], proxy: &Proxy) -> Result<Inside, Exit> {
        let unable = |error: VmError| Exit::unable(error.to_string());
        let cache = Cache::open(args.vm.cache_dir.as_deref()).map_err(unable)?;
        let mut files = BTreeMap::new();
        for path in scenarios.iter().flat_map(read_by) {
            files.insert(shown(path), read(path)?);
        }
        let names = scenarios.iter().map(|scenario| shown(&scenario.path)).collect();
        let own =
            std::env::current_exe().map_err(|error| Exit::unable(format!("cannot find svclab itself: {error}")))?;
        let mut programs = BTreeMap::from([("svclab".to_owned(), own)]);
        let mut links = BTreeMap::new();
        let mut described = None;
        match proxy {
            Proxy::Own(path) => drop(programs.insert("svcproxy".to_owned(), path.clone())),
            Proxy::Foreign(foreign) => {
                let told = args.lab.proxy.as_deref().unwrap_or(Path::new(""));
                described = Some(match told.to_str().filter(|text| ForeignProxy::is_command(text)) {
                    Some(command) => command.to_owned(),
                    None => {
                        files.insert(shown(told), read(told)?);
                        shown(told)
                    }
                });
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
        let image = Image::get(&cache, &guest.kernel, &programs).map_err(unable)?;
        let program = Program::find(&cache).map_err(unable)?;
        let machine = Machine {
            kernel: guest.kernel.to_string(),
            deterministic: guest.deterministic,
            image: image.hash().to_owned(),
        };
        let ipvs = scenarios.iter().any(|scenario| scenario.needs.contains(&Need::Ipvs));
        Ok(Inside { ipvs, program, image, machine, files, links, names, proxy: described })
    }

    fn run(
        &self,
        args: &RunArgs,
        seed: u64,
        deadline: Duration,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Ended, Exit> {
        let clock = if self.machine.deterministic { Clock::Counted { seed } } else { Clock::Host };
        let results = [JSON, JUNIT].map(|name| (name.to_owned(), out(name)));
        let job = Job {
            args: self.arguments(args, seed),
            results: results.into(),
            ipvs: self.ipvs,
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
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            Component::ParentDir => {
                return std::path::absolute(path)
                    .and_then(std::fs::canonicalize)
                    .unwrap_or(plain)
                    .display()
                    .to_string();
            }
            part => plain.push(part),
        }
    }
    plain.display().to_string()
}

/// Every file that a scenario is read from.
fn read_by(scenario: &Scenario) -> Vec<&Path> {
    let applied = scenario.steps.iter().filter_map(|step| match &step.action {
        Action::Apply(placed) => Some(placed),
        _ => None,
    });
    let placed = std::iter::once(&scenario.manifests).chain(applied).flatten();
    std::iter::once(scenario.path.as_path()).chain(placed.map(|placed| Path::new(&placed.file))).collect()
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
        let report: Value =
            ended.results.get(JSON).and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_of_virtual_time_are_given_their_time() {
        let load = |name: &str| crate::scenario::load(&Path::new("../scenarios").join(name), 0).unwrap();
        assert_eq!(most(&[load("hairpin.yaml")]), BOOT + SCENARIO);
        let hours = Duration::from_secs(5 * 3600 + 600);
        assert_eq!(most(&[load("microvm/api-outage-hours.yaml")]), BOOT + SCENARIO + hours / SKIPPED);
    }

    #[test]
    fn a_path_in_the_guest_is_the_one_that_was_written() {
        assert_eq!(shown(Path::new("./scenarios/a.yaml")), "scenarios/a.yaml");
        assert_eq!(shown(Path::new("scenarios/seeds/../a.yaml")), "scenarios/a.yaml");
        assert_eq!(shown(Path::new("/x/./y/../a.yaml")), "/x/a.yaml");
        assert_eq!(
            shown(Path::new("../src")),
            std::fs::canonicalize("../src").unwrap_or_default().display().to_string()
        );
    }
}
