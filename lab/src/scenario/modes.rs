//! The possible modes of each node's proxy at a step. A check for any other mode would never run.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Location;

use super::error::Problem;
use super::file::{Action, ProxyOverride, RuleFile, StartFile};
use super::{Scenario, Step};
use crate::mode::Mode;

pub(super) struct PossibleModes<'a>(BTreeMap<&'a str, BTreeSet<Mode>>);

impl<'a> PossibleModes<'a> {
    pub(super) fn of(scenario: &'a Scenario) -> PossibleModes<'a> {
        let modes: BTreeSet<Mode> = Mode::WITH_OTHER.into_iter().filter(|mode| scenario.is_for(*mode)).collect();
        PossibleModes(scenario.cluster.nodes.iter().map(|node| (node.name.as_str(), modes.clone())).collect())
    }

    pub(super) fn step(&mut self, step: &'a Step) -> Vec<Problem> {
        let mut problems = Vec::new();
        let all: BTreeSet<Mode> = self.0.values().flatten().copied().collect();
        if !step.modes.iter().any(|mode| all.contains(mode)) {
            let (named, all) = (join(&step.modes), join(&all));
            let message = format!("modes: no proxy is in mode {named} at this step, but {all}: no proxy would do it");
            problems.push(Problem::new(Location::UNKNOWN, message));
        }
        if let Action::Rules(rules) = &step.action {
            problems.extend(rules.iter().filter_map(|rule| self.unused(rule, Location::UNKNOWN)));
        }
        problems.extend(step.expect.counters.iter().filter_map(|rule| self.unused(&rule.value, rule.referenced)));
        if let Action::StartProxy(StartFile { different: ProxyOverride { mode, scheduler, .. }, .. }) = &step.action {
            let always = all.iter().all(|mode| step.modes.contains(mode));
            for (node, mode) in step.nodes.iter().filter_map(|node| Some((node, (*mode)?))) {
                let modes = self.0.entry(node).or_default();
                if always {
                    modes.clear();
                }
                modes.insert(mode);
            }
            let has_ipvs = |node: &&String| self.0.get(node.as_str()).is_some_and(|modes| modes.contains(&Mode::Ipvs));
            for (node, scheduler) in step.nodes.iter().filter(|node| !has_ipvs(node)).zip(scheduler.iter().cycle()) {
                let message =
                    format!("startProxy.scheduler: {scheduler} is IPVS mode's, in which {node} is not by then");
                problems.push(Problem::new(Location::UNKNOWN, message));
            }
        }
        problems
    }

    /// Returns the problem of a rule that no node checks. Unknown nodes are reported elsewhere.
    fn unused(&self, rule: &RuleFile, at: Location) -> Option<Problem> {
        let names = || self.0.keys().copied();
        let nodes: Vec<String> = rule.at.0.iter().filter_map(|node| node.value.among(names()).ok()).flatten().collect();
        let modes: BTreeSet<Mode> =
            nodes.iter().filter_map(|node| self.0.get(node.as_str())).flatten().copied().collect();
        let unused = !modes.is_empty() && !rule.modes().any(|mode| modes.contains(&mode));
        unused.then(|| {
            let of: Vec<Mode> = rule.modes().collect();
            let (nodes, found, mode) = (nodes.join(", "), join(&modes), join(&of));
            Problem::new(at, format!("a rule of {mode} mode (`mode: {mode}`, or none) on {nodes}, in {found} by then"))
        })
    }
}

fn join<'a>(modes: impl IntoIterator<Item = &'a Mode>) -> String {
    modes.into_iter().map(Mode::to_string).collect::<Vec<_>>().join(" or ")
}
