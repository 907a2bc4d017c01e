use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

const GRACE: Duration = Duration::from_secs(10);

pub(super) fn block_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGCHLD] {
        set.add(signal);
    }
    // Labs started with nohup(1) survive SIGHUP.
    if !ignores(Signal::SIGHUP, &std::fs::read_to_string("/proc/self/status")?) {
        set.add(Signal::SIGHUP);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

fn ignores(signal: Signal, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal as i32 - 1)) != 0
}

/// Waits for the child and returns its status, 128 + N after signal N.
pub(super) fn supervise(mut child: Child, signals: &SignalFd) -> io::Result<i32> {
    let pid = Pid::from_raw(child.id() as i32);
    let mut deadline: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        while let Some(info) = signals.read_signal()? {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else {
                continue;
            };
            if signal == Signal::SIGCHLD {
                continue;
            }
            let again = deadline.is_some();
            deadline.get_or_insert_with(|| Instant::now() + GRACE);
            let _ = kill(pid, if again { Signal::SIGKILL } else { signal });
        }
        if deadline.is_some_and(|at| Instant::now() >= at) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        let timeout = deadline.map_or(PollTimeout::NONE, |_| PollTimeout::from(100u16));
        let _ = poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout);
    }
}

pub(super) fn is_gone(lifeline: &File) -> bool {
    let mut fds = [PollFd::new(lifeline.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_sighup_is_detected() {
        let status = |mask: &str| format!("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t01\n");
        assert!(ignores(Signal::SIGHUP, &status("0000000000001001")));
        assert!(!ignores(Signal::SIGHUP, &status("0000000000001000")));
        assert!(ignores(Signal::SIGPIPE, &status("0000000000001000")));
    }
}
