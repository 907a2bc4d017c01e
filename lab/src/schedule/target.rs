//! Selects the kernel of a scenario: the host's or a microVM's.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};
use svclab_microvm::kernels::Kernel;

use super::abilities;
use super::job::Job;
use crate::exit::Exit;
use crate::mode::Need;

#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub(crate) struct VmArgs {
    /// The kernel: `host`, `debian-6.1`, `debian-6.12`, the path of a kernel image with its modules, `auto`: the host's, and
    /// debian-6.1 where the host's lacks what is needed, or `all`: every scenario on each that has what it needs.
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    pub(crate) kernel: KernelArg,
    /// Run in a microVM that counts instructions: the same image, scenario and seed give the same report, byte for byte.
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Where fetched packages and built images are kept [default: $SVCLAB_CACHE, or svclab in the user's cache directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// How long a microVM may take for one seed, in seconds of this machine's time.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) deadline: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum KernelArg {
    All,
    #[default]
    Auto,
    Host,
    Guest(Kernel),
}

impl FromStr for KernelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(KernelArg::All),
            "auto" => Ok(KernelArg::Auto),
            "host" => Ok(KernelArg::Host),
            other => other.parse().map(KernelArg::Guest),
        }
    }
}

impl fmt::Display for KernelArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelArg::All => f.write_str("all"),
            KernelArg::Auto => f.write_str("auto"),
            KernelArg::Host => f.write_str("host"),
            KernelArg::Guest(kernel) => kernel.fmt(f),
        }
    }
}

impl From<KernelArg> for String {
    fn from(kernel: KernelArg) -> String {
        kernel.to_string()
    }
}

impl TryFrom<String> for KernelArg {
    type Error = String;

    fn try_from(text: String) -> Result<KernelArg, String> {
        text.parse()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunTarget {
    Host,
    Guest(GuestTarget),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestTarget {
    pub(crate) kernel: Kernel,
    pub(crate) deterministic: bool,
    /// Why the host's kernel is not used, as the end of a sentence; empty if the user chose the kernel.
    pub(crate) because: String,
}

impl RunTarget {
    pub(super) fn guest(&self) -> Option<&GuestTarget> {
        match self {
            RunTarget::Host => None,
            RunTarget::Guest(guest) => Some(guest),
        }
    }

    pub(super) fn is_deterministic(&self) -> bool {
        self.guest().is_some_and(|guest| guest.deterministic)
    }

    pub(super) fn kernel(&self) -> KernelArg {
        self.guest().map_or(KernelArg::Host, |guest| KernelArg::Guest(guest.kernel.clone()))
    }
}

impl VmArgs {
    pub(super) fn divides(&self, jobs: &[Job<'_>]) -> Result<bool, Exit> {
        if self.kernel != KernelArg::Auto || self.deterministic {
            return Ok(false);
        }
        let on_host = jobs.iter().map(|job| Ok(self.target(std::slice::from_ref(job))? == RunTarget::Host));
        let on_host = on_host.collect::<Result<Vec<bool>, Exit>>()?;
        Ok(on_host.contains(&true) && on_host.contains(&false))
    }

    /// Selects one kernel for all of `jobs`.
    pub(super) fn target(&self, jobs: &[Job<'_>]) -> Result<RunTarget, Exit> {
        let needing = |need| jobs.iter().map(|job| job.scenario).find(|scenario| scenario.needs.contains(&need));
        let timeless = needing(Need::VirtualTime).filter(|_| !self.deterministic);
        let guest = |kernel: &Kernel, deterministic, because: String| {
            Ok(RunTarget::Guest(GuestTarget { kernel: kernel.clone(), deterministic, because }))
        };
        match (&self.kernel, timeless) {
            (KernelArg::Host, _) if self.deterministic => Err(Exit::usage(
                "--deterministic needs a microVM: the host's kernel draws as it likes; leave --kernel host out",
            )),
            (KernelArg::Host | KernelArg::Guest(_), Some(scenario)) => Err(Exit::usage(format!(
                "{} needs virtual time, which only a deterministic microVM has: add --deterministic, without --kernel host",
                scenario.name
            ))),
            (KernelArg::Host, None) => match lacking(jobs)? {
                None => Ok(RunTarget::Host),
                Some(because) => {
                    Err(Exit::unable(format!("not on the host{because}; without --kernel host a microVM is taken")))
                }
            },
            (KernelArg::Guest(kernel), None) => guest(kernel, self.deterministic, String::new()),
            (KernelArg::All | KernelArg::Auto, Some(scenario)) => {
                guest(&Kernel::default(), true, format!(", for {} needs virtual time", scenario.name))
            }
            (KernelArg::All | KernelArg::Auto, None) if self.deterministic => {
                guest(&Kernel::default(), true, String::new())
            }
            (KernelArg::All | KernelArg::Auto, None) => match lacking(jobs)? {
                None => Ok(RunTarget::Host),
                Some(because) => guest(&Kernel::default(), false, because),
            },
        }
    }
}

/// Selects the kernel of a lab that stays up: its steps are not run, so it needs no virtual time.
pub(crate) fn target_of_lab(kernel: &KernelArg, job: &Job<'_>) -> Result<RunTarget, Exit> {
    let name = &job.scenario.name;
    let guest = |kernel: &Kernel, because| {
        if job.needs().contains(&Need::VirtualTime) {
            return Err(Exit::unable(format!(
                "{name} cannot be up: it needs virtual time, which only `svclab run` has"
            )));
        }
        Ok(RunTarget::Guest(GuestTarget { kernel: kernel.clone(), deterministic: false, because }))
    };
    match kernel {
        KernelArg::All => Err(Exit::usage("--kernel all: a lab stands on one kernel; `svclab run` takes all of them")),
        KernelArg::Guest(kernel) => guest(kernel, String::new()),
        KernelArg::Auto | KernelArg::Host => match lacking(std::slice::from_ref(job))? {
            None => Ok(RunTarget::Host),
            Some(because) if *kernel == KernelArg::Auto => guest(&Kernel::default(), because),
            Some(because) => Err(Exit::unable(format!(
                "{name} cannot be up on the host{because}; without --kernel host a microVM is taken"
            ))),
        },
    }
}

/// Returns what the host's kernel lacks, as the end of a sentence. Probes the kernel only if a job needs something.
fn lacking(jobs: &[Job<'_>]) -> Result<Option<String>, Exit> {
    if jobs.iter().all(|job| job.needs().is_empty()) {
        return Ok(None);
    }
    let host = abilities::of_host()?;
    Ok(jobs.iter().find_map(|job| {
        let need = job.needs().into_iter().find(|need| !need.is_met_by(&host))?;
        Some(format!(", for {} needs {}, {}", job.scenario.name, need.name(), need.lack()))
    }))
}
