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
    /// Whether a card is made of each scenario that notices a wrong proxy.
    pub cards: bool,
}

/// What a wrong proxy fails.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RedStep {
    scenario: String,
    step: String,
    /// The promise that the step tests.
    promise: Option<String>,
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
        let (own, others): (Vec<_>, Vec<_>) =
            self.scenarios.iter().partition(|scenario| Some(&*scenario.name) == expected.rsplit('/').next());
        let mode = mutant.modes.iter().map(|mode| lab_mode(*mode)).find(|mode| {
            let has = |scenario: &&Scenario| scenario.modes.contains(mode);
            own.iter().any(has)
        });
        let Some(mode) = mode else { return Ok(row(String::new())) };
        let row = row(mode.to_string());
        let simulate = |scenarios: &[&Scenario]| {
            mutant.is_rendered().then(|| simulator::first_red(mutant, scenarios, mode)).flatten()
        };
        if let Some(red) = simulate(&own) {
            let red = RedStep { scenario: expected.to_owned(), ..red };
            return self.noticed(mutant, mode, row, red, "simulator");
        }
        if self.kernel
            && let Some(red) = kernel::first_red(&self.programs, mutant, expected, mode)?
        {
            return self.noticed(mutant, mode, row, red, "kernel");
        }
        match simulate(&others) {
            Some(red) => self.noticed(mutant, mode, row, red, "simulator"),
            None => Ok(row),
        }
    }

    fn noticed(
        &self,
        mutant: &Mutant,
        mode: Mode,
        row: MutantRow,
        red: RedStep,
        on: &str,
    ) -> Result<MutantRow, KernelError> {
        let mut breaks: Vec<String> = red.promise.into_iter().collect();
        let mut by_audit = None;
        if self.cards {
            let card = kernel::card(&self.programs, mutant, &red.scenario, mode)?;
            breaks.extend(card.promises);
            by_audit = Some(card.by_audit);
        }
        breaks.sort_unstable();
        breaks.dedup();
        let noticed_by = format!("{}: {}", red.scenario, red.step);
        Ok(MutantRow { noticed_by, on: on.to_owned(), by_audit, breaks, ..row })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use svclab::conformance::mutants::{DOCUMENT, rows};
    use svcproxy::mutants;

    #[test]
    fn the_table_has_every_wrong_proxy_of_the_catalogue() {
        let catalogue: BTreeSet<(&str, &str)> = mutants::all().map(|mutant| (mutant.id, mutant.does)).collect();
        let rows = rows(DOCUMENT);
        let table: BTreeSet<(&str, &str)> = rows.iter().map(|row| (row.id.as_str(), row.does.as_str())).collect();
        assert_eq!(table, catalogue, "./just mutants --scenarios --missing makes the table");
    }

    #[test]
    fn every_wrong_proxy_is_noticed_or_proven_equivalent() {
        let is_settled = |row: &super::MutantRow| row.is_noticed() || row.noticed_by.starts_with("equivalent: ");
        let unnoticed: Vec<String> =
            rows(DOCUMENT).into_iter().filter(|row| !is_settled(row)).map(|row| row.id).collect();
        assert!(unnoticed.is_empty(), "no scenario notices {unnoticed:?}");
    }
}
