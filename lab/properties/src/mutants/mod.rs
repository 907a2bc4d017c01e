//! Who watches the judges: rules broken in every way that the [`catalogue()`] has, and which properties notice.

mod catalogue;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use svclab_oracle::generate::{Detect, Families, NodePorts, Sources, recipe};
use svclab_oracle::{Cluster, Promise, Question};
use svclab_sim::rules::Rules;

pub use catalogue::catalogue;

use crate::exceptions;
use crate::judge::{Court, Property, judge};
use crate::machines::Machines;
use crate::programs::{Program, programs};
use crate::sweep::court;

/// What a mutant is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// It does something else to some packet, so somebody must notice.
    Broken,
    /// It does the same to every packet that is asked about, for this reason.
    Equivalent(&'static str),
}

/// A way to break rules.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// What it does, in words.
    pub name: &'static str,
    /// Does it to the rules of a family; false: there was nothing to do it to.
    pub apply: fn(&mut Rules) -> bool,
    /// What it is worth.
    pub worth: Worth,
}

/// A cluster, its rules, and what the oracle says to each of its questions.
pub struct Bench {
    cluster: Cluster,
    programs: BTreeMap<String, Program>,
    court: Court,
    asked: Vec<(Question, Promise)>,
}

/// Which properties noticed a mutant.
#[derive(Debug, Clone)]
pub struct Score {
    /// The mutant.
    pub mutant: Mutant,
    /// In how many clusters it changed something.
    pub clusters: usize,
    /// Who noticed.
    pub noticed: BTreeSet<Property>,
}

impl Score {
    /// Whether what was to be noticed was, and nothing else.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.clusters > 0 && (self.mutant.worth == Worth::Broken) != self.noticed.is_empty()
    }
}

/// After so many clusters that noticed a mutant, the others need not be asked.
const ENOUGH: usize = 3;

/// Fixed clusters, of every family, wiring and setting.
///
/// # Errors
/// A cluster whose rules are not what is promised even unbroken: both judges' words.
pub fn benches(count: u64, questions: usize) -> Result<Vec<Bench>, String> {
    (0..count).map(|number| Bench::new(number, questions)).collect()
}

impl Bench {
    fn new(number: u64, questions: usize) -> Result<Bench, String> {
        let mut recipe = recipe(number);
        // Settings that mutants need go round, so that few clusters have them all.
        recipe.families = [Families::Dual, Families::V4, Families::Dual][number as usize % 3];
        recipe.proxy.detect = [Detect::ClusterCidr, Detect::Interface, Detect::NodeCidr][number as usize / 2 % 3];
        recipe.proxy.localhost_node_ports = number % 4 < 2;
        recipe.proxy.masquerade_all = number % 8 == 7;
        if number.is_multiple_of(2) {
            recipe.proxy.node_ports = NodePorts::Unset;
        }
        for service in recipe.services.iter_mut().filter(|service| !service.source_ranges.is_empty()) {
            service.source_ranges.push(if number.is_multiple_of(2) { Sources::NodeNetwork } else { Sources::Pods });
        }
        let cluster = recipe.build();
        let court = court(&cluster)?;
        let all = cluster.questions();
        let step = (all.len() / questions.max(1)).max(1);
        // A step that divides the number of destinations would ask about the same ones again and again.
        let step = if step > 1 { step | 1 } else { step };
        let oracle = cluster.oracle();
        let mut asked = Vec::new();
        for question in all.into_iter().step_by(step) {
            let judgement = judge(&court, &cluster, &question, oracle.ask(&question));
            let found = judgement.outcomes.as_ref().filter(|_| !judgement.faults.is_empty());
            if found.and_then(|found| exceptions::find(&cluster, &judgement.promise, found)).is_some() {
                continue;
            }
            if !judgement.faults.is_empty() {
                return Err(crate::words::disagreement(&court, &cluster, &question, &judgement));
            }
            asked.push((question, judgement.promise));
        }
        Ok(Bench { programs: programs(&cluster)?, cluster, court, asked })
    }

    /// Who notices the mutant here; `None` where it changes nothing.
    fn noticed(&self, mutant: &Mutant) -> Option<BTreeSet<Property>> {
        let mut programs = self.programs.clone();
        let mut changed = false;
        for program in programs.values_mut() {
            for rules in [&mut program.v4, &mut program.v6] {
                changed |= (mutant.apply)(Arc::make_mut(rules));
            }
        }
        if !changed {
            return None;
        }
        // Rules that no kernel would take are noticed by that.
        let Ok(machines) = Machines::build(&self.cluster, &programs) else { return Some(BTreeSet::new()) };
        let court = Court { machines, bare: self.court.bare.clone() };
        let faults = self.asked.iter().flat_map(|(question, promise)| {
            judge(&court, &self.cluster, question, promise.clone()).faults.into_iter().map(|fault| fault.property)
        });
        Some(faults.collect())
    }
}

/// Tries a mutant on the benches.
#[must_use]
pub fn score(mutant: Mutant, benches: &[Bench]) -> Score {
    let mut score = Score { mutant, clusters: 0, noticed: BTreeSet::new() };
    let mut enough = 0;
    for bench in benches {
        let Some(noticed) = bench.noticed(&mutant) else { continue };
        score.clusters += 1;
        enough += usize::from(!noticed.is_empty());
        score.noticed.extend(noticed);
        if enough == ENOUGH {
            break;
        }
    }
    score
}

/// One line.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noticed: Vec<String> = self.noticed.iter().map(ToString::to_string).collect();
        let right = if self.is_right() { " " } else { "!" };
        write!(f, "{right} {:<64}", self.mutant.name)?;
        match (self.mutant.worth, noticed.is_empty()) {
            (Worth::Equivalent(reason), true) => write!(f, " equivalent: {reason}"),
            (Worth::Equivalent(_), false) => write!(f, " called equivalent, but noticed by {}", noticed.join(", ")),
            (Worth::Broken, _) if self.clusters == 0 => f.write_str(" changes nothing in these clusters"),
            (Worth::Broken, true) => f.write_str(" nobody notices"),
            (Worth::Broken, false) => write!(f, " {}", noticed.join(", ")),
        }
    }
}
