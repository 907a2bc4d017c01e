//! Child processes: run, fed, and never left behind.
#![allow(unsafe_code, reason = "prctl(2) between fork and exec, the one way to make a child die with its parent")]

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// Runs a command to its end with `input` on its standard input.
///
/// The child gets SIGKILL when this thread's process dies: an `iptables-restore` of a killed proxy that commits
/// late would undo what the next proxy has written.
///
/// # Errors
/// When it cannot be started or fed; its exit status is in the output.
pub fn run(program: &str, arguments: &[&str], input: Option<&str>) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    // SAFETY: prctl(PR_SET_PDEATHSIG) is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    let mut child = command.spawn()?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // A child that stops reading (a syntax error in the middle) closes the pipe; its exit status says more.
        match stdin.write_all(input.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    child.wait_with_output()
}
