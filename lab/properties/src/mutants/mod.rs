//! Who watches the judges: rules broken in every way that the [`catalogue()`] of a mode has, and which properties notice.

mod audited;
mod catalogue;
mod ipvs;
mod nftables;
mod tools;
mod userspace;

pub use audited::{AuditScore, audit_score};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use svclab_oracle::generate::{Detect, Families, NodePorts, Sources, recipe};
use svclab_oracle::{
    ClusterModel, FrontendKind, Mode, NodePortAddress, Promise, PromisedVerdict, Protocol, Question, Scheduler,
};
use svclab_sim::cluster::{BuildError, NodeState};
use svclab_sim::rules::Rules;

use crate::judge::{Networks, Property, judge};
use crate::machines::SimulatedMachines;
use crate::programs::programs;
use crate::sweep::in_mode;

/// What a mutant is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// It does something else to some packet, so some property must fail.
    Broken,
    /// It does the same to every packet that is asked about, for this reason.
    Equivalent(&'static str),
}

/// To what it is done; false: there was nothing to do it to.
#[derive(Debug, Clone, Copy)]
pub enum Mutation {
    /// To the rules of a family.
    Rules(fn(&mut Rules) -> bool),
    /// To all that a proxy has left on a node.
    State(fn(&mut NodeState) -> bool),
}

/// A way to break rules.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// What it does, in words.
    pub name: &'static str,
    /// Does it.
    pub change: Mutation,
    /// What it is worth.
    pub expectation: Expectation,
}

impl Mutant {
    /// Breaks what a proxy has left on a node; false: there was nothing to break.
    pub fn apply(&self, state: &mut NodeState) -> bool {
        match self.change {
            Mutation::Rules(apply) => {
                let changed = [&mut state.v4, &mut state.v6].map(|rules| apply(Arc::make_mut(rules)));
                changed.contains(&true)
            }
            Mutation::State(apply) => apply(state),
        }
    }
}

/// Every way to break what a mode leaves in the kernel, and what its proxy does itself.
#[must_use]
pub fn catalogue(mode: Mode) -> Vec<Mutant> {
    match mode {
        Mode::Iptables => catalogue::catalogue(),
        Mode::Ipvs => ipvs::catalogue(),
        Mode::Userspace => userspace::all(),
        Mode::Nftables => nftables::catalogue(),
    }
}

/// A cluster, its rules, and what the oracle says to each of its questions.
pub struct MutationFixture {
    cluster: ClusterModel,
    states: BTreeMap<String, NodeState>,
    networks: Networks,
    asked: Vec<(Question, Promise)>,
    /// Where every pod waits: one on its node's network would answer in a service's place.
    waiting: Vec<(Protocol, u16)>,
}

/// Which properties noticed a mutant.
#[derive(Debug, Clone)]
pub struct MutantScore {
    /// The mutant.
    pub mutant: Mutant,
    /// In how many clusters it changed something.
    pub clusters: usize,
    /// In how many of those its rules could not even be loaded: no packet was asked about there.
    pub unloadable: usize,
    /// Who noticed.
    pub noticed: BTreeSet<Property>,
}

impl MutantScore {
    /// Whether what was to be noticed was, and nothing else. One cluster shows that a mutant is broken; that one is
    /// equivalent takes several, in all of which its rules can be loaded: where not, no property was asked about it.
    #[must_use]
    pub fn is_right(&self) -> bool {
        match self.mutant.expectation {
            Expectation::Broken => !self.noticed.is_empty(),
            Expectation::Equivalent(_) => self.unloadable == 0 && self.clusters >= ENOUGH && self.noticed.is_empty(),
        }
    }
}

/// After so many clusters that noticed a mutant, the others need not be asked; fewer do not show that it is equivalent.
const ENOUGH: usize = 3;

/// Fixed clusters, of every family, wiring and setting.
///
/// # Errors
/// A cluster whose rules are not what is promised even unbroken: both judges' words.
pub fn fixtures(mode: Mode, count: u64, questions: usize) -> Result<Vec<MutationFixture>, String> {
    (0..count).map(|number| MutationFixture::new(mode, number, questions)).collect()
}

impl MutationFixture {
    fn new(mode: Mode, number: u64, questions: usize) -> Result<MutationFixture, String> {
        let mut recipe = recipe(number);
        // Settings that mutants need go round, so that few clusters have them all.
        recipe.families = [Families::Dual, Families::V4, Families::Dual][number as usize % 3];
        recipe.proxy.detect = [Detect::ClusterCidr, Detect::Interface, Detect::NodeCidr][number as usize / 2 % 3];
        recipe.proxy.localhost_node_ports = number % 4 < 2;
        recipe.proxy.masquerade_all = number % 8 == 7;
        if number.is_multiple_of(2) {
            recipe.proxy.node_ports = NodePorts::Unset;
        }
        if mode == Mode::Nftables && number.is_multiple_of(4) {
            // Without a word node ports are on primary addresses alone.
            recipe.proxy.node_ports = NodePorts::Word(NodePortAddress::All);
        }
        for service in recipe.services.iter_mut().filter(|service| !service.source_ranges.is_empty()) {
            service.source_ranges.push(if number.is_multiple_of(2) { Sources::NodeNetwork } else { Sources::Pods });
        }
        if number % 2 == 1 {
            recipe.services.iter_mut().for_each(|service| service.affinity = service.affinity.or(Some(600)));
        }
        if number % 4 == 1 {
            // In IPVS mode few pods have a scheduler under which a client moves on once it is forgotten.
            recipe.pods.truncate(3);
        }
        let mut cluster = in_mode(&recipe, mode);
        if number.is_multiple_of(4) && cluster.world.proxy.scheduler != Scheduler::WeightedRoundRobin {
            // Few clusters of the recipes that get it have services with several endpoints.
            cluster.world.proxy.scheduler = Scheduler::RoundRobin;
        }
        let all = cluster.questions();
        let waiting: BTreeSet<_> = all.iter().map(|question| (question.protocol, question.to.port())).collect();
        let waiting: Vec<_> = waiting.into_iter().collect();
        let states = programs(&cluster)?;
        let build =
            |states| SimulatedMachines::build_with(&cluster, states, &waiting).map_err(|error| error.to_string());
        let networks = Networks { machines: build(&states)?, bare: build(&BTreeMap::new())? };
        let step = (all.len() / questions.max(1)).max(1);
        // A step that divides the number of destinations would ask about the same ones again and again.
        let step = if step > 1 { step | 1 } else { step };
        let oracle = cluster.oracle();
        let mut asked = Vec::new();
        let has_ranges = recipe.services.iter().any(|service| !service.source_ranges.is_empty());
        for (number, question) in all.into_iter().enumerate() {
            let promise = oracle.ask(&question);
            // Few callers are in one range alone: where there are any, all who are let in are asked.
            if number % step != 0 && !(has_ranges && is_balanced(&promise)) {
                continue;
            }
            let judgement = judge(&networks, &cluster, &question, promise);
            if !judgement.faults.is_empty() {
                return Err(crate::disagreement::text(&networks, &cluster, &question, &judgement));
            }
            asked.push((question, judgement.promise));
        }
        Ok(MutationFixture { states, cluster, networks, asked, waiting })
    }

    /// Who notices the mutant here; `None` where it changes nothing, an error where its rules cannot be loaded.
    fn noticed(&self, mutant: &Mutant) -> Option<Result<BTreeSet<Property>, BuildError>> {
        let mut states = self.states.clone();
        let mut changed = false;
        for state in states.values_mut() {
            changed |= mutant.apply(state);
        }
        if !changed {
            return None;
        }
        let machines = match SimulatedMachines::build_with(&self.cluster, &states, &self.waiting) {
            Ok(machines) => machines,
            Err(error) => return Some(Err(error)),
        };
        let networks = Networks { machines, bare: self.networks.bare.clone() };
        let faults = self.asked.iter().flat_map(|(question, promise)| {
            judge(&networks, &self.cluster, question, promise.clone()).faults.into_iter().map(|fault| fault.property)
        });
        Some(Ok(faults.collect()))
    }
}

fn is_balanced(promise: &Promise) -> bool {
    matches!(&promise.verdict, PromisedVerdict::Deliver(delivery) if delivery.frontend == FrontendKind::LoadBalancerIp)
}

/// Tries a mutant on the fixtures.
#[must_use]
pub fn score(mutant: Mutant, fixtures: &[MutationFixture]) -> MutantScore {
    let mut score = MutantScore { mutant, clusters: 0, unloadable: 0, noticed: BTreeSet::new() };
    let mut enough = 0;
    for fixture in fixtures {
        let Some(noticed) = fixture.noticed(&mutant) else { continue };
        score.clusters += 1;
        let Ok(noticed) = noticed else {
            score.unloadable += 1;
            continue;
        };
        enough += usize::from(!noticed.is_empty());
        score.noticed.extend(noticed);
        if enough == ENOUGH {
            break;
        }
    }
    score
}

/// One line.
impl fmt::Display for MutantScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noticed: Vec<String> = self.noticed.iter().map(ToString::to_string).collect();
        let right = if self.is_right() { " " } else { "!" };
        write!(f, "{right} {:<64}", self.mutant.name)?;
        match (self.mutant.expectation, noticed.is_empty()) {
            (Expectation::Equivalent(_), _) if self.unloadable > 0 => {
                write!(f, " called equivalent, but {} clusters cannot load it", self.unloadable)
            }
            (Expectation::Equivalent(_), false) => {
                write!(f, " called equivalent, but noticed by {}", noticed.join(", "))
            }
            (Expectation::Equivalent(_), _) if self.clusters < ENOUGH => {
                write!(f, " called equivalent, but changes only {} clusters", self.clusters)
            }
            (Expectation::Equivalent(reason), true) => write!(f, " equivalent: {reason}"),
            (Expectation::Broken, _) if self.clusters == 0 => f.write_str(" changes nothing in these clusters"),
            (Expectation::Broken, true) => f.write_str(" not noticed"),
            (Expectation::Broken, false) => write!(f, " {}", noticed.join(", ")),
        }
    }
}
