//! Runs svcproxy's wrong proxies (`svcproxy::mutants`) against the scenarios, in the simulator and on the kernel, and
//! makes the table of docs/mutants.md.

mod kernel;
mod simulator;

use std::path::PathBuf;

use svclab::conformance::mutants::MutantRow;
use svclab::mode::Mode;
use svclab::scenario::Scenario;
use svcproxy::config::Mode as ProxyMode;
use svcproxy::mutants::{Mutant, SeenBy};

pub use kernel::KernelError;

/// What judges the wrong proxies.
#[derive(Debug)]
pub struct ScenarioSuite {
    pub scenarios: Vec<Scenario>,
    /// The folder of the built `svclab` and `svcproxy`.
    pub programs: PathBuf,
    /// Whether scenarios run on the kernel, too.
    pub kernel: bool,
}

const fn lab_mode(mode: ProxyMode) -> Mode {
    match mode {
        ProxyMode::Iptables => Mode::Iptables,
        ProxyMode::Ipvs => Mode::Ipvs,
        ProxyMode::Nftables => Mode::Nftables,
        ProxyMode::Userspace => Mode::Userspace,
    }
}

impl ScenarioSuite {
    /// Returns the row of a wrong proxy: the scenario of its mistake in the simulator and on the kernel, then every
    /// other one in the simulator.
    ///
    /// # Errors
    /// `svclab` cannot be run, or writes no report.
    pub fn judge(&self, mutant: &'static Mutant) -> Result<MutantRow, KernelError> {
        let row = |mode: String| MutantRow {
            id: mutant.id.to_owned(),
            does: mutant.does.to_owned(),
            mode,
            ..MutantRow::default()
        };
        let expected = match mutant.seen_by {
            SeenBy::Equivalent(proof) => {
                return Ok(MutantRow { noticed_by: format!("equivalent: {proof}"), ..row(String::new()) });
            }
            SeenBy::Scenario(name) => name,
        };
        let (own, others): (Vec<_>, Vec<_>) = self.scenarios.iter().partition(|scenario| scenario.name == expected);
        let mode = mutant.modes.iter().map(|mode| lab_mode(*mode)).find(|mode| {
            let has = |scenario: &&Scenario| scenario.modes.contains(mode);
            own.iter().any(has)
        });
        let Some(mode) = mode else { return Ok(row(String::new())) };
        let row = row(mode.to_string());
        let simulate = |scenarios: &[&Scenario]| {
            mutant.is_rendered().then(|| simulator::first_red(mutant, scenarios, mode)).flatten()
        };
        if let Some((scenario, step)) = simulate(&own) {
            let breaks = self.broken(mutant, &scenario, mode)?;
            return Ok(MutantRow {
                noticed_by: format!("{scenario}: {step}"),
                on: "simulator".to_owned(),
                breaks,
                ..row
            });
        }
        if self.kernel
            && let Some(step) = kernel::first_red(&self.programs, mutant, expected, mode)?
        {
            let breaks = self.broken(mutant, expected, mode)?;
            return Ok(MutantRow { noticed_by: format!("{expected}: {step}"), on: "kernel".to_owned(), breaks, ..row });
        }
        let Some((scenario, step)) = simulate(&others) else { return Ok(row) };
        let breaks = self.broken(mutant, &scenario, mode)?;
        Ok(MutantRow { noticed_by: format!("{scenario}: {step}"), on: "simulator".to_owned(), breaks, ..row })
    }

    fn broken(&self, mutant: &Mutant, scenario: &str, mode: Mode) -> Result<Vec<String>, KernelError> {
        if !self.kernel {
            return Ok(Vec::new());
        }
        kernel::broken_promises(&self.programs, mutant, scenario, mode)
    }
}
