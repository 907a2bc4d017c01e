//! Signals that end a run, which then reports its work and exits with 128 plus the signal's number, like a shell.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::exit::Exit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
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

    pub(crate) fn name(self) -> &'static str {
        self.signal().as_str()
    }

    pub(crate) fn exit(self) -> Exit {
        let number = u8::try_from(self.signal() as i32).unwrap_or(0);
        Exit { status: 128 + number, message: format!("ended by {}", self.name()) }
    }
}

static STOPPED: OnceLock<Stop> = OnceLock::new();
/// The children that this process waits for.
static CHILDREN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<Pid>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles SIGINT and SIGTERM in a thread: not for a process that enters the sandbox.
pub(crate) fn watch() -> Result<(), Exit> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_err() {
        return Ok(());
    }
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    // Later threads inherit the mask; `Command` resets it for children.
    signals.thread_block().map_err(|error| Exit::unable(format!("cannot block signals: {error}")))?;
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            let _ = STOPPED.set(if signal == Signal::SIGTERM { Stop::Terminate } else { Stop::Interrupt });
            // At the second signal a child kills its own children.
            for child in children().iter() {
                let _ = kill(*child, signal);
            }
        }
    });
    Ok(())
}

pub(crate) fn stop() -> Option<Stop> {
    STOPPED.get().copied()
}

/// Runs a command and passes signals on to it. The command has its own process group, so that Ctrl-C reaches it only
/// once.
pub(crate) fn status(command: &mut Command) -> io::Result<ExitStatus> {
    let mut child = command.process_group(0).spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    children().push(pid);
    // The signal preceded the command's start.
    if let Some(stop) = stop() {
        let _ = kill(pid, stop.signal());
    }
    let status = child.wait();
    children().retain(|other| *other != pid);
    status
}
