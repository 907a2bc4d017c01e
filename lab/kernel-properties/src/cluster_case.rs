use std::collections::BTreeMap;

use svclab::expect::chi_square::DrawCounts;
use svclab_cluster::Cluster as Lab;
use svclab_oracle::{Balancing, ClusterModel, Oracle, PromisedVerdict};
use svclab_properties::judge::{Judgement, Networks, flow, judge, outcomes};
use svclab_properties::machines::SimulatedMachines;
use svclab_properties::node_states::read;
use svclab_properties::proxies::Dump;

use crate::ask::{ProbeState, QuestionPackets, ask};
use crate::observation::{Observation, expected, keeps};
use crate::question_sample::SampledQuestion;
use crate::testbed;

/// Packets per possible outcome of a question, and their maximum.
const FOR_EACH: usize = 3;
const AT_MOST: usize = 12;
const CERTAIN: usize = 2;
/// Packets per endpoint for the χ² test.
const OFTEN: usize = 80;

#[derive(Debug, Clone)]
pub struct JudgedQuestion {
    pub chosen: SampledQuestion,
    pub judgement: Judgement,
    /// The simulator's observations with their probabilities.
    pub expected: Vec<(Observation, f64)>,
    /// The simulator's observations without rules.
    pub bare: Vec<(Observation, f64)>,
}

impl JudgedQuestion {
    fn is_sticky(&self) -> bool {
        matches!(&self.chosen.promise.verdict, PromisedVerdict::Deliver(delivery) if delivery.affinity.is_some())
    }

    fn is_silent(&self) -> bool {
        self.expected.iter().any(|(seen, _)| *seen == Observation::Silence)
    }

    pub(crate) fn takes_turns(&self) -> bool {
        matches!(&self.chosen.promise.verdict, PromisedVerdict::Deliver(delivery) if delivery.balancing == Balancing::RoundRobin)
    }

    /// Whether each packet is a random draw whose result the client observes.
    pub(crate) fn is_drawn(&self) -> bool {
        let delivered = matches!(self.chosen.promise.verdict, PromisedVerdict::Deliver(_));
        self.expected.len() > 1 && delivered && !self.is_sticky() && !self.is_silent()
    }

    pub(crate) fn packets(&self) -> QuestionPackets<'_> {
        let ways = self.expected.len();
        let count = match ways {
            _ if self.is_sticky() => FOR_EACH,
            1 => CERTAIN,
            _ if self.chosen.often && self.is_drawn() => OFTEN * ways,
            _ => (FOR_EACH * ways).min(AT_MOST),
        };
        QuestionPackets { question: &self.chosen.question, count, short: self.is_silent(), one_first: self.is_sticky() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFault {
    pub question: usize,
    pub says: String,
}

pub struct ClusterCase<'c> {
    pub cluster: &'c ClusterModel,
    pub networks: Networks,
    pub asked: Vec<JudgedQuestion>,
}

impl<'c> ClusterCase<'c> {
    pub fn open(
        cluster: &'c ClusterModel,
        dumps: &BTreeMap<String, Dump>,
        chosen: Vec<SampledQuestion>,
    ) -> Result<ClusterCase<'c>, String> {
        let mut programs = BTreeMap::new();
        for (node, dump) in dumps {
            programs.insert(node.clone(), read(dump).map_err(|error| format!("node/{node}: {error}"))?);
        }
        let listening = testbed::listening();
        let build =
            |programs| SimulatedMachines::build_with(cluster, programs, &listening).map_err(|error| error.to_string());
        let networks = Networks { machines: build(&programs)?, bare: build(&BTreeMap::new())? };
        let oracle = cluster.oracle();
        let asked = chosen.into_iter().map(|chosen| asked(&networks, (cluster, &oracle), chosen)).collect();
        Ok(ClusterCase { cluster, networks, asked })
    }

    pub async fn ask(&self, lab: &Lab, pace: &mut ProbeState) -> Result<Vec<Vec<Observation>>, String> {
        let packets: Vec<QuestionPackets<'_>> = self.asked.iter().map(JudgedQuestion::packets).collect();
        ask(lab, &self.cluster.world, &packets, pace).await
    }

    pub fn packets(&self) -> usize {
        self.asked.iter().map(|asked| asked.packets().count).sum()
    }

    pub fn against_simulator(&self, seen: &[Vec<Observation>]) -> Vec<KernelFault> {
        let mut faults = Vec::new();
        for (question, (asked, seen)) in self.asked.iter().zip(seen).enumerate() {
            let mut odd = seen.iter().filter(|one| !asked.expected.iter().any(|(known, _)| known == *one));
            if let Some(odd) = odd.next() {
                faults.push(KernelFault { question, says: format!("the simulator has no such outcome: {odd}") });
            }
        }
        faults
    }

    /// Returns observations and simulated outcomes that break a promise.
    pub fn against_oracle(&self, seen: &[Vec<Observation>]) -> Vec<KernelFault> {
        let mut faults = Vec::new();
        for (question, (asked, seen)) in self.asked.iter().zip(seen).enumerate() {
            let said = asked.judgement.faults.iter();
            faults.extend(
                said.map(|fault| KernelFault { question, says: format!("{}: {}", fault.property, fault.says) }),
            );
            let promise = &asked.judgement.promise;
            let broken = seen.iter().find(|one| !keeps(&self.cluster.world, promise, one, &asked.bare));
            let says = |one| format!("promised: {}; the kernel: {one}", promise.verdict);
            faults.extend(broken.map(|one| KernelFault { question, says: says(one) }));
            let moved = seen.iter().find(|one| Some(*one) != seen.first()).filter(|_| asked.is_sticky());
            if let (Some(first), Some(moved)) = (seen.first(), moved) {
                faults
                    .push(KernelFault { question, says: format!("a client that met: {first}; meets later: {moved}") });
            }
        }
        faults
    }

    /// Returns counts of random draws with the index of their question.
    pub fn drawn(&self, seen: &[Vec<Observation>]) -> Vec<(usize, DrawCounts)> {
        let drawn = self.asked.iter().zip(seen).enumerate();
        let drawn = drawn.filter(|(_, (asked, _))| asked.is_drawn() && !asked.takes_turns());
        let counts = drawn.map(|(question, (asked, seen))| {
            let count = |of: &Observation| seen.iter().filter(|one| *one == of).count();
            let counts = asked.expected.iter().map(|(of, share)| (count(of), *share)).collect();
            (question, DrawCounts { counts })
        });
        counts.collect()
    }
}

fn asked(
    networks: &Networks,
    (cluster, oracle): (&ClusterModel, &Oracle<'_>),
    chosen: SampledQuestion,
) -> JudgedQuestion {
    let (world, question) = (&cluster.world, &chosen.question);
    let judgement = judge(networks, (cluster, oracle), question, chosen.promise.clone());
    let seen = |machines: &SimulatedMachines| {
        let network = flow(machines, world, question).map(|(network, _)| network);
        network.map(|network| expected(network, outcomes(machines, world, question).as_ref())).unwrap_or_default()
    };
    let (expected, bare) = (seen(&networks.machines), seen(&networks.bare));
    JudgedQuestion { judgement, expected, bare, chosen }
}
