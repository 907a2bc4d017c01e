//! Counts the system calls of a sync after each event with `ptrace(2)`, in a process with one thread, by netlink on the real kernel.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use crate::cluster::ClusterSize;
use crate::count_file::{CountFile, CountTable, Counts};
use crate::events::Event;
use crate::subject::Mode;
use crate::subject::direct::DirectProxy;

/// The only argument of the traced process.
pub const INSIDE: &str = "--inside-calls";
/// A count may grow by this factor plus [`FEW`]: kernels split dumps into messages of different sizes.
const TOLERANCE: f64 = 1.05;
const FEW: f64 = 2.0;

pub const FILE: CountFile = CountFile { name: "calls.yaml", committed: include_str!("calls.yaml"), head: HEAD };
const HEAD: &str = "# System calls that following an event costs, without those for memory: by netlink, on a real kernel.
# `./just bench --quick` and a test fail where a count grows by more than 5 % and 2; `./just bench --quick --update` writes this file anew.
";

const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];
const SIZES: [ClusterSize; 2] =
    [ClusterSize { services: 100, endpoints: 10 }, ClusterSize { services: 1000, endpoints: 10 }];

/// System calls for memory, or for the lock of the allocator.
const MEMORY: [libc::c_long; 7] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
];

impl Counts for u64 {
    fn text(&self) -> String {
        self.to_string()
    }

    fn counts(&self) -> Vec<(&'static str, u64, u64)> {
        vec![("systemCalls", *self, (*self as f64 * TOLERANCE + FEW) as u64)]
    }
}

fn steps() -> impl Iterator<Item = (Mode, ClusterSize, Event)> {
    clusters().flat_map(|(mode, size)| Event::ALL.map(|event| (mode, size, event)))
}

fn clusters() -> impl Iterator<Item = (Mode, ClusterSize)> {
    MODES.into_iter().flat_map(|mode| SIZES.map(|size| (mode, size)))
}

/// Runs the traced process, which stops itself before and after each event.
pub fn inside() -> Result<()> {
    ptrace::traceme().context("ask to be traced")?;
    let stop = || kill(getpid(), Signal::SIGSTOP).context("stop");
    for (mode, size) in clusters() {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
        let mut proxy = DirectProxy::by_netlink(mode)?;
        for (event, index) in Event::ALL.into_iter().zip(0..) {
            if event == Event::Restart {
                proxy = DirectProxy::by_netlink(mode)?;
            }
            // The first event of a kind creates some objects once, so the second one counts.
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

/// `program` must call [`inside`] if its only argument is [`INSIDE`].
pub fn count(program: &Path) -> Result<CountTable<u64>> {
    let mut command = Command::new("unshare");
    command.args(["-Urnm", "--"]).arg(program).arg(INSIDE).stdin(Stdio::null());
    let child = command.spawn().context("start `unshare` (Debian package util-linux)")?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id")?);
    let mut traced = Traced { pid, is_stopped: false };
    let mut calls = CountTable::new();
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
    /// Runs the process until it stops itself, and returns its system calls if they count; `None` at its end.
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

/// Whether the system call that the process enters counts. The process stops itself with `kill`.
fn is_work(pid: Pid) -> Result<bool> {
    let number = ptrace::getregs(pid).context("read the number of a system call")?.orig_rax.cast_signed();
    Ok(number != libc::SYS_kill && !MEMORY.contains(&number))
}
