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
    let archive = archive(image, job).map_err(VmError::io("putting the microVM's archive together"))?;
    let console = memory("console").map_err(VmError::io("making the microVM's console"))?;
    let boot = Boot {
        kernel: image.kernel(),
        archive: inherited(&archive),
        program: job.program.clone(),
        console: inherited(&console),
        clock,
        memory: qemu::MEMORY,
    };
    let mut guest = Guest::new(start(program, &qemu::arguments(&boot))?, console);
    let end = Instant::now() + deadline;
    let mut console = Console::default();
    loop {
        // Asked first: what it wrote before its end is then all there.
        let is_over = guest.is_over();
        let came = guest.news().map_err(VmError::io("reading the microVM's console"))?;
        for line in console.feed(&came) {
            progress(&line);
        }
        if let Some(ended) = console.ended() {
            return Ok(ended);
        }
        if stopped() {
            return Err(VmError::Stopped);
        }
        let why = match is_over {
            true => guest.why_it_ended(&console),
            false if Instant::now() >= end => {
                format!("the microVM did not come to its end within {} s", deadline.as_secs())
            }
            false => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        return Err(VmError::Guest { why, console: console.tail() });
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
    let (name, first) = program.command.split_first().ok_or_else(|| VmError::Qemu("no QEMU is named".to_owned()))?;
    let mut command = Command::new(name);
    command.args(first).args(arguments).envs(program.env.iter().cloned());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
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
