//! Jobs: a scenario in one of its modes.

use std::collections::BTreeSet;

use crate::exit::Exit;
use crate::mode::{Mode, Need};
use crate::scenario::Scenario;
use crate::scenario::run::ProxyUnderTest;

#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) mode: Mode,
    /// Whether the proxy is not svcproxy.
    pub(crate) foreign: bool,
}

impl Job<'_> {
    pub(crate) fn needs(&self) -> BTreeSet<Need> {
        let mut needs: BTreeSet<Need> = self.scenario.needs.iter().chain(self.mode.needs()).copied().collect();
        if !self.foreign {
            needs.remove(&Need::LargeBatches);
        }
        needs
    }
}

/// Returns every scenario in all of its modes that are `asked` for; empty means all.
pub(super) fn jobs<'a>(scenarios: &'a [Scenario], asked: &[Mode], foreign: bool) -> Result<Vec<Job<'a>>, Exit> {
    let in_modes = |scenario: &'a Scenario| {
        let modes = scenario.modes.iter().filter(|mode| asked.is_empty() || asked.contains(mode));
        modes.map(move |mode| Job { scenario, mode: *mode, foreign })
    };
    let jobs: Vec<Job<'a>> = scenarios.iter().flat_map(in_modes).collect();
    let Some(first) = scenarios.first().filter(|_| jobs.is_empty()) else { return Ok(jobs) };
    let modes: Vec<String> = first.modes.iter().map(Mode::to_string).collect();
    Err(Exit::usage(format!("--mode leaves nothing to run: {} is for {}", first.name, modes.join(", "))))
}

pub(super) fn not_excused<'a>(mut jobs: Vec<Job<'a>>, proxy: &ProxyUnderTest) -> Vec<Job<'a>> {
    jobs.retain(|Job { scenario, mode, .. }| {
        let reason = excuse(proxy, scenario, *mode);
        reason.iter().for_each(|reason| eprintln!("{} is not run in {mode} mode: {reason}", scenario.name));
        reason.is_none()
    });
    jobs
}

pub(crate) fn excuse(proxy: &ProxyUnderTest, scenario: &Scenario, mode: Mode) -> Option<String> {
    match proxy {
        ProxyUnderTest::Own(_) => None,
        ProxyUnderTest::Foreign(foreign) => foreign.excuse(scenario, mode),
    }
}
