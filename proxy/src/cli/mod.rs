pub mod check;
pub mod render;
pub mod settings;

mod cleanup;
mod config_flags;
mod config_watch;
mod flagz;
mod kernel_settings;
mod leftovers;
mod log_queue;
mod logging;
mod open_mode;
mod other_variant;
mod run;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::kernel::limits;
use settings::Settings;

/// Release builds include the commit.
const VERSION: &str = env!("SVCPROXY_VERSION");

/// A Kubernetes service proxy.
#[derive(Debug, Parser)]
#[command(name = "svcproxy", version = VERSION, args_conflicts_with_subcommands = true, max_term_width = 100)]
#[command(
    override_usage = "svcproxy --config FILE [FLAGS]\n       svcproxy --kubeconfig FILE [FLAGS]\n       svcproxy --manifests DIR [FLAGS]\n       svcproxy check --config FILE [FLAGS]\n       svcproxy render --manifests DIR [FLAGS]\n       svcproxy --cleanup"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    settings: Settings,
    /// Remove all packet-filter state of this proxy or kube-proxy, and exit
    #[arg(long)]
    cleanup: bool,
    /// Do what needs full root privileges, and exit; afterwards the proxy needs only CAP_NET_ADMIN
    #[arg(long)]
    init_only: bool,
    /// Write the configuration, with its defaults, to this file and exit
    #[arg(long, value_name = "FILE")]
    write_config_to: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Tell whether this node and configuration will do, without changing anything
    Check(check::Check),
    /// Print the rules that would be programmed, without touching the kernel
    Render(render::Render),
}

/// Exit status 0: success; 1: failure; 2: wrong command line or configuration; 3: `check` has warnings.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    limits::survive_file_size_limit();
    let result = match &cli.command {
        Some(Subcommands::Check(check)) => check.run(),
        Some(Subcommands::Render(render)) => render.run().map(|()| ExitCode::SUCCESS),
        None => cli.run().map(|()| ExitCode::SUCCESS),
    };
    let status = match result {
        Ok(status) => status,
        Err(error) => {
            logging::last_line(&format!("svcproxy: {}", error_sentence(&error)));
            if error.is::<settings::UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    };
    logging::flush();
    status
}

impl Cli {
    /// As in kube-proxy, first writes the configuration, then cleans up, prepares or runs.
    fn run(&self) -> anyhow::Result<()> {
        #[cfg(debug_assertions)]
        if let Some(mutant) = self.settings.mutant()? {
            crate::mutants::activate(mutant);
        }
        let resolved = self.settings.resolve()?;
        logging::start(&resolved.configuration.logging);
        for warning in &resolved.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(file) = &self.write_config_to {
            let text = resolved.configuration.to_yaml().map_err(anyhow::Error::msg)?;
            std::fs::write(file, text)
                .with_context(|| format!("cannot write the configuration to {}", file.display()))?;
            tracing::info!(file = %file.display(), "wrote the configuration");
            return Ok(());
        }
        if self.cleanup {
            return cleanup::run(&resolved.config);
        }
        if self.init_only {
            return run::prepare(resolved);
        }
        let origin = self.settings.origin(&resolved)?;
        let settings = self.settings.clone();
        run::run(resolved, &origin, move || {
            let resolved = settings.resolve()?;
            settings.origin(&resolved)?;
            Ok(())
        })
    }
}

fn error_sentence(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(error.to_string(), |told, cause| if told.ends_with(&cause) { told } else { format!("{told}: {cause}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ListenError;

    #[test]
    fn a_cause_is_printed_once() {
        let refused = || std::io::Error::from_raw_os_error(98);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 10256));
        let taken = ListenError { address, purpose: "/healthz".into(), source: refused() };
        let told = error_sentence(&anyhow::Error::new(taken));
        assert_eq!(told, "cannot listen on 127.0.0.1:10256 for /healthz: Address already in use (os error 98)");
        let told = error_sentence(&anyhow::Error::new(refused()).context("cannot watch").context("cannot start"));
        assert_eq!(told, "cannot start: cannot watch: Address already in use (os error 98)");
    }
}
