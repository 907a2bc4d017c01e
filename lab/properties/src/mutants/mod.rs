//! Mutation tests: some property must notice each mutant of a mode's rules.

mod audited;
mod iptables;
mod ipvs;
mod nftables;
mod tools;
mod userspace;

pub use audited::{AuditScore, audit_score, printed};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use svclab_oracle::generate::{DetectRecipe, Families, NodePortsRecipe, SourceRangeRecipe, recipe};
use svclab_oracle::{
    ClusterModel, FrontendKind, Mode, NodePortAddress, Promise, PromisedVerdict, Protocol, Question, Scheduler,
};
use svclab_sim::cluster::{BuildError, NodeState};
use svclab_sim::rules::Rules;

use crate::judge::{Networks, Property, judge};
use crate::machines::SimulatedMachines;
use crate::node_states::of_fresh_proxies;
use crate::sweep::in_mode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    Broken,
    /// The mutant changes no outcome, for this reason.
    Equivalent(&'static str),
}

/// A function that returns false if it changes nothing.
#[derive(Debug, Clone, Copy)]
pub enum Mutation {
    Rules(fn(&mut Rules) -> bool),
    /// All kernel state of the proxy on a node.
    State(fn(&mut NodeState) -> bool),
}

#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    pub name: &'static str,
    pub change: Mutation,
    pub expectation: Expectation,
}

impl Mutant {
    const fn equivalent(self, reason: &'static str) -> Mutant {
        Mutant { expectation: Expectation::Equivalent(reason), ..self }
    }

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

pub fn catalogue(mode: Mode) -> Vec<Mutant> {
    match mode {
        Mode::Iptables => iptables::catalogue(),
        Mode::Ipvs => ipvs::catalogue(),
        Mode::Userspace => userspace::all(),
        Mode::Nftables => nftables::catalogue(),
        Mode::Other => Vec::new(),
    }
}

/// Returns mutants that only calls made for them notice, as audits make them: from the ends of source ranges, from
/// privileged ports, to what no service has.
pub fn narrow_catalogue(mode: Mode) -> Vec<Mutant> {
    match mode {
        Mode::Iptables => iptables::narrow(),
        Mode::Nftables => nftables::narrow(),
        Mode::Ipvs | Mode::Userspace | Mode::Other => Vec::new(),
    }
}

pub struct MutationFixture {
    cluster: ClusterModel,
    states: BTreeMap<String, NodeState>,
    networks: Networks,
    asked: Vec<(Question, Promise)>,
    /// All called ports. Pods listen there, so one on the host network would answer in place of a service.
    waiting: Vec<(Protocol, u16)>,
}

#[derive(Debug, Clone)]
pub struct MutantScore {
    pub mutant: Mutant,
    /// Clusters that the mutant changes.
    pub clusters: usize,
    pub unloadable: usize,
    pub noticed: BTreeSet<Property>,
}

impl MutantScore {
    /// An equivalent mutant must load in several clusters and break nothing.
    pub fn is_right(&self) -> bool {
        match self.mutant.expectation {
            Expectation::Broken => !self.noticed.is_empty(),
            Expectation::Equivalent(_) => self.unloadable == 0 && self.clusters >= ENOUGH && self.noticed.is_empty(),
        }
    }
}

/// The number of clusters that suffice to notice a mutant, or to call it equivalent.
const ENOUGH: usize = 3;

/// The error describes a disagreement that exists without any mutant.
pub fn fixtures(mode: Mode, count: u64, questions: usize) -> Result<Vec<MutationFixture>, String> {
    (0..count).map(|number| MutationFixture::new(mode, number, questions)).collect()
}

impl MutationFixture {
    fn new(mode: Mode, number: u64, questions: usize) -> Result<MutationFixture, String> {
        let mut recipe = recipe(number);
        // Sets what mutants need, because few clusters have all these settings.
        recipe.families = [Families::Dual, Families::V4, Families::Dual][number as usize % 3];
        recipe.proxy.detect =
            [DetectRecipe::ClusterCidr, DetectRecipe::Interface, DetectRecipe::NodeCidr][number as usize / 2 % 3];
        recipe.proxy.localhost_node_ports = number % 4 < 2;
        recipe.proxy.masquerade_all = number % 8 == 7;
        if number.is_multiple_of(2) {
            recipe.proxy.node_ports = NodePortsRecipe::Unset;
        }
        if mode == Mode::Nftables && number.is_multiple_of(4) {
            // By default node ports answer on primary addresses only.
            recipe.proxy.node_ports = NodePortsRecipe::Word(NodePortAddress::All);
        }
        for service in recipe.services.iter_mut().filter(|service| !service.source_ranges.is_empty()) {
            service.source_ranges.push(if number.is_multiple_of(2) {
                SourceRangeRecipe::NodeNetwork
            } else {
                SourceRangeRecipe::Pods
            });
        }
        if number % 2 == 1 {
            recipe.services.iter_mut().for_each(|service| service.affinity = service.affinity.or(Some(600)));
        }
        if number % 4 == 1 {
            // With three pods IPVS uses weighted round robin, which moves a client after the affinity timeout.
            recipe.pods.truncate(3);
        }
        let mut cluster = in_mode(&recipe, mode);
        if number.is_multiple_of(4) && cluster.world.proxy.scheduler != Scheduler::WeightedRoundRobin {
            // `in_mode` selects round robin only for clusters of few pods, whose services rarely have several
            // endpoints.
            cluster.world.proxy.scheduler = Scheduler::RoundRobin;
        }
        let all = cluster.questions();
        let waiting: BTreeSet<_> = all.iter().map(|question| (question.protocol, question.to.port())).collect();
        let waiting: Vec<_> = waiting.into_iter().collect();
        let states = of_fresh_proxies(&cluster)?;
        let build =
            |states| SimulatedMachines::build_with(&cluster, states, &waiting).map_err(|error| error.to_string());
        let networks = Networks { machines: build(&states)?, bare: build(&BTreeMap::new())? };
        let step = (all.len() / questions.max(1)).max(1);
        // Uses an odd step: an even one would select the same destinations repeatedly.
        let step = if step > 1 { step | 1 } else { step };
        let oracle = cluster.oracle();
        let mut asked = Vec::new();
        let has_ranges = recipe.services.iter().any(|service| !service.source_ranges.is_empty());
        for (number, question) in all.into_iter().enumerate() {
            let promise = oracle.ask(&question);
            // With source ranges, skips no question about load-balancer addresses: few callers notice a missing range.
            if number % step != 0 && !(has_ranges && is_balanced(&promise)) {
                continue;
            }
            let judgement = judge(&networks, (&cluster, &oracle), &question, promise);
            if !judgement.faults.is_empty() {
                return Err(crate::disagreement::text(&networks, &cluster, &question, &judgement));
            }
            asked.push((question, judgement.promise));
        }
        Ok(MutationFixture { states, cluster, networks, asked, waiting })
    }

    /// `None` if the mutant changes nothing. The error: its rules do not load.
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
        let oracle = self.cluster.oracle();
        let faults = self.asked.iter().flat_map(|(question, promise)| {
            judge(&networks, (&self.cluster, &oracle), question, promise.clone())
                .faults
                .into_iter()
                .map(|fault| fault.property)
        });
        Some(Ok(faults.collect()))
    }
}

fn is_balanced(promise: &Promise) -> bool {
    matches!(&promise.verdict, PromisedVerdict::Deliver(delivery) if delivery.frontend == FrontendKind::LoadBalancerIp)
}

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
