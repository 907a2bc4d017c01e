use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use svclab_microvm::kernels::Kernel;

use crate::exit::{Exit, status_of};
use crate::schedule::guest::boot;

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

/// Runs the program in the guest. A microVM passes only standard error to the host, so the output goes there.
pub(super) fn exec(args: &GuestExecArgs) -> Result<u8, Exit> {
    let unable = |error: std::io::Error| Exit::unable(format!("cannot run {}: {error}", args.command[0]));
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(Stdio::null()).stdout(std::io::stderr());
    command.status().map(status_of).map_err(unable)
}
