//! Signals that end a run: what was done until then is reported, and the status is the shell's, 128 and the signal's number.
//!
//! A run inside the sandbox hears of them by the runtime. A process that only waits for others, in microVMs or for other batches,
//! passes them on with [`status`].

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use super::Exit;

/// Such a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Interrupt,
    Terminate,
    Hangup,
}

impl Stop {
    fn signal(self) -> Signal {
        match self {
            Stop::Interrupt => Signal::SIGINT,
            Stop::Terminate => Signal::SIGTERM,
            Stop::Hangup => Signal::SIGHUP,
        }
    }

    /// As kill(1) calls it.
    pub(super) fn name(self) -> &'static str {
        self.signal().as_str()
    }

    /// The exit status of what it has ended.
    pub(super) fn exit(self) -> Exit {
        // Signals' numbers are small.
        let number = u8::try_from(self.signal() as i32).unwrap_or(0);
        Exit { status: 128 + number, message: format!("ended by {}", self.name()) }
    }
}

static STOPPED: OnceLock<Stop> = OnceLock::new();
/// The process that is waited for.
static CHILD: Mutex<Option<Pid>> = Mutex::new(None);

/// Has SIGINT and SIGTERM stop this process in order from now on. It begins a thread: not for one that enters the sandbox.
pub(super) fn watch() -> Result<(), Exit> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_err() {
        return Ok(());
    }
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    // Threads that begin later have the mask, too; programs that are started do not.
    signals.thread_block().map_err(|error| Exit::unable(format!("cannot block signals: {error}")))?;
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            let _ = STOPPED.set(if signal == Signal::SIGTERM { Stop::Terminate } else { Stop::Interrupt });
            // A second one has it kill what it has started.
            if let Some(child) = *CHILD.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = kill(child, signal);
            }
        }
    });
    Ok(())
}

/// The signal that has come.
pub(super) fn stop() -> Option<Stop> {
    STOPPED.get().copied()
}

/// Runs a command to its end; signals are passed on to it. A terminal's Ctrl-C must not reach it twice, so it has a process group
/// of its own.
pub(super) fn status(command: &mut Command) -> io::Result<ExitStatus> {
    let mut child = command.process_group(0).spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let register = |pid| *CHILD.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    register(Some(pid));
    // One that came before.
    if let Some(stop) = stop() {
        let _ = kill(pid, stop.signal());
    }
    let status = child.wait();
    register(None);
    status
}
