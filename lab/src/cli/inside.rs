//! `svclab run` or `svclab up` in a microVM: the same command inside, with the same files, flags and proxy.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use svclab_microvm::VmError;
use svclab_microvm::console::Ended;
use svclab_microvm::image::Image;
use svclab_microvm::job;
use svclab_microvm::qemu::{Clock, QemuProgram};
use svclab_microvm::{kvm, launch};

use super::guest::open_cache;
use super::jobs::Job;
use super::output::{JSON, JUNIT};
use super::place::Guest;
use super::run_args::RunArgs;
use super::{Exit, NAME, find, stop};
use crate::input::InputFiles;
use crate::mode::{Mode, Need};
use crate::report::{MicroVm, ScenarioReport};
use crate::scenario::run::{ForeignProxy, ProxyUnderTest, begun};

/// Everything that does not depend on the seed.
pub(super) struct Inside {
    pub(super) program: QemuProgram,
    pub(super) image: Image,
    machine: MicroVm,
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
    pub(super) names: Vec<String>,
    ipvs: bool,
    pub(super) kvm: bool,
    /// The mode of all: it is named inside, as it is in the line that repeats a run, for with other flags it would take
    /// another course.
    mode: Option<Mode>,
    pub(super) proxy: Option<String>,
}

impl Inside {
    /// Fetches and makes everything; `cache_dir` and `given` are the flags `--cache-dir` and `--proxy`.
    pub(super) fn prepare(
        cache_dir: Option<&Path>,
        given: Option<&Path>,
        guest: &Guest,
        jobs: &[Job<'_>],
        proxy: &ProxyUnderTest,
    ) -> Result<Inside, Exit> {
        let unable = |error: VmError| Exit::unable(error.to_string());
        let cache = open_cache(cache_dir)?;
        let mut files = BTreeMap::new();
        for scenario in jobs.iter().map(|job| job.scenario) {
            files.insert(shown(&scenario.path), scenario.text.clone().into_bytes());
            files.extend(scenario.files.iter().map(|(path, text)| (shown(Path::new(path)), text.clone().into_bytes())));
        }
        let names = jobs.iter().map(|job| shown(&job.scenario.path)).collect();
        let own =
            std::env::current_exe().map_err(|error| Exit::unable(format!("cannot find svclab itself: {error}")))?;
        let mut programs = BTreeMap::from([(NAME.to_owned(), own)]);
        let mut links = BTreeMap::new();
        let mut described = None;
        match proxy {
            ProxyUnderTest::Own(path) => drop(programs.insert("svcproxy".to_owned(), path.clone())),
            ProxyUnderTest::Foreign(foreign) => {
                let given = given.unwrap_or(Path::new(""));
                described = Some(match given.to_str().filter(|text| ForeignProxy::is_command(text)) {
                    Some(command) => command.to_owned(),
                    None => {
                        let file = find::description(given);
                        let text = InputFiles::default()
                            .text(&file)
                            .map_err(|error| Exit::usage(format!("cannot read {}: {error}", file.display())))?;
                        files.insert(shown(&file), text.into_bytes());
                        shown(&file)
                    }
                });
                for program in foreign.programs() {
                    let path = PathBuf::from(&program);
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    // Found by its name, and by the path that the description may give.
                    if path.parent() != Some(Path::new("/usr/bin")) {
                        links.insert(program, format!("/usr/bin/{name}"));
                    }
                    programs.insert(name, path);
                }
            }
        }
        let image = Image::get(&cache, &guest.kernel, &programs).map_err(unable)?;
        let program = QemuProgram::find(&cache).map_err(unable)?;
        let machine = MicroVm {
            kernel: guest.kernel.to_string(),
            deterministic: guest.deterministic,
            image: image.hash().to_owned(),
            qemu: program.version().map_err(unable)?,
        };
        let kvm = !guest.deterministic && kvm::works(&cache, &program, &image.kernel());
        let ipvs = jobs.iter().any(|job| job.needs().contains(&Need::Ipvs));
        let mode = jobs.first().map(|job| job.mode);
        Ok(Inside { ipvs, kvm, mode, program, image, machine, files, links, names, proxy: described })
    }

    /// Runs everything with one seed.
    pub(super) fn run(
        &self,
        args: &RunArgs,
        seed: u64,
        deadline: Duration,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Ended, Exit> {
        // A terminal's Ctrl-C ends QEMU as well: what has ended it is asked first.
        let failed = |error: VmError| stop::stop().map_or_else(|| Exit::unable(error.to_string()), stop::Stop::exit);
        let clock = if self.machine.deterministic { Clock::Counted { seed } } else { Clock::Host { kvm: self.kvm } };
        let results = [JSON, JUNIT].map(|name| (name.to_owned(), out(name)));
        let job = job::GuestJob { results: results.into(), ..self.job(self.arguments(args, seed)) };
        launch::run_unless(&self.program, &self.image, &job, clock, deadline, progress, &|| stop::stop().is_some())
            .map_err(failed)
    }

    /// What the guest is to do: svclab, with these arguments.
    pub(super) fn job(&self, args: Vec<String>) -> job::GuestJob {
        job::GuestJob {
            program: NAME.to_owned(),
            args,
            results: BTreeMap::new(),
            ipvs: self.ipvs,
            links: self.links.clone(),
            files: self.files.clone(),
        }
    }

    /// A report of a job that was begun inside.
    pub(super) fn begun(&self, job: &Job<'_>, args: &RunArgs, seed: u64) -> ScenarioReport {
        let variant = job.scenario.variant.unwrap_or(args.lab.iptables_variant.into());
        // Its kernel's release and its clock are known inside only.
        let (machine, unknown) = (Some(self.machine.clone()), None);
        let report = begun(job.scenario, job.mode, variant);
        ScenarioReport { machine, seed, kernel: unknown.clone(), started: unknown, ..report }
    }

    fn arguments(&self, args: &RunArgs, seed: u64) -> Vec<String> {
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(self.names.iter().cloned());
        arguments.extend(args.flags_in(self.mode.as_slice()));
        let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        flag("kernel", "host".to_owned());
        flag("machine", serde_json::to_string(&self.machine).unwrap_or_default());
        flag("seed", seed.to_string());
        flag("json", out(JSON));
        flag("junit", out(JUNIT));
        if let Some(proxy) = &self.proxy {
            flag("proxy", proxy.clone());
        }
        // Only reports come out of the guest.
        arguments.push("--no-bundle".to_owned());
        arguments
    }
}

fn out(name: &str) -> String {
    format!("/out/{name}")
}

/// A file's path in the guest, and in its report: as it is written, so that the line that repeats a run works outside; only
/// a path that leads upwards becomes absolute.
fn shown(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for batch in path.components() {
        match batch {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            Component::ParentDir => {
                return std::path::absolute(path)
                    .and_then(std::fs::canonicalize)
                    .unwrap_or(plain)
                    .display()
                    .to_string();
            }
            batch => plain.push(batch),
        }
    }
    plain.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
