//! `svclab run` or `svclab up` in a microVM, with the same files, flags and proxy.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use svclab_microvm::VmError;
use svclab_microvm::image::Image;
use svclab_microvm::job;
use svclab_microvm::qemu::{Clock, QemuProgram};
use svclab_microvm::{kvm, launch};

use super::args::RunArgs;
use super::guest::open_cache;
use super::job::Job;
use super::target::{GuestTarget, KernelArg, VmArgs};
use super::{NAME, child, signals};
use crate::exit::Exit;
use crate::find;
use crate::input::InputFiles;
use crate::mode::{Mode, Need};
use crate::report::{MicroVm, RunRecord, ScenarioReport};
use crate::scenario::run::{ForeignProxy, ProxyUnderTest, begun};

/// The report's path in the guest, also the name of this result.
const REPORT: &str = "/out/json";
const RESULT: &str = "json";

/// Image, files and programs of a microVM: everything but the seed.
pub(crate) struct GuestRun {
    pub(crate) program: QemuProgram,
    pub(crate) image: Image,
    machine: MicroVm,
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
    /// The scenarios' paths in the guest.
    pub(crate) scenarios: Vec<String>,
    ipvs: bool,
    pub(crate) kvm: bool,
    /// The value of `--mode` in the guest. The guest's arguments must equal the repeating command's, as they affect a
    /// deterministic run.
    mode: Option<Mode>,
    /// The proxy as `--proxy` takes it in the guest; `None` for svcproxy.
    pub(crate) proxy: Option<String>,
    tested: ProxyUnderTest,
}

pub(super) struct GuestResult {
    pub(super) status: u8,
    pub(super) report: Option<RunRecord>,
}

impl GuestRun {
    /// Fetches and builds everything. `cache_dir` and `given`: `--cache-dir` and `--proxy`.
    pub(crate) fn prepare(
        cache_dir: Option<&Path>,
        given: Option<&Path>,
        guest: &GuestTarget,
        jobs: &[Job<'_>],
        proxy: &ProxyUnderTest,
    ) -> Result<GuestRun, Exit> {
        let unable = |error: VmError| Exit::unable(error.to_string());
        let cache = open_cache(cache_dir)?;
        let mut files = BTreeMap::new();
        for scenario in jobs.iter().map(|job| job.scenario) {
            files.insert(guest_path(&scenario.path), scenario.text.clone().into_bytes());
            let named = scenario.files.iter();
            files.extend(named.map(|(path, text)| (guest_path(Path::new(path)), text.clone().into_bytes())));
        }
        let own =
            std::env::current_exe().map_err(|error| Exit::unable(format!("cannot find svclab itself: {error}")))?;
        let mut programs = BTreeMap::from([(NAME.to_owned(), own)]);
        let mut links = BTreeMap::new();
        let description = match proxy {
            ProxyUnderTest::Own(path) => {
                programs.insert("svcproxy".to_owned(), path.clone());
                None
            }
            ProxyUnderTest::Foreign(foreign) => {
                add_programs(foreign, &mut programs, &mut links);
                Some(description(&find::named_proxy(given).unwrap_or_default(), &mut files)?)
            }
        };
        let image = Image::get(&cache, &guest.kernel, &programs).map_err(unable)?;
        let program = QemuProgram::find(&cache).map_err(unable)?;
        let machine = MicroVm {
            kernel: guest.kernel.to_string(),
            deterministic: guest.deterministic,
            image: image.hash().to_owned(),
            qemu: program.version().map_err(unable)?,
        };
        Ok(GuestRun {
            ipvs: jobs.iter().any(|job| job.needs().contains(&Need::Ipvs)),
            kvm: !guest.deterministic && kvm::works(&cache, &program, &image.kernel()),
            mode: jobs.first().map(|job| job.mode),
            scenarios: jobs.iter().map(|job| guest_path(&job.scenario.path)).collect(),
            proxy: description,
            tested: proxy.clone(),
            program,
            image,
            machine,
            files,
            links,
        })
    }

    pub(super) fn run(
        &self,
        args: &RunArgs,
        seed: u64,
        deadline: Duration,
        progress: &mut dyn FnMut(&str),
    ) -> Result<GuestResult, Exit> {
        // Ctrl-C on a terminal also ends QEMU, so report a signal as the reason.
        let failed =
            |error: VmError| signals::stop().map_or_else(|| Exit::unable(error.to_string()), signals::Stop::exit);
        let clock = if self.machine.deterministic { Clock::Counted { seed } } else { Clock::Host { kvm: self.kvm } };
        let order = vec![child::RUN_ORDER.to_owned(), child::order(&self.order(args, seed))?];
        let job = job::GuestJob { results: [(RESULT.to_owned(), REPORT.to_owned())].into(), ..self.job(order) };
        let is_stopped = || signals::stop().is_some();
        let ended = launch::run_unless(&self.program, &self.image, &job, clock, deadline, progress, &is_stopped)
            .map_err(failed)?;
        let report = ended.results.get(RESULT).and_then(|report| serde_json::from_slice(report).ok());
        Ok(GuestResult { status: ended.status, report })
    }

    pub(crate) fn job(&self, args: Vec<String>) -> job::GuestJob {
        job::GuestJob {
            program: NAME.to_owned(),
            args,
            results: BTreeMap::new(),
            ipvs: self.ipvs,
            links: self.links.clone(),
            files: self.files.clone(),
        }
    }

    /// Returns the report, still without steps, of a job that began in the guest. Only the guest knows its kernel's
    /// release and clock.
    pub(super) fn begun(&self, job: &Job<'_>, args: &RunArgs, seed: u64) -> ScenarioReport {
        let variant = job.scenario.variant.unwrap_or(args.lab.iptables_variant);
        let report = begun(job.scenario, job.mode, variant);
        let (machine, proxy) = (Some(self.machine.clone()), self.tested.tested(args.proxy_given()));
        ScenarioReport { machine, proxy, seed, kernel: None, started: None, ..report }
    }

    /// Returns the arguments of svclab in the guest, which writes nothing but a report.
    fn order(&self, args: &RunArgs, seed: u64) -> RunArgs {
        let mut order = args.clone();
        order.files = self.scenarios.iter().map(PathBuf::from).collect();
        order.mode = self.mode.into_iter().collect();
        order.vm = VmArgs { kernel: KernelArg::Host, ..VmArgs::default() };
        order.machine = Some(self.machine.clone());
        order.proxy_outside = args.proxy_given();
        (order.lab.seed, order.seeds) = (seed.into(), Vec::new());
        order.lab.proxy = self.proxy.as_ref().map(PathBuf::from);
        (order.json, order.junit, order.html, order.markdown) = (Some(REPORT.into()), None, None, None);
        (order.bundle, order.no_bundle) = (None, true);
        (order.from_report, order.is_batch) = (None, false);
        order
    }
}

/// Adds a proxy's programs, with links for the paths in its description.
fn add_programs(
    foreign: &ForeignProxy,
    programs: &mut BTreeMap<String, PathBuf>,
    links: &mut BTreeMap<String, String>,
) {
    for program in foreign.programs() {
        let path = PathBuf::from(&program);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.parent() != Some(Path::new("/usr/bin")) {
            links.insert(program, format!("/usr/bin/{name}"));
        }
        programs.insert(name, path);
    }
}

/// Returns the proxy as `--proxy` takes it in the guest: a command, or a file, which is added to `files`.
fn description(given: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<String, Exit> {
    if let Some(command) = given.to_str().filter(|text| ForeignProxy::is_command(text)) {
        return Ok(command.to_owned());
    }
    let file = find::description(given);
    let text = InputFiles::default()
        .text(&file)
        .map_err(|error| Exit::usage(format!("cannot read {}: {error}", file.display())))?;
    files.insert(guest_path(&file), text.into_bytes());
    Ok(guest_path(&file))
}

/// Returns a file's path in the guest, made absolute if it leaves the current folder.
fn guest_path(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            Component::ParentDir => {
                return std::path::absolute(path)
                    .and_then(std::fs::canonicalize)
                    .unwrap_or(plain)
                    .display()
                    .to_string();
            }
            component => plain.push(component),
        }
    }
    plain.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_the_guest_is_relative_unless_it_leads_upwards() {
        assert_eq!(guest_path(Path::new("./scenarios/a.yaml")), "scenarios/a.yaml");
        assert_eq!(guest_path(Path::new("scenarios/seeds/../a.yaml")), "scenarios/a.yaml");
        assert_eq!(guest_path(Path::new("/x/./y/../a.yaml")), "/x/a.yaml");
        let above = std::fs::canonicalize("../src").unwrap_or_default();
        assert_eq!(guest_path(Path::new("../src")), above.display().to_string());
    }
}
