//! A proxy that never gets ready costs its limit once a run, not once a scenario.

use std::collections::{BTreeMap, BTreeSet};

use crate::mode::Mode;
use crate::report::ScenarioReport;
use crate::scenario::Scenario;

/// The starts of one proxy in a run, by mode.
///
/// The reason of a failed start may be the scenario's settings. So a scenario with unusual settings speaks only for
/// scenarios with the same ones.
#[derive(Default)]
pub(crate) struct Starts<'a> {
    ready: BTreeSet<Mode>,
    never_ready: BTreeMap<Mode, Vec<&'a Scenario>>,
}

impl<'a> Starts<'a> {
    pub(crate) fn record(&mut self, scenario: &'a Scenario, mode: Mode, report: &ScenarioReport) {
        if report.not_started.is_none() {
            self.ready.insert(mode);
        } else if report.never_ready {
            self.never_ready.entry(mode).or_default().push(scenario);
        }
    }

    /// Returns why a scenario need not be tried: the proxy got ready in no scenario of this mode, and did not in one whose
    /// settings are usual, or this scenario's.
    pub(crate) fn refusal(&self, scenario: &Scenario, mode: Mode) -> Option<String> {
        let failed = self.never_ready.get(&mode).filter(|_| !self.ready.contains(&mode))?;
        let first = failed.iter().find(|first| first.starts_as_usual() || first.starts_like(scenario))?;
        Some(format!(
            "in {mode} mode the proxy has not got ready in this run, and the lab waited for it in {}; `svclab run {}` alone tries it",
            first.name, scenario.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn scenario(name: &str, head: &str) -> Scenario {
        let text = format!(
            "name: {name}\nabout: a start\n{head}manifests: ''\nsteps:\n- {{name: s, exec: {{on: node/node-a, command: [\"true\"]}}}}\n"
        );
        let texts = crate::input::InputFiles::given([(format!("{name}.yaml").into(), text)].into());
        crate::find::load_all_from(&texts, &[format!("{name}.yaml").into()], 0).unwrap().remove(0)
    }

    fn report(not_started: bool, never_ready: bool) -> ScenarioReport {
        let why = not_started.then(|| "why".to_owned());
        ScenarioReport { not_started: why, never_ready, ..sample().remove(0) }
    }

    #[test]
    fn a_start_that_failed_speaks_for_scenarios_with_such_settings() {
        let usual = scenario("usual", "");
        let six = scenario("six", "cluster: {family: ipv6}\n");
        let all = scenario("all", "proxy: {iptables: {masqueradeAll: true}}\n");
        let refused = |first: &[(&Scenario, ScenarioReport)], asked: &Scenario, mode| {
            let mut starts = Starts::default();
            first.iter().for_each(|(scenario, report)| starts.record(scenario, Mode::Iptables, report));
            starts.refusal(asked, mode)
        };
        let never = |scenario| (scenario, report(true, true));
        let told = refused(&[never(&usual)], &six, Mode::Iptables).unwrap();
        assert!(told.contains("waited for it in usual; `svclab run six` alone"), "{told}");
        for (first, asked, mode, is_refused) in [
            (vec![], &usual, Mode::Iptables, false),
            (vec![never(&usual)], &all, Mode::Iptables, true),
            (vec![never(&usual)], &usual, Mode::Ipvs, false),
            (vec![never(&six)], &usual, Mode::Iptables, false),
            (vec![never(&six)], &six, Mode::Iptables, true),
            (vec![never(&all)], &six, Mode::Iptables, false),
            (vec![(&usual, report(true, false))], &usual, Mode::Iptables, false),
            (vec![(&usual, report(false, false)), never(&six)], &six, Mode::Iptables, false),
        ] {
            let names: Vec<&str> = first.iter().map(|(scenario, _)| scenario.name.as_str()).collect();
            assert_eq!(refused(&first, asked, mode).is_some(), is_refused, "{names:?}, then {} in {mode}", asked.name);
        }
    }
}
