//! The modes that each node's proxy may be in at a step. What is said of a mode that no proxy is in would never be looked at.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Location;

use super::error::Problem;
use super::file::{ProxyOverride, RuleFile};
use super::{Action, ProxyAction, Scenario, Step};
use crate::mode::Mode;

/// By node.
pub(super) struct Modes<'a>(BTreeMap<&'a str, BTreeSet<Mode>>);

impl<'a> Modes<'a> {
    /// At the beginning.
    pub(super) fn of(scenario: &'a Scenario) -> Modes<'a> {
        let modes: BTreeSet<Mode> = scenario.modes.iter().copied().collect();
        Modes(scenario.cluster.nodes.iter().map(|node| (node.name.as_str(), modes.clone())).collect())
    }

    /// What is wrong with the modes that a step names; from now on they are as it leaves them.
    pub(super) fn step(&mut self, step: &'a Step) -> Vec<Problem> {
        let mut problems = Vec::new();
        let all: BTreeSet<Mode> = self.0.values().flatten().copied().collect();
        if !step.modes.iter().any(|mode| all.contains(mode)) {
            let (named, all) = (words(&step.modes), words(&all));
            let message = format!("modes: no proxy is in mode {named} at this step, but {all}: no proxy would do it");
            problems.push(Problem::new(Location::UNKNOWN, message));
        }
        if let Action::Rules(rules) = &step.action {
            problems.extend(rules.iter().filter_map(|rule| self.idle(rule, Location::UNKNOWN)));
        }
        problems.extend(step.expect.counters.iter().filter_map(|rule| self.idle(&rule.value, rule.referenced)));
        if let Action::Proxy(ProxyAction::Start(ProxyOverride { mode: Some(mode), .. }), nodes) = &step.action {
            let always = all.iter().all(|mode| step.modes.contains(mode));
            for node in nodes {
                let modes = self.0.entry(node).or_default();
                if always {
                    modes.clear();
                }
                modes.insert(*mode);
            }
        }
        if let Action::Proxy(ProxyAction::Start(ProxyOverride { scheduler: Some(scheduler), .. }), nodes) = &step.action
        {
            let modes = |node: &&String| self.0.get(node.as_str()).is_some_and(|modes| modes.contains(&Mode::Ipvs));
            let others = nodes.iter().filter(|node| !modes(node));
            let message =
                |node| format!("startProxy.scheduler: {scheduler} is IPVS mode's, in which {node} is not by then");
            problems.extend(others.map(|node| Problem::new(Location::UNKNOWN, message(node))));
        }
        problems
    }

    /// A rule that would be looked at nowhere. Unknown nodes are complained of elsewhere.
    fn idle(&self, rule: &RuleFile, at: Location) -> Option<Problem> {
        let names = || self.0.keys().copied();
        let nodes: Vec<String> = rule.on.0.iter().filter_map(|node| node.value.among(names()).ok()).flatten().collect();
        let modes: BTreeSet<Mode> =
            nodes.iter().filter_map(|node| self.0.get(node.as_str())).flatten().copied().collect();
        let idle = !modes.is_empty() && !rule.modes().any(|mode| modes.contains(&mode));
        idle.then(|| {
            let of: Vec<Mode> = rule.modes().collect();
            let (nodes, seen, mode) = (nodes.join(", "), words(&modes), words(&of));
            Problem::new(at, format!("a rule of {mode} mode (`mode: {mode}`, or none) on {nodes}, in {seen} by then"))
        })
    }
}

fn words<'a>(modes: impl IntoIterator<Item = &'a Mode>) -> String {
    modes.into_iter().map(Mode::to_string).collect::<Vec<_>>().join(" or ")
}
