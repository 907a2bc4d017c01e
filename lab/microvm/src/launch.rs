//! Runs QEMU and reads its console. QEMU dies with the thread that started it; archive and console are memory of this
//! process.

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
use super::job::GuestJob;
use super::qemu::{self, Boot, Clock, QemuProgram};

pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Runs a job; calls `progress` with the guest's lines. Fails after `deadline` on the host's clock.
pub fn run(
    program: &QemuProgram,
    image: &Image,
    job: &GuestJob,
    clock: Clock,
    deadline: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<Ended, VmError> {
    run_unless(program, image, job, clock, deadline, progress, &|| false)
}

/// Like [`run`]; fails with [`VmError::Stopped`] once `stopped` (called several times a second) returns true.
pub fn run_unless(
    program: &QemuProgram,
    image: &Image,
    job: &GuestJob,
    clock: Clock,
    deadline: Duration,
    progress: &mut dyn FnMut(&str),
    stopped: &dyn Fn() -> bool,
) -> Result<Ended, VmError> {
    let end = Instant::now() + deadline;
    let late = || (Instant::now() >= end).then_some(deadline);
    BootedVm::boot(program, image, job, clock, None)?.attend(progress, &mut || match stopped() {
        true => Err(VmError::Stopped),
        false => Ok(late()),
    })
}

/// A microVM, ended on drop.
pub struct BootedVm {
    guest: Guest,
    console: Console,
    /// The archive, which QEMU reads during its start.
    _archive: File,
}

impl BootedVm {
    /// Starts a microVM. `line` is the other end of a second serial line.
    pub fn boot(
        program: &QemuProgram,
        image: &Image,
        job: &GuestJob,
        clock: Clock,
        line: Option<OwnedFd>,
    ) -> Result<BootedVm, VmError> {
        let archive = archive(image, job).map_err(VmError::io("putting the microVM's archive together"))?;
        let console = memory_file("console").map_err(VmError::io("making the microVM's console"))?;
        let boot = Boot {
            kernel: image.kernel(),
            archive: inherited_path(&archive),
            program: job.program.clone(),
            console: inherited_path(&console),
            line: line.is_some(),
            clock,
            memory: qemu::MEMORY,
        };
        let child = start_with(program, &qemu::arguments(&boot), line)?;
        Ok(BootedVm { guest: Guest::new(child, console), console: Console::default(), _archive: archive })
    }

    /// Waits for the job; calls `progress` with the guest's lines. `look`, called several times a second, returns an
    /// exceeded deadline or fails.
    pub fn attend(
        mut self,
        progress: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<Option<Duration>, VmError>,
    ) -> Result<Ended, VmError> {
        loop {
            let is_over = self.guest.is_over();
            let came = self.guest.new_output().map_err(VmError::io("reading the microVM's console"))?;
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
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
            };
            return Err(VmError::Guest { why, console: self.console.tail() });
        }
    }
}

/// A QEMU process, killed on drop.
pub(super) struct Guest {
    child: Child,
    line: File,
    read: u64,
}

impl Guest {
    pub(super) fn new(child: Child, line: File) -> Guest {
        Guest { child, line, read: 0 }
    }

    pub(super) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn new_output(&mut self) -> io::Result<Vec<u8>> {
        let (mut output, mut piece) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let length = self.line.read_at(&mut piece, self.read)?;
            if length == 0 {
                return Ok(output);
            }
            self.read += length as u64;
            output.extend(&piece[..length]);
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn start(program: &QemuProgram, arguments: &[String]) -> Result<Child, VmError> {
    start_with(program, arguments, None)
}

fn start_with(program: &QemuProgram, arguments: &[String], line: Option<OwnedFd>) -> Result<Child, VmError> {
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

fn archive(image: &Image, job: &GuestJob) -> io::Result<File> {
    let mut archive = memory_file("archive")?;
    io::copy(&mut File::open(image.archive())?, &mut archive)?;
    archive.write_all(&job.archive()?)?;
    Ok(archive)
}

/// Creates a file in memory that children inherit.
pub(super) fn memory_file(name: &str) -> io::Result<File> {
    let descriptor: OwnedFd = memfd_create(name, MFdFlags::empty())?;
    Ok(File::from(descriptor))
}

pub(super) fn inherited_path(file: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}
