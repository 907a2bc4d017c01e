//! What is to be run: scenarios, each in its modes.

use std::collections::BTreeSet;

use super::Exit;
use crate::mode::{Mode, Need};
use crate::scenario::Scenario;
use crate::scenario::run::ProxyUnderTest;

/// A scenario in one of its modes.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) mode: Mode,
    /// Whether the proxy is another's.
    pub(super) foreign: bool,
}

impl Job<'_> {
    /// What it needs of the kernel.
    pub(super) fn needs(&self) -> BTreeSet<Need> {
        let mut needs: BTreeSet<Need> = self.scenario.needs.iter().chain(self.mode.needs()).copied().collect();
        if !self.foreign {
            needs.remove(&Need::LargeBatches);
        }
        needs
    }
}

/// The modes that a scenario is run in, of those that are asked for.
fn modes_of(scenario: &Scenario, asked: &[Mode]) -> Vec<Mode> {
    let is_asked = |mode: &Mode| asked.is_empty() || asked.contains(mode);
    scenario.modes.iter().copied().filter(is_asked).collect()
}

/// Every scenario in every mode that it is run in, with a proxy that is another's or not.
pub(super) fn jobs<'a>(scenarios: &'a [Scenario], asked: &[Mode], foreign: bool) -> Result<Vec<Job<'a>>, Exit> {
    let in_modes = |scenario| modes_of(scenario, asked).into_iter().map(move |mode| Job { scenario, mode, foreign });
    let jobs: Vec<Job<'a>> = scenarios.iter().flat_map(in_modes).collect();
    let Some(first) = scenarios.first().filter(|_| jobs.is_empty()) else { return Ok(jobs) };
    let modes: Vec<String> = first.modes.iter().map(Mode::to_string).collect();
    Err(Exit::usage(format!("--mode leaves nothing to run: {} is for {}", first.name, modes.join(", "))))
}

/// The jobs that the proxy is for; says why it is not for the others.
pub(super) fn not_excused<'a>(mut jobs: Vec<Job<'a>>, proxy: &ProxyUnderTest) -> Vec<Job<'a>> {
    jobs.retain(|Job { scenario, mode, .. }| {
        let reason = excuse(proxy, &scenario.name, *mode);
        reason.iter().for_each(|reason| eprintln!("{} is not run in {mode} mode: {reason}", scenario.name));
        reason.is_none()
    });
    jobs
}

/// Why this proxy is not run in a scenario in this mode.
pub(super) fn excuse(proxy: &ProxyUnderTest, scenario: &str, mode: Mode) -> Option<String> {
    match proxy {
        ProxyUnderTest::Own(_) => None,
        ProxyUnderTest::Foreign(foreign) => foreign.excuse(scenario, mode),
    }
}
