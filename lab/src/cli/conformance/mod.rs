pub(super) mod card;
mod generated;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::conformance::{self, Gatherer};
use crate::console::Stream;
use crate::exit::{Exit, FAILED, UNABLE};
use crate::find;
use crate::mode::{Mode, Need};
use crate::report::terminal::counted;
use crate::report::{RunRecord, ScenarioRecord};
use crate::scenario::run::{ObjectSource, ProxyUnderTest};
use crate::scenario::{IptablesVariant, Scenario};
use crate::schedule::child::{self, ChildOutput};
use crate::schedule::output;
use crate::schedule::share::{ShardArgs, SharedWork};
use crate::schedule::{Job, LabArgs, RunArgs, check_modes, excuse, signals, value_name};
use crate::shard::{ANY_PLACE, ItemTime, ShardRecord, WorkItem};
use crate::shipped;
use card::{CardFiles, differences, read, write_card};

/// Scenarios for measuring costs. Measuring adds a Service, which other scenarios may notice, so these run apart.
const MEASURED: [&str; 6] = ["clusterip", "dual-stack", "endpoint-slices", "local-policy", "rolling-update", "scaling"];

#[derive(Args)]
pub(super) struct ConformanceArgs {
    /// Scenario files, or names under scenarios/ [default: all that the program carries].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The service proxy: a program that is started as svcproxy is; or how another proxy is started, as a YAML file or a command
    /// with {config}, {node}, {kubeconfig} or {mode} in it; without it $SVCPROXY, or the svcproxy beside this program.
    #[arg(long, value_name = "PROXY")]
    proxy: Option<PathBuf>,
    /// Only these modes [default: all modes of the proxy].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    mode: Vec<Mode>,
    /// Which iptables the proxies use.
    #[arg(long, value_enum, default_value = "auto", value_name = "VARIANT")]
    iptables_variant: IptablesVariant,
    /// Generated clusters in each mode.
    #[arg(long, value_name = "N", default_value_t = 20)]
    clusters: u64,
    /// Decides cluster IPs and node ports that scenarios leave open, and is the number of the first generated cluster.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The most runs, for each promise that only generated clusters break, to find a smaller cluster that breaks it.
    #[arg(long, value_name = "N", default_value_t = 30)]
    shrink_runs: u32,
    /// Write the generated clusters to this folder, as scenarios.
    #[arg(long, value_name = "DIR")]
    keep_clusters: Option<PathBuf>,
    /// Measure nothing; for debug builds, whose figures mean nothing.
    #[arg(long)]
    no_figures: bool,
    /// Where fetched packages and built images of microVMs are kept [default: $SVCLAB_CACHE, or svclab in the user's cache
    /// directory].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Write the card as JSON (`-`: to standard output, in place of the text).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the card as Markdown (likewise).
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the card as a page of one file for a browser (likewise).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the differences from this card, a file of --json, and fail if a promise is broken that is not broken on it.
    #[arg(long, value_name = "CARD", conflicts_with = "shard")]
    against: Option<PathBuf>,
    #[command(flatten)]
    sharding: ShardArgs,
    /// Print all promises with their numbers, and run nothing.
    #[arg(long, exclusive = true)]
    promises: bool,
}

pub(super) fn conformance(args: &ConformanceArgs) -> Result<u8, Exit> {
    if args.promises {
        print!("{}", conformance::promises());
        return Ok(0);
    }
    let before = args.against.as_deref().map(read).transpose()?;
    let proxy = find::proxy(args.proxy.as_deref(), ObjectSource::Api)?;
    let modes = modes(args, &proxy)?;
    output::open([&args.json, &args.markdown, &args.html].map(Option::as_deref))?;
    let gatherer = Gatherer::new(title(&proxy), args.seed, modes.iter().map(Mode::to_string));
    let folder = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
    let scenarios = scenarios(args)?;
    let (share, times) = (None, Vec::new());
    let mut examination = Examination { args, proxy, modes, scenarios, gatherer, folder, share, times };
    examination.judge()?;
    if !args.no_figures {
        examination.measure()?;
    }
    examination.shrink()?;
    let mut card = examination.gatherer.card().with_judges();
    (card.times, card.shard) = (examination.times, examination.share);
    let (json, markdown) = (args.json.as_deref(), args.markdown.as_deref());
    write_card(&card, &CardFiles { json, markdown, html: args.html.as_deref() })?;
    let worse = before.is_some_and(|before| differences(&card, &before));
    if let Some(stop) = signals::stop() {
        return Err(stop.exit());
    }
    Ok(match args.against {
        _ if !card.judged() && card.shard.is_none() => UNABLE,
        Some(_) => u8::from(worse) * FAILED,
        None => u8::from(!card.is_clean()) * FAILED,
    })
}

/// The scenario of the item that measures a mode.
const FIGURES: &str = "figures";

type FilesByRun = BTreeMap<(Mode, BTreeSet<Need>), Vec<PathBuf>>;

struct Examination<'a> {
    args: &'a ConformanceArgs,
    proxy: ProxyUnderTest,
    modes: Vec<Mode>,
    scenarios: Vec<Scenario>,
    gatherer: Gatherer,
    folder: tempfile::TempDir,
    share: Option<ShardRecord>,
    times: Vec<ItemTime>,
}

impl Examination<'_> {
    fn judge(&mut self) -> Result<(), Exit> {
        let runs = self.runs()?;
        signals::watch()?;
        for ((mode, _), files) in runs {
            if signals::stop().is_some() {
                break;
            }
            eprintln!("{mode} mode: {}", counted(files.len(), "scenario"));
            let order = RunArgs { audit: true, ..self.order(mode, files.clone()) };
            let run = self.run(order, ChildOutput::To(Stream::Err))?;
            self.take(mode, &run);
            self.missing(mode, &files, &run);
        }
        Ok(())
    }

    /// Returns the files of this shard by mode and needs: a job that needs a microVM would move the others into it.
    fn runs(&mut self) -> Result<FilesByRun, Exit> {
        let mut runs = Vec::new();
        let foreign = self.proxy.is_foreign();
        let mut add = |scenario: &Scenario, mode, path| {
            let needs = Job { scenario, mode, foreign }.needs();
            runs.push((item(self.args, &scenario.name, mode), (mode, needs), path));
        };
        for scenario in &self.scenarios {
            for mode in self.modes.iter().copied().filter(|mode| scenario.is_for(*mode)) {
                match excuse(&self.proxy, scenario, mode) {
                    Some(why) => {
                        self.gatherer.excused(&scenario.name, scenario.promise, &mode.to_string(), &why);
                    }
                    None => add(scenario, mode, scenario.path.clone()),
                }
            }
        }
        let folder = self.args.keep_clusters.as_deref().unwrap_or(self.folder.path());
        for mode in &self.modes {
            for (path, scenario) in generated::clusters(self.args.seed, self.args.clusters, *mode, folder)? {
                add(&scenario, *mode, path);
                self.gatherer.generated(scenario.name, scenario.text);
            }
        }
        self.divide(runs.iter().map(|(item, ..)| item.clone()).collect())?;
        let mut files = FilesByRun::new();
        for (_, run, path) in runs.into_iter().filter(|(item, ..)| self.has(item)) {
            files.entry(run).or_default().push(path);
        }
        Ok(files)
    }

    fn divide(&mut self, mut items: Vec<WorkItem>) -> Result<(), Exit> {
        let measured = self.modes.iter().filter(|_| !self.args.no_figures);
        items.extend(measured.map(|mode| item(self.args, FIGURES, *mode)));
        let flags = format!("--iptables-variant {}", value_name(self.args.iptables_variant));
        let work = SharedWork { proxy: title(&self.proxy), flags, by_seed: false };
        self.share = self.args.sharding.share(&items, work)?;
        Ok(())
    }

    fn has(&self, item: &WorkItem) -> bool {
        self.share.as_ref().is_none_or(|share| share.has(item))
    }

    fn measure(&mut self) -> Result<(), Exit> {
        for mode in self.modes.clone() {
            let (files, item) = (self.measured(mode), item(self.args, FIGURES, mode));
            if signals::stop().is_some() || !self.has(&item) {
                continue;
            }
            if files.is_empty() {
                self.times.push(ItemTime { item, seconds: 0.0 });
                continue;
            }
            eprintln!("{mode} mode: measures");
            let order = RunArgs { figures: true, ..self.order(mode, files) };
            let run = self.run(order, ChildOutput::Discard)?;
            run.scenarios.iter().for_each(|scenario| self.gatherer.measured(scenario));
            self.times.push(ItemTime { item, seconds: run.scenarios.iter().map(|one| one.seconds).sum() });
        }
        Ok(())
    }

    /// Returns the scenarios of [`MEASURED`], or all if the user named none of these.
    fn measured(&self, mode: Mode) -> Vec<PathBuf> {
        let fits = |scenario: &&Scenario| scenario.is_for(mode) && excuse(&self.proxy, scenario, mode).is_none();
        let (usual, others): (Vec<&Scenario>, Vec<&Scenario>) =
            self.scenarios.iter().filter(fits).partition(|scenario| MEASURED.contains(&scenario.name.as_str()));
        let chosen = if usual.is_empty() { others } else { usual };
        chosen.into_iter().map(|scenario| scenario.path.clone()).collect()
    }

    /// Shrinks the clusters that broke promises which no written scenario broke.
    fn shrink(&mut self) -> Result<(), Exit> {
        for found in self.gatherer.broken_by_generated() {
            // The smaller cluster of an earlier promise may break this promise too.
            if self.gatherer.broken_by_generated().contains(&found) {
                let folder = self.args.keep_clusters.as_deref().unwrap_or(self.folder.path());
                let mut run =
                    |path: &Path, mode| self.run(self.order(mode, vec![path.to_owned()]), ChildOutput::Discard);
                let smaller = generated::shrink(&self.gatherer, &found, self.args.shrink_runs, folder, &mut run)?;
                smaller.into_iter().for_each(|judged| self.gatherer.take_breaches(judged));
            }
        }
        Ok(())
    }

    fn order(&self, mode: Mode, files: Vec<PathBuf>) -> RunArgs {
        let mut order = RunArgs::of(files);
        order.mode = vec![mode];
        (order.keep_going, order.quiet, order.no_bundle) = (true, true, true);
        order.lab = LabArgs {
            iptables_variant: self.args.iptables_variant,
            seed: self.args.seed.into(),
            proxy: self.args.proxy.clone(),
            ..LabArgs::default()
        };
        order.vm.cache_dir.clone_from(&self.args.cache_dir);
        order
    }

    fn run(&self, order: RunArgs, output: ChildOutput) -> Result<RunRecord, Exit> {
        let report = self.folder.path().join("report.json");
        let (_, run) = child::run_with_report(order, &report, output, None)?;
        Ok(run.unwrap_or_default())
    }

    fn take(&mut self, mode: Mode, run: &RunRecord) {
        let time = |one: &ScenarioRecord| ItemTime { item: item(self.args, &one.name, mode), seconds: one.seconds };
        self.times.extend(run.scenarios.iter().map(time));
        run.scenarios.iter().for_each(|scenario| self.gatherer.scenario(scenario));
        for one in run.not_run.iter().flatten() {
            let scenario = self.scenarios.iter().find(|scenario| scenario.name == one.scenario);
            let promise = scenario.and_then(|scenario| scenario.promise);
            self.gatherer.not_run(&one.scenario, promise, &mode.to_string(), &one.why);
        }
    }

    /// Records scenarios that a report lacks as not judged: a microVM may have ended early.
    fn missing(&mut self, mode: Mode, files: &[PathBuf], run: &RunRecord) {
        let ran = run.scenarios.iter().map(|one| &one.name);
        let reported: BTreeSet<&String> = ran.chain(run.not_run.iter().flatten().map(|one| &one.scenario)).collect();
        for file in files {
            let scenario = self.scenarios.iter().find(|scenario| scenario.path == *file);
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = scenario.map_or(&stem, |scenario| &scenario.name);
            if !reported.contains(name) {
                let promise = scenario.and_then(|scenario| scenario.promise);
                self.gatherer.not_run(name, promise, &mode.to_string(), "the run ended without a report of it");
            }
        }
    }
}

fn item(args: &ConformanceArgs, scenario: &str, mode: Mode) -> WorkItem {
    WorkItem { scenario: scenario.to_owned(), mode: mode.to_string(), place: ANY_PLACE.to_owned(), seed: args.seed }
}

fn title(proxy: &ProxyUnderTest) -> String {
    match proxy {
        // svcproxy has svclab's version.
        ProxyUnderTest::Own(_) => format!("svcproxy {}", env!("SVCLAB_VERSION")),
        ProxyUnderTest::Foreign(foreign) => foreign.title(),
    }
}

fn modes(args: &ConformanceArgs, proxy: &ProxyUnderTest) -> Result<Vec<Mode>, Exit> {
    check_modes(proxy, &args.mode)?;
    let has = |mode: &Mode| proxy.has(*mode);
    let asked = |mode: &Mode| args.mode.is_empty() || args.mode.contains(mode);
    let modes: Vec<Mode> = Mode::WITH_OTHER.into_iter().filter(asked).filter(has).collect();
    if modes.is_empty() {
        return Err(Exit::usage(format!("--mode leaves nothing to judge: {} has none of these modes", title(proxy))));
    }
    Ok(modes)
}

/// Loads the named scenarios, by default all shipped ones that name their promise.
fn scenarios(args: &ConformanceArgs) -> Result<Vec<Scenario>, Exit> {
    if !args.files.is_empty() {
        return find::load_all(&args.files, args.seed);
    }
    let all: Vec<PathBuf> = shipped::scenarios().map(Path::to_owned).collect();
    let mut scenarios = find::load_all(&all, args.seed)?;
    scenarios.retain(|scenario| scenario.promise.is_some());
    Ok(scenarios)
}
