//! `svcproxy check`: tells before a start whether this node and configuration will do. Runs the code of the start up to its first
//! write, so that both agree, and changes nothing.

mod api;
mod kube_proxy;
mod node;
mod report;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use self::report::CheckReport;
use super::settings::Settings;
use crate::daemon::StopSignals;

/// The pause between two checks of `--wait`.
const PAUSE: Duration = Duration::from_secs(2);

/// Prints one line per check: `ok`, `warning` or `problem`, and what to do. Exit status 0: fine; 1: a problem; 3: warnings only.
#[derive(Debug, Args)]
pub struct Check {
    /// Check again every 2 seconds until there is no problem, and then exit with status 0 even with warnings: for an
    /// init container
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    settings: Settings,
}

impl Check {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        #[cfg(debug_assertions)]
        let _active = self.settings.mutant()?.map(crate::mutants::activate_for_thread);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let status = if self.wait { self.wait(&runtime) } else { self.once(&runtime) };
        // A plugin or file that hangs must not delay the end.
        runtime.shutdown_background();
        status
    }

    fn once(&self, runtime: &Runtime) -> anyhow::Result<ExitCode> {
        let report = self.report(runtime);
        print(&report.to_string())?;
        Ok(report.status())
    }

    fn wait(&self, runtime: &Runtime) -> anyhow::Result<ExitCode> {
        // The kernel ignores SIGTERM for the first process of a container unless it is handled.
        let mut stop = runtime.block_on(async { StopSignals::at_signals() });
        let mut printed = String::new();
        loop {
            let report = self.report(runtime);
            let text = report.to_string();
            if text != printed {
                print(&text)?;
                printed = text;
            }
            if !report.has_problem() {
                return Ok(ExitCode::SUCCESS);
            }
            if runtime.block_on(async { timeout(PAUSE, stop.wait()).await }).is_ok() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }

    fn report(&self, runtime: &Runtime) -> CheckReport {
        let mut report = CheckReport::default();
        if let Some((mut resolved, origin)) = node::configuration(&mut report, &self.settings) {
            api::check(&mut report, runtime, &resolved.config, &origin);
            node::other_proxies(&mut report);
            node::kernel(&mut report, &mut resolved.config);
            node::ports(&mut report, runtime, &resolved.config);
        }
        report
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
