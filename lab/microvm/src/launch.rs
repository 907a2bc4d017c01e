//! Starts QEMU, reads what the guest sends, and ends it at the deadline. Nothing is left whatever happens: archive and
//! console are memory of this process, and QEMU dies with the thread that started it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use svclab_netns::die_with_this_process;

use super::VmError;
use super::console::{Console, Ended};
use super::image::Image;
use super::job::Job;
use super::qemu::{self, Boot, Clock, Program};

/// How often the console is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(25);

/// Runs `job` in `image` to its end; `progress` gets the guest's lines as they come.
///
/// # Errors
/// When QEMU cannot be started, and when the guest does not come to its end before `deadline` (of the host's time).
pub fn run(
    program: &Program,
    image: &Image,
    job: &Job,
    clock: Clock,
    deadline: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<Ended, VmError> {
    run_unless(program, image, job, clock, deadline, progress, &|| false)
}

/// The same until `stopped` says so; it is asked several times a second.
///
/// # Errors
/// [`VmError::Stopped`] then, else as for [`run`].
pub fn run_unless(
    program: &Program,
    image: &Image,
    job: &Job,
    clock: Clock,
    deadline: Duration,
    progress: &mut dyn FnMut(&str),
    stopped: &dyn Fn() -> bool,
) -> Result<Ended, VmError> {
    let end = Instant::now() + deadline;
    let late = || (Instant::now() >= end).then_some(deadline);
    Machine::boot(program, image, job, clock, None)?.attend(progress, &mut || match stopped() {
        true => Err(VmError::Stopped),
        false => Ok(late()),
    })
}

/// A microVM with a job; dropping it ends it.
pub struct Machine {
    guest: Guest,
    console: Console,
    /// QEMU reads it while it starts.
    _archive: File,
}

impl Machine {
    /// Boots `image` with `job`; `line` is the other end of a second serial line.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn boot(
        program: &Program,
        image: &Image,
        job: &Job,
        clock: Clock,
        line: Option<OwnedFd>,
    ) -> Result<Machine, VmError> {
        let archive = archive(image, job).map_err(VmError::io("putting the microVM's archive together"))?;
        let console = memory("console").map_err(VmError::io("making the microVM's console"))?;
        let boot = Boot {
            kernel: image.kernel(),
            archive: inherited(&archive),
            program: job.program.clone(),
            console: inherited(&console),
            line: line.is_some(),
            clock,
            memory: qemu::MEMORY,
        };
        let child = start_with(program, &qemu::arguments(&boot), line)?;
        Ok(Machine { guest: Guest::new(child, console), console: Console::default(), _archive: archive })
    }

    /// Waits for the job's end; `progress` gets the guest's lines as they come. `look` is called several times a second; the time
    /// that it answers with is one that the guest should not have taken.
    ///
    /// # Errors
    /// What `look` fails with, and when the guest does not come to its end.
    pub fn attend(
        mut self,
        progress: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<Option<Duration>, VmError>,
    ) -> Result<Ended, VmError> {
        loop {
            // Asked first: what it wrote before its end is then all there.
            let is_over = self.guest.is_over();
            let came = self.guest.news().map_err(VmError::io("reading the microVM's console"))?;
            for line in self.console.feed(&came) {
                progress(&line);
            }
            if let Some(ended) = self.console.ended() {
                return Ok(ended);
            }
            let late = look()?;
            let why = match (is_over, late) {
                (true, _) => self.guest.why_it_ended(&self.console),
                (false, Some(late)) => {
                    format!("the microVM did not come to its end within {} s", late.as_secs())
                }
                (false, None) => {
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            return Err(VmError::Guest { why, console: self.console.tail() });
        }
    }
}

/// A running QEMU; dropping it ends it.
pub(super) struct Guest {
    child: Child,
    line: File,
    read: u64,
}

impl Guest {
    /// What `child` is, which writes to `line`.
    pub(super) fn new(child: Child, line: File) -> Guest {
        Guest { child, line, read: 0 }
    }

    /// Whether it has ended, or that cannot be found out any more.
    pub(super) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// What has been written to the console since last time.
    pub(super) fn news(&mut self) -> io::Result<Vec<u8>> {
        let (mut news, mut piece) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let length = self.line.read_at(&mut piece, self.read)?;
            if length == 0 {
                return Ok(news);
            }
            self.read += length as u64;
            news.extend(&piece[..length]);
        }
    }

    fn why_it_ended(&mut self, console: &Console) -> String {
        let mut complaint = String::new();
        if let Some(errors) = &mut self.child.stderr {
            let _ = errors.take(4096).read_to_string(&mut complaint);
        }
        if let Some(panic) = console.panic() {
            return match panic.to_lowercase().contains("out of memory") {
                true => "the microVM ran out of memory".to_owned(),
                false => format!("the microVM's kernel panicked: {panic}"),
            };
        }
        if complaint.trim().is_empty() {
            "the microVM ended without a result".to_owned()
        } else {
            format!("QEMU gave up: {}", complaint.trim())
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // After the end of its job a guest powers off by itself; nothing is lost by not waiting for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts QEMU so that it dies with this thread.
pub(super) fn start(program: &Program, arguments: &[String]) -> Result<Child, VmError> {
    start_with(program, arguments, None)
}

/// The same with `line` as standard input and output.
fn start_with(program: &Program, arguments: &[String], line: Option<OwnedFd>) -> Result<Child, VmError> {
    let (name, first) = program.command.split_first().ok_or_else(|| VmError::Qemu("no QEMU is named".to_owned()))?;
    let mut command = Command::new(name);
    command.args(first).args(arguments).envs(program.env.iter().cloned());
    let (input, output) = match line {
        None => (Stdio::null(), Stdio::null()),
        Some(line) => {
            let other = line.try_clone().map_err(VmError::io("making the microVM's second serial line"))?;
            (Stdio::from(line), Stdio::from(other))
        }
    };
    command.stdin(input).stdout(output).stderr(Stdio::piped());
    die_with_this_process(&mut command);
    command.spawn().map_err(|error| VmError::Qemu(format!("cannot start QEMU ({name}): {error}")))
}

/// The image's archive with the job's behind it.
fn archive(image: &Image, job: &Job) -> io::Result<File> {
    let mut archive = memory("archive")?;
    io::copy(&mut File::open(image.archive())?, &mut archive)?;
    archive.write_all(&job.archive()?)?;
    Ok(archive)
}

/// A file in memory that children inherit.
pub(super) fn memory(name: &str) -> io::Result<File> {
    let descriptor: OwnedFd = memfd_create(name, MFdFlags::empty())?;
    Ok(File::from(descriptor))
}

/// The path by which a child opens a descriptor that it inherited.
pub(super) fn inherited(file: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}
