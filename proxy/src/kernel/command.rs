//! Child processes: run, fed, and never left behind.
#![allow(unsafe_code, reason = "prctl(2) between fork and exec, the one way to make a child die with its parent")]

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How often a child that keeps its pipes open is asked whether it has ended: a process that it started may hold them.
const LOOK: Duration = Duration::from_millis(100);
/// The longest pause between two looks at a child that has closed its pipes: it ends within microseconds.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// How long a killed child may take to end. One that the kernel holds in an uninterruptible wait takes longer.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Runs a command to its end with `input` on its standard input. Its pipes are served together, so that a child may write
/// before it has read everything.
///
/// The child gets SIGKILL when this thread's process dies: an `iptables-restore` of a killed proxy that commits
/// late would undo what the next proxy has written.
///
/// # Errors
/// When it cannot be started or fed; of kind `TimedOut` when it has not ended within `limit`: its process group is killed
/// then. Its exit status is in the output.
pub fn run(program: &str, arguments: &[&str], input: Option<&str>, limit: Duration) -> io::Result<Output> {
    execute(Command::new(program).args(arguments), input, limit)
}

/// As [`run`], without input and with more variables in its environment.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    program: &str,
    arguments: &[&str],
    environment: &[(String, String)],
    limit: Duration,
) -> io::Result<Output> {
    let environment = environment.iter().map(|(name, value)| (name, value));
    execute(Command::new(program).args(arguments).envs(environment), None, limit)
}

fn execute(command: &mut Command, input: Option<&str>, limit: Duration) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    // SAFETY: prctl(PR_SET_PDEATHSIG) is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    let mut child = command.spawn()?;
    let result = attend(&mut child, input.unwrap_or_default().as_bytes(), Instant::now() + limit);
    if result.is_err() {
        end(&mut child);
    }
    result
}

/// Serves the pipes until the child has ended.
fn attend(child: &mut Child, input: &[u8], deadline: Instant) -> io::Result<Output> {
    let mut feed = Feed { pipe: child.stdin.take(), rest: input };
    let mut outputs = [Drain::new(child.stdout.take()), Drain::new(child.stderr.take())];
    for pipe in [feed.fd(), outputs[0].fd(), outputs[1].fd()].into_iter().flatten() {
        fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    feed.write()?;
    let mut ended = None;
    while ended.is_none() && outputs.iter().any(|output| output.pipe.is_some()) {
        let pipes = [(feed.fd(), PollFlags::POLLOUT)].into_iter();
        let pipes = pipes.chain(outputs.iter().map(|output| (output.fd(), PollFlags::POLLIN)));
        let mut pipes: Vec<PollFd> = pipes.filter_map(|(fd, events)| Some(PollFd::new(fd?, events))).collect();
        let wait = remaining(deadline)?.min(LOOK);
        let ready = match poll(&mut pipes, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO)) {
            Err(nix::Error::EINTR) => continue,
            result => result?,
        };
        if ready == 0 {
            ended = child.try_wait()?;
        }
        feed.write()?;
        outputs.iter_mut().try_for_each(Drain::read)?;
    }
    drop(feed);
    let status = match ended {
        Some(status) => status,
        None => wait(child, deadline)?.ok_or_else(late)?,
    };
    let [stdout, stderr] = outputs.map(|output| output.bytes);
    Ok(Output { status, stdout, stderr })
}

/// Kills the child with all that it started, and reaps it.
fn end(child: &mut Child) {
    if let Ok(id) = i32::try_from(child.id()) {
        // It may have ended already.
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
    let _ = wait(child, Instant::now() + LAST_WAIT);
}

/// Waits for the end of a child that has nothing more to say; `None` if it is not there by the deadline.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let rest = deadline.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(late()) } else { Ok(rest) }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not end in time")
}

/// What the child is still to read.
struct Feed<'a> {
    pipe: Option<ChildStdin>,
    rest: &'a [u8],
}

impl Feed<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Writes what fits; closes the pipe at the end. A child that stops reading (a syntax error in the middle) closes it
    /// first; its exit status says more.
    fn write(&mut self) -> io::Result<()> {
        while let Some(pipe) = &mut self.pipe {
            if self.rest.is_empty() {
                self.pipe = None;
                break;
            }
            match pipe.write(self.rest) {
                Ok(count) => self.rest = self.rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.pipe = None,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What the child says.
struct Drain<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
}

impl Drain<Box<dyn Pipe>> {
    fn new(pipe: Option<impl Pipe + 'static>) -> Self {
        Drain { pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Pipe>), bytes: Vec::new() }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is there.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match pipe.read_to_end(&mut self.bytes) {
            Ok(_) => self.pipe = None,
            // What had come before is kept.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// A readable end of a pipe.
trait Pipe: Read + AsFd {}

impl<T: Read + AsFd> Pipe for T {}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str, input: Option<&str>, limit: Duration) -> io::Result<Output> {
        run("/bin/sh", &["-c", script], input, limit)
    }

    #[test]
    fn a_child_may_write_more_than_a_pipe_holds_before_it_reads() {
        // A pipe holds 64 KiB (pipe(7)); the input is as large, so that writing it first would wait for ever.
        let input = "x".repeat(1 << 20);
        let script = "head -c 1000000 /dev/zero | tr '\\0' y; head -c 200000 /dev/zero >&2; cat; exit 3";
        let output = shell(script, Some(&input), PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), output.stderr.len()), (1_000_000 + (1 << 20), 200_000));
        assert!(output.stdout.ends_with(b"yx".get(1..).unwrap()));
    }

    #[test]
    fn a_child_that_stops_reading_is_judged_by_its_status() {
        let output = shell("exec <&-; exit 2", Some(&"x".repeat(1 << 20)), PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(2));
    }

    #[test]
    fn a_child_that_does_not_end_is_killed_with_its_own_children() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        // The last one would outlive its parent; none of them reads, one keeps the output open.
        let script = format!("sleep 1000 & echo $! >{0}; echo $$ >>{0}; echo begun; wait", pids.display());
        let error = shell(&script, Some(&"x".repeat(1 << 20)), Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let pids = std::fs::read_to_string(pids).unwrap();
        assert_eq!(pids.lines().count(), 2, "{pids}");
        let deadline = Instant::now() + PATIENCE;
        for pid in pids.lines() {
            // The grandchild is reaped by another; until then it is a zombie.
            let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            while !stat().is_empty() && !stat().contains(") Z ") {
                assert!(Instant::now() < deadline, "{pid} goes on");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    #[test]
    fn a_child_that_has_ended_is_not_waited_for_because_another_holds_its_pipes() {
        let output = shell("sleep 1000 & echo $!", None, PATIENCE).unwrap();
        let left: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        nix::sys::signal::kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
        assert!(output.status.success());
    }
}
