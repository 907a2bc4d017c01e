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

/// Returns every scenario in each of its modes that is among `asked`; empty means all. [`Mode::Other`] is left out unless
/// the proxy's description names it.
pub(super) fn jobs<'a>(
    scenarios: &'a [Scenario],
    asked: &[Mode],
    proxy: &ProxyUnderTest,
) -> Result<Vec<Job<'a>>, Exit> {
    check_modes(proxy, asked)?;
    let in_modes = |scenario: &'a Scenario| {
        let modes = modes(scenario, proxy).into_iter().filter(|mode| asked.is_empty() || asked.contains(mode));
        modes.map(move |mode| Job { scenario, mode, foreign: proxy.is_foreign() })
    };
    let jobs: Vec<Job<'a>> = scenarios.iter().flat_map(in_modes).collect();
    let Some(first) = scenarios.first().filter(|_| jobs.is_empty()) else { return Ok(jobs) };
    let modes: Vec<String> = first.modes.iter().map(Mode::to_string).collect();
    Err(Exit::usage(format!("--mode leaves nothing to run: {} is for {}", first.name, modes.join(", "))))
}

/// Returns the modes of a scenario: kube-proxy's in the file's order, then [`Mode::Other`] if the proxy's description names it.
pub(crate) fn modes(scenario: &Scenario, proxy: &ProxyUnderTest) -> Vec<Mode> {
    let named = scenario.modes.iter().copied().filter(|mode| *mode != Mode::Other);
    let other = Some(Mode::Other).filter(|other| scenario.is_for(*other) && proxy.has(*other));
    named.chain(other).collect()
}

/// Checks that the proxy has [`Mode::Other`] if it is `asked` for. A mode of kube-proxy's that a proxy lacks is an excuse.
pub(crate) fn check_modes(proxy: &ProxyUnderTest, asked: &[Mode]) -> Result<(), Exit> {
    if !asked.contains(&Mode::Other) || proxy.has(Mode::Other) {
        return Ok(());
    }
    Err(Exit::usage(match proxy {
        ProxyUnderTest::Own(_) => {
            "--mode other: svcproxy has the modes iptables, ipvs, nftables and userspace; `other` is for another project's \
             proxy, by a description (--proxy FILE) with `modes: [other]`"
                .to_owned()
        }
        ProxyUnderTest::Foreign(foreign) => {
            format!("--mode other: the description of {} has no `modes: [other]`", foreign.name)
        }
    }))
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
