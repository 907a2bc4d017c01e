//! The microVM cache, and guests for svclab subcommands other than runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use svclab_microvm::cache::Cache;
use svclab_microvm::image::Image;
use svclab_microvm::job::GuestJob;
use svclab_microvm::kernels::Kernel;
use svclab_microvm::qemu::{Clock, QemuProgram};
use svclab_microvm::{VmError, kvm, launch};

use super::NAME;
use crate::exit::Exit;

/// Announces each download with its size on standard error.
pub(crate) fn open_cache(folder: Option<&Path>) -> Result<Cache, Exit> {
    let cache = Cache::open(folder).map_err(|error| Exit::unable(error.to_string()))?;
    Ok(cache.reporting(|line| eprintln!("{NAME}: {line}")))
}

/// Boots `kernel` with IPVS and these programs in `/usr/bin`, runs svclab with `args`, returns the exit status.
pub(crate) fn boot(
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
