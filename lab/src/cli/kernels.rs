use std::path::PathBuf;

use clap::Args;
use svclab_microvm::VmError;
use svclab_microvm::kernels::{Kernel, PACKAGED};
use svclab_microvm::probe::Abilities;

use crate::exit::Exit;
use crate::schedule::abilities;
use crate::schedule::guest::open_cache;

#[derive(Args)]
pub(super) struct KernelsArgs {
    /// Fetch the kernels that are not in the cache.
    #[arg(long)]
    fetch: bool,
    /// Where fetched packages and built images are kept [default: $SVCLAB_CACHE, or svclab in the user's cache directory].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct ProbeArgs {
    /// The file for the result (`-`: standard output).
    pub(super) file: PathBuf,
}

pub(super) fn kernels(args: &KernelsArgs) -> Result<u8, Exit> {
    let unable = |error: VmError| Exit::unable(error.to_string());
    let cache = open_cache(args.cache_dir.as_deref())?;
    match abilities::of_host() {
        Ok(abilities) => show("host", &abilities),
        Err(exit) => println!("host\n  {}", exit.message),
    }
    for packaged in &PACKAGED {
        let kernel = Kernel::Packaged(packaged);
        if args.fetch || kernel.is_cached(&cache) {
            show(packaged.name, &abilities::of_guest(&cache, &kernel).map_err(unable)?);
        } else {
            println!("{}\n  not fetched yet: `svclab kernels --fetch`, or the first run, does so", packaged.name);
        }
    }
    Ok(0)
}

fn show(name: &str, abilities: &Abilities) {
    println!("{name} ({})", abilities.release);
    for line in abilities.lines() {
        println!("  {line}");
    }
}
