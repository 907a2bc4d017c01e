//! System calls that following an event costs, by netlink and on the real kernel: counted with `ptrace(2)` in a process of
//! one thread, so a busy machine changes nothing. Calls that only ask for memory are not counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use crate::cluster::Size;
use crate::events::Event;
use crate::subject::Mode;
use crate::subject::direct::Direct;

/// What the counts are compared with.
pub const COMMITTED: &str = include_str!("calls.yaml");
/// Where that is.
pub const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/calls.yaml");
/// The only argument of the process that is counted.
pub const INSIDE: &str = "--inside-calls";
/// Kernels cut dumps into pieces of different sizes: a count may be larger by this factor, and by these few.
const TOLERANCE: f64 = 1.05;
const FEW: f64 = 2.0;

const HEAD: &str = "# System calls that following an event costs, without those for memory: by netlink, on a real kernel.
# `./just bench --quick` and a test fail where a count grows by more than 5 % and 2; `./just bench --quick --update` writes this file anew.
";

/// The modes that are counted.
const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];
/// Two sizes, so that what grows with the cluster shows.
const SIZES: [Size; 2] = [Size { services: 100, endpoints: 10 }, Size { services: 1000, endpoints: 10 }];

/// Calls that ask for memory, or wait for a lock that guards it.
const MEMORY: [libc::c_long; 7] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
];

/// Calls by mode, size and event.
pub type Calls = BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>;

/// What is counted, in order.
fn steps() -> impl Iterator<Item = (Mode, Size, Event)> {
    clusters().flat_map(|(mode, size)| Event::ALL.map(|event| (mode, size, event)))
}

fn clusters() -> impl Iterator<Item = (Mode, Size)> {
    MODES.into_iter().flat_map(|mode| SIZES.map(|size| (mode, size)))
}

/// The process that is counted: it stops itself before and after each event.
///
/// # Errors
/// When the kernel refuses something.
pub fn inside() -> Result<()> {
    ptrace::traceme().context("ask to be traced")?;
    let stop = || kill(getpid(), Signal::SIGSTOP).context("stop");
    for (mode, size) in clusters() {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
        let mut proxy = Direct::by_netlink(mode)?;
        for (event, index) in Event::ALL.into_iter().zip(0..) {
            if event == Event::Restart {
                proxy = Direct::by_netlink(mode)?;
            }
            // What is made once, at the first event of a kind, is not counted.
            let rounds = if event.is_start() { 0..=0 } else { 2 * index..=2 * index + 1 };
            for round in rounds.clone() {
                if let Some(before) = event.before(size) {
                    proxy.follow(&before)?;
                }
                let input = event.input(size, round);
                if round == *rounds.end() {
                    stop()?;
                    proxy.follow(&input)?;
                    stop()?;
                } else {
                    proxy.follow(&input)?;
                }
            }
        }
    }
    Ok(())
}

/// Counts, in namespaces of its own. `program` calls [`inside`] when its only argument is [`INSIDE`].
///
/// # Errors
/// When the process cannot be traced, or fails.
pub fn count(program: &Path) -> Result<Calls> {
    let mut command = Command::new("unshare");
    command.args(["-Urnm", "--"]).arg(program).arg(INSIDE).stdin(Stdio::null());
    let child = command.spawn().context("start `unshare` (Debian package util-linux)")?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id")?);
    let mut traced = Traced { pid, is_stopped: false };
    let mut calls = Calls::new();
    for (mode, size, event) in steps() {
        let at = || format!("{} of {size} in {mode} mode", event.name());
        traced.next_stop(false)?.with_context(|| format!("the process ended before {}", at()))?;
        let counted = traced.next_stop(true)?.with_context(|| format!("the process ended at {}", at()))?;
        let sizes = calls.entry(mode.to_string()).or_default();
        sizes.entry(size.to_string()).or_default().insert(event.name().to_owned(), counted);
    }
    ensure!(traced.next_stop(false)?.is_none(), "the process goes on after its last event");
    Ok(calls)
}

struct Traced {
    pid: Pid,
    is_stopped: bool,
}

impl Traced {
    /// Lets the process run until it stops itself: the calls meanwhile, if they are counted. `None`: it has ended.
    fn next_stop(&mut self, is_counted: bool) -> Result<Option<u64>> {
        let (mut calls, mut enters, mut signal) = (0, true, None);
        loop {
            if std::mem::replace(&mut self.is_stopped, true) {
                let go_on = if is_counted { ptrace::syscall } else { ptrace::cont };
                go_on(self.pid, signal.take()).context("let the process go on")?;
            }
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)).context("wait for the process")? {
                WaitStatus::Stopped(_, Signal::SIGSTOP) => {
                    let options = ptrace::Options::PTRACE_O_TRACESYSGOOD | ptrace::Options::PTRACE_O_EXITKILL;
                    ptrace::setoptions(self.pid, options).context("trace system calls")?;
                    return Ok(Some(calls));
                }
                WaitStatus::PtraceSyscall(_) => {
                    calls += u64::from(enters && is_work(self.pid)?);
                    enters = !enters;
                }
                WaitStatus::Stopped(_, other) => signal = Some(other),
                WaitStatus::Exited(_, 0) => return Ok(None),
                other => bail!("the process: {other:?}"),
            }
        }
    }
}

/// Whether the call that the process enters is counted. Its own stop is none of the event's.
fn is_work(pid: Pid) -> Result<bool> {
    let number = ptrace::getregs(pid).context("read the number of a system call")?.orig_rax.cast_signed();
    Ok(number != libc::SYS_kill && !MEMORY.contains(&number))
}

/// The file's text for these counts.
pub fn text(calls: &Calls) -> String {
    let mut text = HEAD.to_owned();
    for (mode, sizes) in calls {
        let _ = writeln!(text, "{mode}:");
        for (size, events) in sizes {
            let _ = writeln!(text, "  {size}:");
            for (event, count) in events {
                let _ = writeln!(text, "    {event}: {count}");
            }
        }
    }
    text
}

/// Reads the file's text.
///
/// # Errors
/// When it is not what [`text`] writes.
pub fn read(text: &str) -> Result<Calls> {
    serde_saphyr::from_str(text).context("read calls.yaml")
}

/// Every count that is larger than it was, and every line that only one side has; each as a sentence.
pub fn regressions(before: &Calls, now: &Calls) -> Vec<String> {
    let flat = |calls: &Calls| -> BTreeMap<String, u64> {
        let sizes = calls.iter().flat_map(|(mode, sizes)| sizes.iter().map(move |(size, events)| (mode, size, events)));
        sizes
            .flat_map(|(mode, size, events)| {
                events.iter().map(move |(event, count)| (format!("{mode} {size} {event}"), *count))
            })
            .collect()
    };
    let (before, now) = (flat(before), flat(now));
    let gone = before.keys().filter(|key| !now.contains_key(*key)).map(|key| format!("{key} is counted no longer"));
    let more = now.iter().filter_map(|(key, count)| match before.get(key) {
        None => Some(format!("{key} is not in calls.yaml")),
        Some(was) if *count as f64 > *was as f64 * TOLERANCE + FEW => {
            Some(format!("{key}: {count} system calls, not {was}"))
        }
        Some(_) => None,
    });
    gone.chain(more).collect()
}
