//! Judges many clusters, and shrinks a disagreement.

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use svclab_oracle::generate::{Recipe, recipes};
use svclab_oracle::{ClusterModel, Mode, Promise, PromisedVerdict, Question, Rule, Scheduler};

use crate::disagreement;
use crate::judge::{Networks, judge};
use crate::machines::SimulatedMachines;
use crate::node_states::of_fresh_proxies;

/// Default of `PROPERTIES_CASES`.
const CASES: u32 = 300;
/// Default of `PROPERTIES_SEED`.
const SEED: u64 = 1;
const QUESTIONS: u64 = 40;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub fn cases() -> u32 {
    number("PROPERTIES_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(CASES)
}

pub fn seed() -> u64 {
    number("PROPERTIES_SEED").unwrap_or(SEED)
}

fn questions() -> u64 {
    number("PROPERTIES_QUESTIONS").unwrap_or(QUESTIONS)
}

pub fn runner(seed: u64, property: u64, cases: u32) -> TestRunner {
    runner_with(seed, property, cases, 4000)
}

/// Like [`runner`]; `smaller` limits the tries to shrink.
pub fn runner_with(seed: u64, property: u64, cases: u32, smaller: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&property.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: smaller, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepCounts {
    pub clusters: u64,
    pub questions: u64,
    /// Questions by verdict: deliver, drop, reject, drop or reject, untouched, undefined.
    pub verdicts: [u64; 6],
    pub disputed: u64,
}

impl SweepCounts {
    pub fn plus(&self, other: &SweepCounts) -> SweepCounts {
        let mut sum = *self;
        sum.clusters += other.clusters;
        sum.questions += other.questions;
        sum.disputed += other.disputed;
        sum.verdicts.iter_mut().zip(other.verdicts).for_each(|(mine, theirs)| *mine += theirs);
        sum
    }

    fn note(&mut self, promise: &Promise) {
        self.questions += 1;
        self.disputed += u64::from(promise.rests_on(Rule::Shared));
        self.verdicts[match promise.verdict {
            PromisedVerdict::Deliver(_) => 0,
            PromisedVerdict::Drop => 1,
            PromisedVerdict::Reject => 2,
            PromisedVerdict::Refuse => 3,
            PromisedVerdict::Untouched => 4,
            PromisedVerdict::Undefined => 5,
        }] += 1;
    }
}

/// Applies the finalizer of SplitMix64.
pub fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[derive(Debug, Clone, Copy)]
pub enum QuestionSample {
    /// The approximate number of questions, and the sample's salt.
    Some(u64, u64),
    All,
}

impl QuestionSample {
    fn takes(self, index: usize, of: usize) -> bool {
        match self {
            QuestionSample::All => true,
            QuestionSample::Some(wanted, salt) => {
                let draw = mixed(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64));
                draw % (of as u64).max(1) < wanted
            }
        }
    }
}

pub fn networks(cluster: &ClusterModel) -> Result<Networks, String> {
    let machines = SimulatedMachines::build(cluster, &of_fresh_proxies(cluster)?).map_err(|error| error.to_string())?;
    let bare =
        SimulatedMachines::build(cluster, &std::collections::BTreeMap::new()).map_err(|error| error.to_string())?;
    Ok(Networks { machines, bare })
}

/// The error is the first disagreement or a refused object.
pub fn judge_cluster(cluster: &ClusterModel, choice: QuestionSample, counts: &mut SweepCounts) -> Result<(), String> {
    let networks = networks(cluster).map_err(|why| format!("{why}\n{}", scenario(cluster)))?;
    let oracle = cluster.oracle();
    let questions = cluster.questions();
    counts.clusters += 1;
    let of = questions.len();
    for (_, question) in questions.iter().enumerate().filter(|(index, _)| choice.takes(*index, of)) {
        let promise = oracle.ask(question);
        counts.note(&promise);
        let judgement = judge(&networks, (cluster, &oracle), question, promise);
        if !judgement.faults.is_empty() {
            return Err(disagreement::text(&networks, cluster, question, &judgement));
        }
    }
    Ok(())
}

pub fn scenario(cluster: &ClusterModel) -> String {
    cluster
        .questions()
        .first()
        .map(|question: &Question| cluster.scenario_yaml("generated", question))
        .unwrap_or_default()
}

/// Builds the cluster in `mode`; in IPVS mode the number of pods selects the scheduler.
pub fn in_mode(recipe: &Recipe, mode: Mode) -> ClusterModel {
    let mut cluster = recipe.build();
    cluster.world.proxy.mode = mode;
    cluster.world.proxy.scheduler = match recipe.pods.len() {
        3 => Scheduler::WeightedRoundRobin,
        4 => Scheduler::SourceHash,
        5 => Scheduler::Maglev,
        6 => Scheduler::LeastConnections,
        _ => Scheduler::RoundRobin,
    };
    cluster
}

/// The error prints the smallest failing cluster, and how to repeat it.
pub fn sweep(mode: Mode, seed: u64, part: u64, cases: u32) -> Result<SweepCounts, String> {
    let counts = Cell::new(SweepCounts::default());
    let (count, failed) = (Cell::new(0u64), Cell::new(false));
    let wanted = questions();
    let outcome = runner(seed, part, cases).run(&recipes(), |recipe| {
        // Asks all questions after a failure: the failing one may have another number in a smaller cluster.
        let choice = if failed.get() { QuestionSample::All } else { QuestionSample::Some(wanted, seed ^ count.get()) };
        count.set(count.get() + 1);
        let mut sum = counts.get();
        let outcome = judge_cluster(&in_mode(&recipe, mode), choice, &mut sum);
        counts.set(sum);
        outcome.map_err(|words| {
            failed.set(true);
            TestCaseError::fail(words)
        })
    });
    match outcome {
        Ok(()) => Ok(counts.get()),
        Err(TestError::Fail(words, _)) => {
            Err(format!("seed {seed}, part {part}, mode {} (PROPERTIES_SEED={seed} repeats it)\n{words}", mode.name()))
        }
        Err(TestError::Abort(why)) => Err(format!("seed {seed}: {why}")),
    }
}

pub fn sweep_in_parts(mode: Mode, parts: u32) -> Result<SweepCounts, String> {
    let (seed, share) = (seed(), cases().div_ceil(parts));
    let threads: Vec<_> =
        (0..parts).map(|part| std::thread::spawn(move || sweep(mode, seed, part.into(), share))).collect();
    let mut sum = SweepCounts::default();
    for thread in threads {
        sum = sum.plus(&thread.join().map_err(|_| "a thread has panicked".to_owned())??);
    }
    Ok(sum)
}
