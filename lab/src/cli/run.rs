//! `svclab run`

use super::jobs::{jobs, not_excused};
use super::place::Where;
use super::run_args::RunArgs;
use super::{Exit, every_kernel, every_mode, find, in_microvm, on_host, simulate};
use crate::scenario::Scenario;

pub(super) fn run(args: &RunArgs) -> Result<u8, Exit> {
    if args.simulate {
        return simulate::run(args);
    }
    let seed = args.lab.seed.each().start;
    let scenarios = args.load(seed)?;
    check_breaks(args, &scenarios)?;
    // A mistake in it is told before anything is run.
    args.control_plane()?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    let jobs = not_excused(jobs(&scenarios, &args.modes(), proxy.is_foreign())?, &proxy);
    // The inside of a microVM does everything that it is asked for itself.
    if args.vm.machine.is_some() || jobs.is_empty() {
        return on_host::run(args, &jobs, &proxy);
    }
    if args.vm.is_every_kernel() && args.control_plane.is_some() {
        return Err(Exit::usage("--control-plane is for this machine's kernel: leave out --kernel all"));
    }
    if args.vm.is_every_kernel() {
        return every_kernel::run(args, &jobs);
    }
    if jobs.iter().any(|job| job.mode != jobs[0].mode) || args.vm.divides(&jobs)? {
        return every_mode::run(args, &jobs);
    }
    match args.vm.choose(&jobs)? {
        Where::Host => on_host::run(args, &jobs, &proxy),
        Where::Inside(guest) if args.control_plane.is_some() => {
            let why = format!(
                "--control-plane is for this machine's kernel; this would be run in a microVM{}",
                guest.because
            );
            Err(Exit::unable(why))
        }
        Where::Inside(guest) => in_microvm::run(args, &guest, &jobs),
    }
}

/// Mistakes that the files and flags show before anything is run.
fn check_breaks(args: &RunArgs, scenarios: &[Scenario]) -> Result<(), Exit> {
    for damage in &args.breaks {
        if !scenarios.iter().any(|scenario| damage.is_done_in(scenario)) {
            return Err(Exit::usage(format!("--break: no step is named {:?}", damage.meant.before)));
        }
    }
    Ok(())
}
