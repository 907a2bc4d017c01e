//! Work in a microVM that is no run of scenarios: svclab itself, or a program that is brought along, with their output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use svclab_microvm::cache::Cache;
use svclab_microvm::image::Image;
use svclab_microvm::job::GuestJob;
use svclab_microvm::kernels::Kernel;
use svclab_microvm::qemu::{Clock, QemuProgram};
use svclab_microvm::{VmError, kvm, launch};

use super::{Exit, NAME};

#[derive(Args)]
pub(super) struct GuestRunArgs {
    /// The kernel: `debian-6.1`, `debian-6.12`, or the path of a kernel image with its modules.
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<Kernel>,
    /// Where fetched packages and built images are kept [default: $SVCLAB_CACHE, or svclab in the user's cache directory].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// How long the microVM may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    deadline: u64,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

#[derive(Args)]
pub(super) struct GuestExecArgs {
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// Opens the cache of microVMs; each download into it is announced on standard error, with its size.
pub(super) fn open_cache(folder: Option<&Path>) -> Result<Cache, Exit> {
    let cache = Cache::open(folder).map_err(|error| Exit::unable(error.to_string()))?;
    Ok(cache.reporting(|line| eprintln!("{NAME}: {line}")))
}

/// Boots `kernel` with these programs in `/usr/bin` and IPVS, and has svclab do as `args` say; `progress` gets its lines.
/// Returns its exit status.
pub(super) fn boot(
    cache_dir: Option<&Path>,
    kernel: &Kernel,
    mut programs: BTreeMap<String, PathBuf>,
    args: Vec<String>,
    deadline: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<u8, Exit> {
    let unable = |error: VmError| Exit::unable(error.to_string());
    let own = std::env::current_exe().map_err(|error| Exit::unable(format!("cannot find svclab itself: {error}")))?;
    programs.insert(NAME.to_owned(), own);
    let cache = open_cache(cache_dir)?;
    let image = Image::get(&cache, kernel, &programs).map_err(unable)?;
    let program = QemuProgram::find(&cache).map_err(unable)?;
    let kvm = kvm::works(&cache, &program, &image.kernel());
    let how = if kvm { "KVM" } else { "fast" };
    eprintln!("kernel: {kernel} in a microVM ({how}, image {})", &image.hash()[..12]);
    let job = GuestJob { program: NAME.to_owned(), args, ipvs: true, ..GuestJob::default() };
    let ended = launch::run(&program, &image, &job, Clock::Host { kvm }, deadline, progress).map_err(unable)?;
    Ok(ended.status)
}

/// Outside: boots with the program.
pub(super) fn run(args: &GuestRunArgs) -> Result<u8, Exit> {
    let program = PathBuf::from(&args.command[0]);
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut line = vec!["guest-exec".to_owned(), format!("/usr/bin/{name}")];
    line.extend(args.command[1..].iter().cloned());
    let kernel = args.kernel.clone().unwrap_or_default();
    let deadline = Duration::from_secs(args.deadline);
    let programs = BTreeMap::from([(name, program)]);
    boot(args.cache_dir.as_deref(), &kernel, programs, line, deadline, &mut |line| println!("{line}"))
}

/// Inside: runs the program; all it says goes to standard error, which is what comes out of the microVM.
pub(super) fn exec(args: &GuestExecArgs) -> Result<u8, Exit> {
    let unable = |error: std::io::Error| Exit::unable(format!("cannot run {}: {error}", args.command[0]));
    let errors = || std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned().map_err(unable);
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(Stdio::null()).stdout(errors()?);
    let status = command.status().map_err(unable)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(super::UNABLE))
}
