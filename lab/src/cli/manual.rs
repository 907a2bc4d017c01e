//! Shell completions and manual pages, generated from the definition of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use super::Cli;
use crate::exit::Exit;
use crate::schedule::NAME;

/// The variable with the name of the shell that asks.
const ASKS: &str = "COMPLETE";

/// Answers a shell's question for completions, and ends the program; returns if no shell asks.
pub(super) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command).var(ASKS).complete();
}

#[derive(Args)]
pub(super) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn completion(args: &CompletionArgs) -> Result<u8, Exit> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    let shell = shells.completer(&args.shell.to_string()).ok_or_else(|| Exit::usage("no completion for this shell"))?;
    let written = shell.write_registration(ASKS, NAME, NAME, NAME, &mut script);
    written.map_err(|error| Exit::unable(format!("cannot write the completion: {error}")))?;
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
