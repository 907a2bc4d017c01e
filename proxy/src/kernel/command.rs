//! Child processes with input and a deadline.
#![allow(unsafe_code, reason = "prctl(2) between fork and exec, the one way to make a child die with its parent")]

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

const LOOK: Duration = Duration::from_millis(100);
/// How long to read the pipes of an ended child: its own children may hold them.
const GRACE: Duration = Duration::from_millis(100);
const AT_ONCE: u64 = 1 << 20;
/// In bytes: a dump of some 2,000,000 rules.
const LONGEST_OUTPUT: usize = 512 << 20;
/// Bytes of standard error to keep from either end.
const COMPLAINT: usize = 2048;
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The process groups of unreaped children: reaping frees a group's number.
static GROUPS: Mutex<ProcessGroups> = Mutex::new(ProcessGroups { running: Vec::new(), ending: false });

struct ProcessGroups {
    running: Vec<Pid>,
    /// Whether commands may no longer start.
    ending: bool,
}

pub fn kill_all() {
    let mut groups = groups();
    groups.ending = true;
    groups.running.iter().copied().for_each(kill);
}

/// Runs a command. Reads and writes at the same time: the child may write before it has read all input.
///
/// Kills the process group when the child ends, or after `limit` (`TimedOut`). The child gets SIGKILL when this process
/// dies: a late commit of its `iptables-restore` would undo the next proxy's rules.
///
/// The output keeps only the beginning and the end of a long standard error.
pub fn run(program: &str, arguments: &[&str], input: Option<&str>, limit: Duration) -> io::Result<Output> {
    let mut input = input.map(|input| std::iter::once(input.to_owned()));
    execute(Command::new(program).args(arguments), input.as_mut().map(|input| input as InputPieces), limit)
}

pub type InputPieces<'a> = &'a mut dyn Iterator<Item = String>;

pub fn run_fed(
    program: &str,
    arguments: &[&str],
    input: Option<InputPieces<'_>>,
    limit: Duration,
) -> io::Result<Output> {
    execute(Command::new(program).args(arguments), input, limit)
}

pub fn run_with(
    program: &str,
    arguments: &[&str],
    environment: &[(String, String)],
    limit: Duration,
) -> io::Result<Output> {
    let environment = environment.iter().map(|(name, value)| (name, value));
    execute(Command::new(program).args(arguments).envs(environment), None, limit)
}

fn execute(command: &mut Command, input: Option<InputPieces<'_>>, limit: Duration) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    // SAFETY: prctl(PR_SET_PDEATHSIG) is async-signal-safe.
    unsafe {
        command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    let mut child = command.spawn()?;
    let mut nothing = std::iter::empty();
    let result = begin(&child).and_then(|()| attend(&mut child, input.unwrap_or(&mut nothing), Instant::now() + limit));
    if result.is_err() {
        let groups = groups();
        groups.running.iter().copied().filter(|one| *one == group(&child)).for_each(kill);
        drop(groups);
        // The kernel may delay the end of a killed child.
        let _ = wait(&mut child, Instant::now() + LAST_WAIT);
    }
    result
}

fn attend(child: &mut Child, input: InputPieces<'_>, deadline: Instant) -> io::Result<Output> {
    let mut feed = InputFeed { pipe: child.stdin.take(), piece: String::new(), written: 0, pieces: input };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut outputs = [
        OutputDrain::new(stdout, OutputLimit::All(LONGEST_OUTPUT)),
        OutputDrain::new(stderr, OutputLimit::Ends(COMPLAINT)),
    ];
    for pipe in [feed.fd(), outputs[0].fd(), outputs[1].fd()].into_iter().flatten() {
        fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    feed.write()?;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut next_look = Instant::now() + LOOK;
    while outputs.iter().any(|output| output.pipe.is_some()) {
        let pipes = [(feed.fd(), PollFlags::POLLOUT)].into_iter();
        let pipes = pipes.chain(outputs.iter().map(|output| (output.fd(), PollFlags::POLLIN)));
        let mut pipes: Vec<PollFd> = pipes.filter_map(|(fd, events)| Some(PollFd::new(fd?, events))).collect();
        let wait = if ended.is_some() { Duration::ZERO } else { remaining(deadline)?.min(LOOK) };
        let ready = match poll(&mut pipes, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO)) {
            Err(nix::Error::EINTR) => continue,
            result => result?,
        };
        let now = Instant::now();
        if ended.is_none() && (ready == 0 || now >= next_look) {
            ended = reap(child)?.map(|status| (status, now + GRACE));
            next_look = now + LOOK;
        }
        feed.write()?;
        let mut any = false;
        for output in &mut outputs {
            any |= output.read()?;
        }
        if ended.is_some_and(|(_, until)| !any || now >= until) {
            break;
        }
    }
    drop(feed);
    let status = match ended {
        Some((status, _)) => status,
        None => wait(child, deadline)?.ok_or_else(late)?,
    };
    let [stdout, stderr] = outputs.map(OutputDrain::finish);
    Ok(Output { status, stdout, stderr })
}

fn groups() -> MutexGuard<'static, ProcessGroups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn group(child: &Child) -> Pid {
    // Process IDs have 22 bits at most (proc(5)).
    Pid::from_raw(child.id().cast_signed())
}

fn kill(group: Pid) {
    let _ = killpg(group, Signal::SIGKILL);
}

fn begin(child: &Child) -> io::Result<()> {
    let mut groups = groups();
    groups.running.push(group(child));
    if groups.ending { Err(io::Error::new(io::ErrorKind::Interrupted, "the program ends")) } else { Ok(()) }
}

fn reap(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let group = group(child);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    if waitid(Id::Pid(group), flags).is_ok_and(|status| status == WaitStatus::StillAlive) {
        return Ok(None);
    }
    groups().running.retain(|one| {
        let ended = *one == group;
        if ended {
            kill(group);
        }
        !ended
    });
    child.try_wait()
}

/// Returns `None` after the deadline.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(status) = reap(child)? {
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

struct InputFeed<'a> {
    pipe: Option<ChildStdin>,
    piece: String,
    written: usize,
    pieces: InputPieces<'a>,
}

impl InputFeed<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Writes as much as the pipe holds. The child may close the pipe early, such as after a syntax error.
    fn write(&mut self) -> io::Result<()> {
        while let Some(pipe) = &mut self.pipe {
            let rest = self.piece.as_bytes().get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                match self.pieces.next() {
                    Some(piece) => (self.piece, self.written) = (piece, 0),
                    None => self.pipe = None,
                }
                continue;
            }
            match pipe.write(rest) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.pipe = None,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

struct OutputDrain {
    pipe: Option<Box<dyn Pipe>>,
    bytes: Vec<u8>,
    keep: OutputLimit,
    cut: usize,
}

#[derive(Clone, Copy)]
enum OutputLimit {
    All(usize),
    /// The number of bytes to keep from either end.
    Ends(usize),
}

impl OutputDrain {
    fn new(pipe: Option<impl Pipe + 'static>, keep: OutputLimit) -> Self {
        OutputDrain { pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Pipe>), bytes: Vec::new(), keep, cut: 0 }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    fn read(&mut self) -> io::Result<bool> {
        let Some(pipe) = &mut self.pipe else { return Ok(false) };
        let before = self.bytes.len();
        match pipe.by_ref().take(AT_ONCE).read_to_end(&mut self.bytes) {
            Ok(0) => self.pipe = None,
            Ok(_) => {}
            // The bytes read before are in `bytes`.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let any = self.bytes.len() > before;
        match self.keep {
            OutputLimit::All(most) if self.bytes.len() > most => {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it printed more than {most} bytes")));
            }
            OutputLimit::Ends(each) if self.bytes.len() > 4 * each => self.shorten(each),
            OutputLimit::All(_) | OutputLimit::Ends(_) => {}
        }
        Ok(any)
    }

    fn shorten(&mut self, each: usize) {
        let middle = self.bytes.len().saturating_sub(2 * each);
        self.bytes.drain(each..each + middle);
        self.cut += middle;
    }

    fn finish(mut self) -> Vec<u8> {
        let OutputLimit::Ends(each) = self.keep else { return self.bytes };
        if self.cut == 0 && self.bytes.len() <= 4 * each {
            return self.bytes;
        }
        self.shorten(each);
        let words = format!(" […{} bytes left out…] ", self.cut);
        self.bytes.splice(each..each, words.into_bytes());
        self.bytes
    }
}

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
        // More than a pipe holds (pipe(7)).
        let input = "x".repeat(1 << 20);
        let script = "head -c 1000000 /dev/zero | tr '\\0' y; head -c 200000 /dev/zero >&2; cat; exit 3";
        let output = shell(script, Some(&input), PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout.len(), 1_000_000 + (1 << 20));
        assert!(output.stdout.ends_with(b"yx".get(1..).unwrap()));
    }

    #[test]
    fn pieces_are_made_when_the_child_has_taken_those_before() {
        let (mut made, piece) = (0, "x".repeat(64 << 10));
        let mut pieces = std::iter::from_fn(|| {
            made += 1;
            (made <= 1000).then(|| piece.clone())
        });
        let script = "head -c 65536 >/dev/null; exec <&-; exit 3";
        let output = run_fed("/bin/sh", &["-c", script], Some(&mut pieces), PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(made <= 5, "{made}");
        let mut pieces = (0..1000).map(|number| format!("{number}\n"));
        let output = run_fed("/bin/cat", &[], Some(&mut pieces), PATIENCE).unwrap();
        assert_eq!(output.stdout, (0..1000).map(|number| format!("{number}\n")).collect::<String>().into_bytes());
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
        // The first process keeps the output open.
        let script = format!("sleep 1000 & echo $! >{0}; echo $$ >>{0}; echo begun; wait", pids.display());
        let error = shell(&script, Some(&"x".repeat(1 << 20)), Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let pids = std::fs::read_to_string(pids).unwrap();
        assert_eq!(pids.lines().count(), 2, "{pids}");
        pids.lines().for_each(ends);
    }

    fn ends(pid: &str) {
        let deadline = Instant::now() + PATIENCE;
        // Until its parent reaps it, a process is a zombie.
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !stat().is_empty() && !stat().contains(") Z ") {
            assert!(Instant::now() < deadline, "{pid} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn of_long_complaints_the_beginning_and_the_end_are_kept() {
        let long = "echo begin >&2; head -c 200000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1";
        let said = String::from_utf8(shell(long, None, PATIENCE).unwrap().stderr).unwrap();
        assert!(said.starts_with("begin\nxx") && said.ends_with("xxend\n"), "{said}");
        assert!(said.len() < 5000 && said.contains(" […195914 bytes left out…] "), "{}: {said}", said.len());
        let short = shell("head -c 8000 /dev/zero >&2", None, PATIENCE).unwrap();
        assert_eq!(short.stderr.len(), 8000);
    }

    #[test]
    fn what_a_child_leaves_is_killed_though_it_writes_without_end() {
        let output = shell("yes >&2 & echo $!", None, PATIENCE).unwrap();
        assert!(output.status.success() && output.stderr.len() < 9000);
        ends(str::from_utf8(&output.stdout).unwrap().trim());
    }

    #[test]
    fn output_without_end_is_an_error() {
        let mut output = OutputDrain::new(std::fs::File::open("/dev/zero").ok(), OutputLimit::All(5_000_000));
        let error = std::iter::repeat_with(|| output.read()).take(10).find_map(Result::err).unwrap();
        assert_eq!(error.to_string(), "it printed more than 5000000 bytes");
    }

    #[test]
    fn what_a_child_leaves_is_killed_whether_it_holds_the_pipes_or_not() {
        for script in ["sleep 1000 & echo $!", "sleep 1000 >&- 2>&- & echo $!"] {
            let output = shell(script, None, PATIENCE).unwrap();
            assert!(output.status.success());
            ends(str::from_utf8(&output.stdout).unwrap().trim());
        }
    }
}
