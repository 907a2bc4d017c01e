//! `svclab kernels`

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use crate::microvm::cache::Cache;
use crate::microvm::kernels::{Kernel, PACKAGED};

#[derive(Args)]
pub(super) struct KernelsArgs {
    /// Where fetched packages and built images are kept.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

pub(super) fn kernels(args: &KernelsArgs) -> Result<u8, Exit> {
    let unable = |error: crate::microvm::VmError| Exit::unable(error.to_string());
    let cache = Cache::open(args.cache_dir.as_deref()).map_err(unable)?;
    println!("host");
    for packaged in &PACKAGED {
        let here = if Kernel::Packaged(packaged).is_here(&cache) { "in the cache" } else { "not fetched yet" };
        println!("{:12} {here}", packaged.name);
    }
    Ok(0)
}
