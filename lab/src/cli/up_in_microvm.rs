//! `svclab up` in a microVM, with a shell beside the lab on this terminal.

use std::time::{Duration, Instant};

use svclab_microvm::VmError;
use svclab_microvm::launch::BootedVm;
use svclab_microvm::qemu::Clock;
use svclab_microvm::session::TerminalSize;
use svclab_microvm::session::outside::Session;

use super::in_microvm::{BOOT, SCENARIO};
use super::inside::Inside;
use super::jobs::Job;
use super::place::Guest;
use super::run_args::word;
use super::up::UpArgs;
use super::{Exit, live, stop};
use crate::scenario::run::ProxyUnderTest;

/// How long it may take until the shell is there.
const STANDS: Duration = BOOT.saturating_add(SCENARIO);

/// The whole life of such a lab; returns the shell's exit status.
pub(super) fn up(args: &UpArgs, guest: &Guest, job: &Job<'_>, proxy: &ProxyUnderTest) -> Result<u8, Exit> {
    stop::watch()?;
    let jobs = std::slice::from_ref(job);
    let inside = Inside::prepare(args.cache_dir.as_deref(), args.lab.proxy.as_deref(), guest, jobs, proxy)?;
    let how = if inside.kvm { "KVM" } else { "fast" };
    let image = &inside.image.hash()[..12];
    eprintln!("kernel: {} in a microVM ({how}, image {image}){}", guest.kernel, guest.because);
    live::enable();
    live::set(format!("{}: booting, and building the cluster", guest.kernel));
    let unable = |error: VmError| stop::stop().map_or_else(|| Exit::unable(error.to_string()), stop::Stop::exit);
    let terminal = if Session::is_on_terminal() { size() } else { None };
    let lost = |error: std::io::Error| Exit::unable(format!("making the microVM's second serial line: {error}"));
    let (mut session, line) = Session::new(terminal).map_err(lost)?;
    let job = inside.job(arguments(args, guest, job, &inside, terminal)?);
    let clock = Clock::Host { kvm: inside.kvm };
    let machine = BootedVm::boot(&inside.program, &inside.image, &job, clock, Some(line)).map_err(unable)?;
    let end = Instant::now() + STANDS;
    // Both closures are called in turn, by one thread.
    let session_of = std::cell::RefCell::new(&mut session);
    let ended = machine.attend(
        &mut |line| {
            live::clear();
            session_of.borrow().complain(line);
        },
        &mut || {
            let mut session = session_of.borrow_mut();
            if stop::stop().is_some() || session.is_left() {
                return Err(VmError::Stopped);
            }
            if session.has_started() {
                live::clear();
                session.resize(size());
            }
            Ok((!session.has_started() && Instant::now() >= end).then_some(STANDS))
        },
    );
    let is_left = session.is_left();
    live::clear();
    // QEMU is gone by now.
    session.end();
    match ended {
        Ok(ended) => Ok(ended.status),
        Err(VmError::Stopped) if is_left && stop::stop().is_none() => {
            println!("");
            Ok(0)
        }
        Err(error) => Err(unable(error)),
    }
}

/// The terminal's.
fn size() -> Option<TerminalSize> {
    terminal_size::terminal_size().map(|(width, height)| TerminalSize { rows: height.0, columns: width.0 })
}

/// The command inside.
fn arguments(
    args: &UpArgs,
    guest: &Guest,
    job: &Job<'_>,
    inside: &Inside,
    terminal: Option<TerminalSize>,
) -> Result<Vec<String>, Exit> {
    let mut arguments = vec!["guest-up".to_owned()];
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    if let Some(size) = terminal {
        let size = serde_json::to_string(&size).map_err(|error| Exit::unable(error.to_string()))?;
        flag("terminal", size);
        if let Ok(term) = std::env::var("TERM") {
            flag("term", term);
        }
    }
    let kernel = guest.kernel.to_string();
    let kernel = kernel.rsplit('/').next().unwrap_or(&kernel);
    flag("prompt", format!("{} ({kernel}) # ", args.name.as_deref().unwrap_or(&job.scenario.name)));
    arguments.push("--".to_owned());
    arguments.extend(inside.names.iter().cloned());
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    flag("kernel", "host".to_owned());
    flag("mode", job.mode.to_string());
    flag("iptables-variant", word(args.lab.iptables_variant));
    flag("source", word(args.lab.source));
    flag("seed", args.lab.seed.one()?.to_string());
    if let Some(proxy) = &inside.proxy {
        flag("proxy", proxy.clone());
    }
    if let Some(name) = &args.name {
        flag("name", name.clone());
    }
    Ok(arguments)
}
