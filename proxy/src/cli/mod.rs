//! The command line: what the operator typed, checked, as a [`Config`](crate::config::Config).

pub mod render;
pub mod settings;

mod cleanup;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use settings::Settings;

/// A Kubernetes service proxy.
#[derive(Debug, Parser)]
#[command(name = "svcproxy", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
#[command(
    override_usage = "svcproxy --manifests DIR [FLAGS]\n       svcproxy render --manifests DIR [FLAGS]\n       svcproxy --cleanup"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
    /// Remove everything that this proxy, or kube-proxy, has put into the packet filter, and exit
    #[arg(long)]
    cleanup: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what would be programmed, without touching the kernel
    Render(render::Render),
}

/// Does what the command line asks for. Exit status 0: done; 1: a failure at work; 2: a mistake in the command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match (&cli.command, cli.cleanup) {
        (Some(Command::Render(render)), _) => render.run(),
        (None, true) => cleanup::run(&cli.settings),
        (None, false) => run::run(&cli.settings),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint_line(&format!("svcproxy: {error:#}"));
            if error.is::<settings::UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

#[allow(clippy::print_stderr, reason = "the last word to the person at the terminal")]
fn eprint_line(line: &str) {
    eprintln!("{line}");
}
