//! Where scenarios are run: on the host's kernel, or in a microVM, and in which.

use std::path::PathBuf;

use clap::Args;
use svclab_microvm::kernels::Kernel;

use super::Exit;
use super::jobs::Job;
use crate::mode::Need;
use crate::report::MicroVm;

/// Where scenarios are run.
#[derive(Args)]
pub(super) struct VmArgs {
    /// The kernel: `host`, `debian-6.1`, `debian-6.12`, the path of a kernel image with its modules, `auto`: the host's, and
    /// debian-6.1 where that cannot do what is asked, or `all`: every scenario on each that can do what it needs.
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    kernel: KernelArg,
    /// Run in a microVM that counts instructions: the same image, scenario and seed give the same report, byte for byte.
    #[arg(long)]
    pub(super) deterministic: bool,
    /// Where fetched packages and built images are kept [default: $SVCLAB_CACHE, or svclab in the user's cache directory].
    #[arg(long, value_name = "DIR")]
    pub(super) cache_dir: Option<PathBuf>,
    /// How long a microVM may take for one seed, in seconds of this machine's time.
    #[arg(long, value_name = "SECONDS")]
    pub(super) deadline: Option<u64>,
    /// The microVM that this is the inside of.
    #[arg(long, hide = true, value_name = "JSON", value_parser = parse_machine)]
    pub(super) machine: Option<MicroVm>,
}

/// What `--kernel` takes.
#[derive(Clone)]
pub(super) enum KernelArg {
    All,
    Auto,
    Host,
    Inside(Kernel),
}

impl std::str::FromStr for KernelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(KernelArg::All),
            "auto" => Ok(KernelArg::Auto),
            "host" => Ok(KernelArg::Host),
            other => other.parse().map(KernelArg::Inside),
        }
    }
}

fn parse_machine(text: &str) -> Result<MicroVm, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The choice.
pub(super) enum Where {
    Host,
    Inside(Guest),
}

/// A microVM to run in.
pub(super) struct Guest {
    pub(super) kernel: Kernel,
    pub(super) deterministic: bool,
    /// Why not the host's kernel, unless that was told.
    pub(super) because: String,
}

impl VmArgs {
    /// Whether each kernel is to be run in turn.
    pub(super) fn is_every_kernel(&self) -> bool {
        matches!(self.kernel, KernelArg::All)
    }

    /// Whether some of `jobs` are run on the host and others in a microVM.
    pub(super) fn divides(&self, jobs: &[Job<'_>]) -> Result<bool, Exit> {
        if !matches!(self.kernel, KernelArg::Auto) || self.deterministic {
            return Ok(false);
        }
        let mut here = jobs.iter().map(|job| Ok(matches!(self.choose(std::slice::from_ref(job))?, Where::Host)));
        let Some(first) = here.next().transpose()? else { return Ok(false) };
        // One that has no place is told of where it is run.
        Ok(here.collect::<Result<Vec<bool>, Exit>>()?.into_iter().any(|other| other != first))
    }

    /// Where all of `jobs` are run.
    pub(super) fn choose(&self, jobs: &[Job<'_>]) -> Result<Where, Exit> {
        let needing = |need| jobs.iter().map(|job| job.scenario).find(|scenario| scenario.needs.contains(&need));
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
            (KernelArg::Host, None) => match lacking(jobs)? {
                None => Ok(Where::Host),
                Some(because) => {
                    Err(Exit::unable(format!("not on the host{because}; without --kernel host a microVM is taken")))
                }
            },
            (KernelArg::Inside(kernel), None) => guest(kernel, self.deterministic, String::new()),
            (KernelArg::All | KernelArg::Auto, Some(scenario)) => {
                guest(&Kernel::default(), true, format!(", for {} needs virtual time", scenario.name))
            }
            (KernelArg::All | KernelArg::Auto, None) if self.deterministic => {
                guest(&Kernel::default(), true, String::new())
            }
            // `all` is as many runs, each of them with a kernel's name.
            (KernelArg::All | KernelArg::Auto, None) => match lacking(jobs)? {
                None => Ok(Where::Host),
                Some(because) => guest(&Kernel::default(), false, because),
            },
        }
    }
}

/// Where a lab stands that is up. Its steps are not run: it has the host's time.
pub(super) fn of_lab(kernel: &KernelArg, job: &Job<'_>) -> Result<Where, Exit> {
    let name = &job.scenario.name;
    let guest = |kernel: &Kernel, because| {
        if job.needs().contains(&Need::VirtualTime) {
            return Err(Exit::unable(format!(
                "{name} cannot be up: it needs virtual time, which only `svclab run` has"
            )));
        }
        Ok(Where::Inside(Guest { kernel: kernel.clone(), deterministic: false, because }))
    };
    match kernel {
        KernelArg::All => Err(Exit::usage("--kernel all: a lab stands on one kernel; `svclab run` takes all of them")),
        KernelArg::Inside(kernel) => guest(kernel, String::new()),
        KernelArg::Auto => match lacking(std::slice::from_ref(job))? {
            None => Ok(Where::Host),
            Some(because) => guest(&Kernel::default(), because),
        },
        KernelArg::Host => match lacking(std::slice::from_ref(job))? {
            None => Ok(Where::Host),
            Some(because) => Err(Exit::unable(format!(
                "{name} cannot be up on the host{because}; without --kernel host a microVM is taken"
            ))),
        },
    }
}

/// What the host's kernel lacks for `jobs`, as the end of a sentence. It is asked only if one of them needs something.
pub(super) fn lacking(jobs: &[Job<'_>]) -> Result<Option<String>, Exit> {
    if jobs.iter().all(|job| job.needs().is_empty()) {
        return Ok(None);
    }
    let host = super::kernels::on_host()?;
    Ok(jobs.iter().find_map(|job| {
        let need = job.needs().into_iter().find(|need| !need.is_met_by(&host))?;
        Some(format!(", for {} needs {}, {}", job.scenario.name, need.name(), need.lack()))
    }))
}
