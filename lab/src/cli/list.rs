//! `svclab list`

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Exit, USAGE};
use crate::scenario::load;

#[derive(Args)]
pub(super) struct ListArgs {
    /// The folder to look in.
    #[arg(default_value = "scenarios", value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn list(args: &ListArgs) -> Result<u8, Exit> {
    let mut files = Vec::new();
    collect(&args.directory, &mut files)
        .map_err(|error| Exit::usage(format!("cannot read {}: {error}", args.directory.display())))?;
    files.sort();
    let mut status = 0;
    for file in files {
        let name = file.strip_prefix(&args.directory).unwrap_or(&file).with_extension("");
        match load(&file, 0) {
            Ok(scenario) => {
                let modes: Vec<String> = scenario.modes.iter().map(ToString::to_string).collect();
                println!("{:<28} {:<9} {}", name.display(), modes.join(","), scenario.about);
            }
            Err(error) => {
                eprintln!("{error}");
                status = USAGE;
            }
        }
    }
    Ok(status)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}
