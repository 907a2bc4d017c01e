//! Prints an archive of this machine: `cargo run -p svclab-snapshot --example collect`; with a path writes it.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs::File;

use svclab_snapshot::collect::{CollectOptions, collect};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let snapshot = runtime.block_on(collect(&CollectOptions::default()));
    println!("{}", serde_json::to_string_pretty(&snapshot.manifest())?);
    if let Some(path) = std::env::args_os().nth(1) {
        snapshot.write(File::create(path)?)?;
    }
    Ok(())
}
