//! Shell completions and manual pages, generated from the definition of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::exit::Exit;
use crate::schedule::NAME;

#[derive(Args)]
pub(super) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn completion(args: &CompletionArgs) -> Result<u8, Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(0)
}

#[derive(Args)]
pub(super) struct ManArgs {
    /// An existing directory for svclab.1 and a page for each command, such as svclab-run.1.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn man(args: &ManArgs) -> Result<u8, Exit> {
    let failed = |error| Exit::usage(format!("cannot write the manual pages to {}: {error}", args.directory.display()));
    clap_mangen::generate_to(Cli::command(), &args.directory).map_err(failed)?;
    Ok(0)
}
