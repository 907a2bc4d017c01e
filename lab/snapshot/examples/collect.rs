//! Looks at this machine, and prints what an archive of it would hold: `cargo run -p svclab-snapshot --example collect`, and with
//! a path it writes the archive there.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs::File;

use svclab_snapshot::collect::{Options, collect};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let snapshot = runtime.block_on(collect(&Options::default()));
    println!("{}", serde_json::to_string_pretty(&snapshot.manifest())?);
    if let Some(path) = std::env::args_os().nth(1) {
        snapshot.write(File::create(path)?)?;
    }
    Ok(())
}
