//! Runs scenarios: selects process and kernel for each, and combines the reports.
//!
//! [`RunArgs`] says what to run. A run in several modes or on several kernels consists of batches of one mode and one
//! kernel. Each batch has its own process, because a run on the host's kernel moves its whole process into the sandbox.
//! The process gets [`RunArgs`] as JSON and writes a [`RunRecord`]. A microVM does the same
//! with `svclab` as its program.

pub(crate) mod abilities;
mod args;
mod batch;
pub(crate) mod child;
mod choice;
mod every_kernel;
mod every_mode;
mod every_seed;
pub(crate) mod guest;
mod guest_run;
mod guest_steps;
mod host;
mod job;
mod microvm;
pub(crate) mod output;
mod runtime;
mod seeds;
pub(crate) mod share;
pub(crate) mod signals;
mod simulator;
mod starts;
mod target;

pub(crate) use args::{LabArgs, RunArgs, value_name};
pub(crate) use guest_run::GuestRun;
pub(crate) use job::{Job, check_modes, excuse, modes};
pub(crate) use microvm::{BOOT, SCENARIO};
pub(crate) use runtime::{runtime, stopped};
pub(crate) use starts::Starts;
pub(crate) use target::{GuestTarget, KernelArg, RunTarget, target_of_lab};

use crate::exit::Exit;
use crate::find;
use crate::report::RunRecord;
use crate::scenario::Scenario;
use job::{jobs, not_excused};

pub(crate) const NAME: &str = "svclab";

pub(crate) fn run(args: &RunArgs) -> Result<u8, Exit> {
    output::open([&args.json, &args.html, &args.junit, &args.markdown].map(Option::as_deref))?;
    if args.simulate {
        return simulator::run(args);
    }
    let scenarios = args.load(args.lab.seed.first())?;
    check_breaks(args, &scenarios)?;
    // Reports mistakes in the flag before anything runs.
    args.control_plane()?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source)?;
    let mut jobs = not_excused(jobs(&scenarios, &args.mode, &proxy)?, &proxy);
    // A guest runs everything on its own kernel.
    if args.machine.is_some() || jobs.is_empty() {
        return host::run(args, &jobs, &proxy);
    }
    if args.vm.kernel == KernelArg::All {
        if args.control_plane.is_some() {
            return Err(Exit::usage("--control-plane is for this machine's kernel: leave out --kernel all"));
        }
        return every_kernel::run(args, &jobs, &proxy);
    }
    let args = &share::take_share(args, &proxy, &share::items(args, &jobs, &args.vm.kernel))?;
    jobs.retain(|job| args.has(job.scenario, job.mode, &args.vm.kernel));
    if jobs.is_empty() {
        return output::finish(args, RunRecord::of(&[]), None);
    }
    let at_once = args.at_once() > 1 && jobs.len() > 1;
    if at_once || jobs.iter().any(|job| job.mode != jobs[0].mode) || args.vm.divides(&jobs)? {
        return every_mode::run(args, &jobs);
    }
    match args.vm.target(&jobs)? {
        RunTarget::Host => host::run(args, &jobs, &proxy),
        RunTarget::Guest(guest) if args.control_plane.is_some() => Err(no_control_plane(&guest)),
        RunTarget::Guest(guest) => microvm::run(args, &guest, &jobs),
    }
}

fn no_control_plane(guest: &GuestTarget) -> Exit {
    Exit::unable(format!(
        "--control-plane serves this machine's kernel only, and this would be run in a microVM{}: run it on a kernel that has \
         what is needed, or without --control-plane",
        guest.because
    ))
}

fn check_breaks(args: &RunArgs, scenarios: &[Scenario]) -> Result<(), Exit> {
    let unknown = args.breaks.iter().find(|damage| !scenarios.iter().any(|scenario| damage.is_done_in(scenario)));
    unknown.map_or(Ok(()), |damage| Err(Exit::usage(format!("--break: no step is named {:?}", damage.meant.before))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_microvm_has_no_control_plane_and_the_refusal_says_why_one_would_be_used() {
        let because = ", for hairpin needs ipvs, which this machine's kernel lacks".to_owned();
        let refused = no_control_plane(&GuestTarget {
            kernel: svclab_microvm::kernels::Kernel::default(),
            deterministic: false,
            because,
        });
        assert_eq!(
            refused.message,
            "--control-plane serves this machine's kernel only, and this would be run in a microVM, for hairpin needs ipvs, \
             which this machine's kernel lacks: run it on a kernel that has what is needed, or without --control-plane"
        );
    }
}
