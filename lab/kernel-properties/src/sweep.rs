use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::test_runner::{TestCaseError, TestError};
use svclab::expect::chi_square::{DrawCounts, TailBounds};
use svclab::expect::stats::FALSE_ALARM;
use svclab_cluster::Cluster as Lab;
use svclab_oracle::generate::{Recipe, recipes_on};
use svclab_oracle::{ClusterModel, Mode, Scheduler};
use svclab_properties::mutants::catalogue;
use svclab_properties::node_states::{differ_only_in_rules, read};
use svclab_properties::proxies::Dump;
use svclab_properties::sweep::{mixed, runner_with};
use svcproxy::mode::nftables::layout::TABLE;
use svcproxy::model::Family;
use tokio::runtime::Handle;

use crate::ask::ProbeState;
use crate::cluster_case::ClusterCase;
use crate::counts::KernelSweepCounts;
use crate::foreign_tables::{self, ForeignTable};
use crate::question_sample::choose;
use crate::round_robin;
use crate::testbed::{self, Testbed};
use crate::{disagreement, foreign_rules, proxy};

const CASES: u32 = 40;
const QUESTIONS: usize = 18;
/// Number of tries to shrink, and of questions per try.
const SMALLER: u32 = 40;
const QUESTIONS_TO_SMALLER: usize = 40;
/// Of this number of clusters, one gets broken rules, another foreign rules, and in nftables mode another a foreign table.
const ALTER: u64 = 6;

pub fn cases() -> u32 {
    std::env::var("KERNEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

pub struct Sweep<'a> {
    testbed: Testbed,
    mode: Mode,
    lab: &'a Lab,
    runtime: Handle,
    counts: KernelSweepCounts,
    drawn: Vec<DrawCounts>,
    tails: TailBounds,
    /// The false-alarm probability of a distribution that is checked alone.
    alarm: f64,
}

impl<'a> Sweep<'a> {
    pub fn new(testbed: Testbed, mode: Mode, lab: &'a Lab, runtime: Handle, cases: u32) -> Sweep<'a> {
        // Half of `FALSE_ALARM` is for all distributions together, half for single ones.
        let alarm = FALSE_ALARM / 2.0 / (2.0 * f64::from(cases.max(1)));
        Sweep {
            testbed,
            mode,
            lab,
            runtime,
            counts: KernelSweepCounts::default(),
            drawn: Vec::new(),
            tails: TailBounds::default(),
            alarm,
        }
    }

    fn check(&mut self, cluster: &ClusterModel, salt: u64, wanted: usize) -> Result<(), String> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.check_all(cluster, salt, wanted))
    }

    async fn check_all(&mut self, cluster: &ClusterModel, salt: u64, wanted: usize) -> Result<(), String> {
        testbed::serves(cluster)?;
        let mut applied = proxy::apply(self.lab, self.testbed.variant, cluster, mixed(salt)).await?;
        let dumps = &mut applied.dumps;
        proxy::forget(self.lab, self.testbed.variant, cluster, dumps).await?;
        let dumps = &*dumps;
        let case = ClusterCase::open(cluster, dumps, choose(cluster, salt, wanted))?;
        let mut pace = ProbeState::default();
        let seen = case.ask(self.lab, &mut pace).await?;
        let faults = [case.against_simulator(&seen), case.against_oracle(&seen)].concat();
        if let Some(fault) = faults.first() {
            return Err(disagreement::text(&case, fault, &seen));
        }
        self.distributions(&case, &seen)?;
        self.counts.note(&case);
        if self.testbed.overlay {
            // The simulator does not model an overlay's outer packets.
            self.counts.unaltered += 1;
            return Ok(());
        }
        match salt % ALTER {
            // The proxies of the next cluster repair the rules.
            0 => match broken(self.mode, dumps, salt)? {
                Some(altered) => self.alter_and_ask(&case, dumps, altered, pace).await,
                None => Ok(()),
            },
            3 => {
                let checked = self.alter_and_ask(&case, dumps, beside_others(cluster, dumps, salt), pace).await;
                self.restore(cluster, dumps).await.and(checked)
            }
            2 if self.mode == Mode::Nftables => {
                let table = foreign_tables::one(salt);
                let Some(altered) = beside_table(cluster, dumps, table) else { return Ok(()) };
                let checked = self.alter_and_ask(&case, dumps, altered, pace).await;
                for (node, dump) in dumps {
                    let (lab, variant) = (self.lab, self.testbed.variant);
                    proxy::load_tables(lab, variant, cluster, node, table.removal(), dump).await?;
                }
                checked
            }
            _ => Ok(()),
        }
    }

    /// Removes foreign rules, which the next proxies would keep.
    async fn restore(&self, cluster: &ClusterModel, dumps: &BTreeMap<String, Dump>) -> Result<(), String> {
        for (node, dump) in dumps {
            let families = svclab_properties::node::families(&cluster.world);
            let both = [(Family::V4, &dump.v4), (Family::V6, &dump.v6)];
            let both = both.into_iter().filter(|(family, _)| families.contains(family));
            let texts = both.map(|(family, text)| (family, foreign_rules::without(text))).collect();
            proxy::replace(self.lab, self.testbed.variant, node, texts, dump).await?;
        }
        Ok(())
    }

    /// The oracle promises nothing for altered rules, but kernel and simulator must agree.
    async fn alter_and_ask(
        &mut self,
        whole: &ClusterCase<'_>,
        before: &BTreeMap<String, Dump>,
        altered: AlteredRules,
        mut pace: ProbeState,
    ) -> Result<(), String> {
        let mut dumps = BTreeMap::new();
        for (node, rules) in altered.rules {
            let (lab, variant, before) = (self.lab, self.testbed.variant, &before[&node]);
            let replaced = match rules {
                NodeRules::Iptables(texts) => {
                    let replaced = proxy::replace(lab, variant, &node, texts, before).await;
                    match own_tables(self.mode, before)? {
                        // Among chains of one priority the newest is first; neither listing dates iptables' chains.
                        Some(own) if replaced.is_ok() => {
                            proxy::replace_tables(lab, variant, whole.cluster, &node, own, before).await
                        }
                        _ => replaced,
                    }
                }
                NodeRules::Beside(text) => proxy::load_tables(lab, variant, whole.cluster, &node, text, before).await,
                NodeRules::Nftables(text) => {
                    proxy::replace_tables(lab, variant, whole.cluster, &node, text, before).await
                }
            };
            match replaced {
                Ok(dump) => drop(dumps.insert(node, dump)),
                Err(_) if altered.may_be_refused => {
                    self.counts.refused += 1;
                    return Ok(());
                }
                Err(why) => return Err(format!("node/{node}: {}: {why}", altered.how)),
            }
        }
        proxy::forget(self.lab, self.testbed.variant, whole.cluster, &mut dumps).await?;
        let chosen = whole.asked.iter().map(|asked| asked.chosen.clone()).collect();
        let case = ClusterCase::open(whole.cluster, &dumps, chosen)?;
        let seen = case.ask(self.lab, &mut pace).await?;
        if let Some(fault) = case.against_simulator(&seen).first() {
            let words = disagreement::text(&case, fault, &seen);
            return Err(format!("with other rules than the proxy's ({})\n{words}", altered.how));
        }
        self.distributions(&case, &seen)?;
        self.counts.altered.0 += 1;
        self.counts.altered.1 += case.asked.len() as u64;
        self.counts.packets += case.packets() as u64;
        Ok(())
    }

    fn distributions(
        &mut self,
        case: &ClusterCase<'_>,
        seen: &[Vec<crate::observation::Observation>],
    ) -> Result<(), String> {
        if let Some(fault) = round_robin::out_of_turn(case, seen).first() {
            return Err(disagreement::text(case, fault, seen));
        }
        let (rounds, packets) = round_robin::looked_at(case);
        self.counts.distributions.0 += rounds;
        self.counts.distributions.1 += packets;
        for (question, drawn) in case.drawn(seen) {
            let bound = self.tails.bound([&drawn]);
            if case.asked[question].chosen.often && bound < self.alarm {
                let says = format!("χ²: so far from the shares with probability {bound:e} at most");
                return Err(disagreement::text(case, &crate::cluster_case::KernelFault { question, says }, seen));
            }
            self.counts.distributions.0 += 1;
            self.counts.distributions.1 += drawn.total() as u64;
            self.drawn.push(drawn);
        }
        Ok(())
    }
}

struct AlteredRules {
    how: String,
    /// The kernel may reject the rules of a mutant.
    may_be_refused: bool,
    rules: BTreeMap<String, NodeRules>,
}

enum NodeRules {
    /// Texts for `iptables-restore`, by family.
    Iptables(Vec<(Family, String)>),
    Nftables(String),
    /// Tables beside the proxy's.
    Beside(String),
}

fn own_tables(mode: Mode, dump: &Dump) -> Result<Option<String>, String> {
    if mode != Mode::Nftables {
        return Ok(None);
    }
    let program = read(dump).map_err(|error| error.to_string())?;
    let own = program.nft.tables.iter().filter(|table| table.name == TABLE);
    Ok(Some(own.map(ToString::to_string).collect()))
}

/// Mutants that drop neighbour discovery: the kernel's nodes know their neighbours from before, the simulator's ask.
const COLD: [&str; 1] = ["filter-input has the policy drop"];

/// Breaks the rules by the first mutant that changes rules only; `salt` decides where the search starts.
fn broken(mode: Mode, dumps: &BTreeMap<String, Dump>, salt: u64) -> Result<Option<AlteredRules>, String> {
    let catalogue: Vec<_> = catalogue(mode).into_iter().filter(|mutant| !COLD.contains(&mutant.name)).collect();
    let start = usize::try_from(mixed(salt) >> 32).unwrap_or_default();
    for mutant in (0..catalogue.len()).map(|step| catalogue[(start + step) % catalogue.len()]) {
        let (mut changed, mut rules_alone, mut all) = (false, true, BTreeMap::new());
        for (node, dump) in dumps {
            let mut program = read(dump).map_err(|error| format!("node/{node}: {error}"))?;
            let before = program.clone();
            changed |= mutant.apply(&mut program);
            rules_alone &= differ_only_in_rules(&program, &before);
            if mode == Mode::Nftables {
                let own = program.nft.tables.iter().filter(|table| table.name == TABLE);
                all.insert(node.clone(), NodeRules::Nftables(own.map(ToString::to_string).collect()));
                continue;
            }
            let both = [(Family::V4, &program.v4, &dump.v4), (Family::V6, &program.v6, &dump.v6)];
            let there = both.into_iter().filter(|(.., text)| !text.is_empty());
            let texts = there.map(|(family, rules, _)| (family, rules.to_string())).collect();
            all.insert(node.clone(), NodeRules::Iptables(texts));
        }
        if changed && rules_alone {
            return Ok(Some(AlteredRules { how: mutant.name.to_owned(), may_be_refused: true, rules: all }));
        }
    }
    Ok(None)
}

fn beside_others(cluster: &ClusterModel, dumps: &BTreeMap<String, Dump>, salt: u64) -> AlteredRules {
    let programs = foreign_rules::some(salt);
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    let rules = dumps.iter().map(|(node, dump)| {
        let both = [(Family::V4, &dump.v4), (Family::V6, &dump.v6)].into_iter().filter_map(|(family, found)| {
            let text = foreign_rules::beside(found, &programs, &cluster.world, node, family == Family::V4)?;
            Some((family, text))
        });
        (node.clone(), NodeRules::Iptables(both.collect()))
    });
    AlteredRules { how: names.join("; "), may_be_refused: false, rules: rules.collect() }
}

/// `None`: the cluster has no IPv4.
fn beside_table(cluster: &ClusterModel, dumps: &BTreeMap<String, Dump>, table: ForeignTable) -> Option<AlteredRules> {
    let rules = dumps.keys().map(|node| Some((node.clone(), NodeRules::Beside(table.on(&cluster.world, node)?))));
    Some(AlteredRules { how: table.name.to_owned(), may_be_refused: false, rules: rules.collect::<Option<_>>()? })
}

/// Builds the cluster in `mode`; in IPVS mode `salt` selects a scheduler that chooses by address or in turn.
fn in_mode(recipe: &Recipe, mode: Mode, salt: u64) -> ClusterModel {
    let mut cluster = recipe.build();
    cluster.world.proxy.mode = mode;
    cluster.world.proxy.scheduler = match mixed(salt) % 5 {
        0 => Scheduler::WeightedRoundRobin,
        1 => Scheduler::SourceHash,
        2 => Scheduler::DestinationHash,
        _ => Scheduler::RoundRobin,
    };
    cluster
}

pub fn sweep(
    testbed: Testbed,
    mode: Mode,
    lab: &Lab,
    runtime: &Handle,
    seed: u64,
    cases: u32,
) -> Result<KernelSweepCounts, String> {
    let sweep = RefCell::new(Sweep::new(testbed, mode, lab, runtime.clone(), cases));
    let (count, failed) = (RefCell::new(0u64), RefCell::new(None::<u64>));
    let part = testbed::ALL.iter().position(|one| one.name == testbed.name).unwrap_or_default() as u64;
    let outcome = runner_with(seed, 0x6b65_726e + part, cases, SMALLER).run(&recipes_on(testbed.recipe()), |recipe| {
        let mut failed = failed.borrow_mut();
        // Asks more questions after a failure: the failing one may have another number in a smaller cluster.
        let (salt, wanted) = match *failed {
            Some(salt) => (salt, QUESTIONS_TO_SMALLER),
            None => (seed ^ *count.borrow(), QUESTIONS),
        };
        *count.borrow_mut() += 1;
        sweep.borrow_mut().check(&in_mode(&recipe, mode, salt), salt, wanted).map_err(|words| {
            failed.get_or_insert(salt);
            TestCaseError::fail(words)
        })
    });
    let (name, mode) = (testbed.name, mode.name());
    let repeat = format!("seed {seed}, testbed {name}, {mode}, {cases} clusters (PROPERTIES_SEED={seed} repeats it)");
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(words, _)) => return Err(format!("{repeat}\n{words}")),
        Err(TestError::Abort(why)) => return Err(format!("{repeat}\n{why}")),
    }
    let mut sweep = sweep.into_inner();
    let bound = sweep.tails.bound(&sweep.drawn);
    if bound < FALSE_ALARM / 2.0 {
        return Err(format!("{repeat}\nχ² of all {} distributions: {bound:e} at most", sweep.drawn.len()));
    }
    Ok(sweep.counts)
}
