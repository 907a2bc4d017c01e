use std::time::{Duration, Instant};

use svclab_microvm::VmError;
use svclab_microvm::launch::BootedVm;
use svclab_microvm::qemu::Clock;
use svclab_microvm::session::TerminalSize;
use svclab_microvm::session::outside::Session;

use super::UpArgs;
use crate::console::progress;
use crate::exit::Exit;
use crate::scenario::run::ProxyUnderTest;
use crate::schedule::{BOOT, GuestRun, GuestTarget, Job, SCENARIO, signals, value_name};

const START: Duration = BOOT.saturating_add(SCENARIO);

pub(super) fn up(args: &UpArgs, guest: &GuestTarget, job: &Job<'_>, proxy: &ProxyUnderTest) -> Result<u8, Exit> {
    signals::watch()?;
    let jobs = std::slice::from_ref(job);
    let run = GuestRun::prepare(args.cache_dir.as_deref(), args.lab.proxy.as_deref(), guest, jobs, proxy)?;
    let how = if run.kvm { "KVM" } else { "fast" };
    let image = &run.image.hash()[..12];
    eprintln!("kernel: {} in a microVM ({how}, image {image}){}", guest.kernel, guest.because);
    progress::enable();
    progress::set(format!("{}: booting, and building the cluster", guest.kernel));
    let unable = |error: VmError| signals::stop().map_or_else(|| Exit::unable(error.to_string()), signals::Stop::exit);
    let terminal = if Session::is_on_terminal() { size() } else { None };
    let lost = |error: std::io::Error| Exit::unable(format!("making the microVM's second serial line: {error}"));
    let (mut session, line) = Session::new(terminal).map_err(lost)?;
    let job = run.job(arguments(args, guest, job, &run, terminal)?);
    let clock = Clock::Host { kvm: run.kvm };
    let machine = BootedVm::boot(&run.program, &run.image, &job, clock, Some(line)).map_err(unable)?;
    let end = Instant::now() + START;
    // One thread calls both closures, which use the session.
    let session_of = std::cell::RefCell::new(&mut session);
    let ended = machine.attend(
        &mut |line| {
            progress::clear();
            session_of.borrow().complain(line);
        },
        &mut || {
            let mut session = session_of.borrow_mut();
            if signals::stop().is_some() || session.is_left() {
                return Err(VmError::Stopped);
            }
            if session.has_started() {
                progress::clear();
                session.resize(size());
            }
            Ok((!session.has_started() && Instant::now() >= end).then_some(START))
        },
    );
    let is_left = session.is_left();
    progress::clear();
    session.end();
    match ended {
        Ok(ended) => Ok(ended.status),
        Err(VmError::Stopped) if is_left && signals::stop().is_none() => {
            println!("");
            Ok(0)
        }
        Err(error) => Err(unable(error)),
    }
}

fn size() -> Option<TerminalSize> {
    terminal_size::terminal_size().map(|(width, height)| TerminalSize { rows: height.0, columns: width.0 })
}

fn arguments(
    args: &UpArgs,
    guest: &GuestTarget,
    job: &Job<'_>,
    run: &GuestRun,
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
    arguments.extend(run.scenarios.iter().cloned());
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    flag("kernel", "host".to_owned());
    flag("mode", job.mode.to_string());
    flag("iptables-variant", value_name(args.lab.iptables_variant));
    flag("source", value_name(args.lab.source));
    flag("seed", args.lab.seed.one()?.to_string());
    if let Some(proxy) = &run.proxy {
        flag("proxy", proxy.clone());
    }
    if let Some(name) = &args.name {
        flag("name", name.clone());
    }
    Ok(arguments)
}
