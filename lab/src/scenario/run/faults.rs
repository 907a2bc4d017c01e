//! Begins and ends faults of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use svclab_cluster::busy_writer::BusyWriter;
use svclab_cluster::process::OutputReader;
use svclab_cluster::traffic::probe::ClusterHost;

use super::command_faults;
use super::error::LabError;
use super::lab::KernelLab;
use crate::expect::Mismatch;
use crate::scenario::execute::StepOutcome;
use crate::scenario::fault::{CommandFaultKind, IptablesCommand, LogReaderFault, NodeFault, NodeFaultKind};

/// The limit for the proxy to run a faulty command; longer than kube-proxy's sync period.
const MET: Duration = Duration::from_secs(40);
/// How long a hanging command may outlive the fault: a proxy may kill it in the background.
const LEFT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Faults {
    commands: BTreeMap<String, BTreeMap<IptablesCommand, CommandFaultKind>>,
    locks: BTreeMap<String, Flock<File>>,
    writers: BTreeMap<String, BusyWriter>,
}

impl Faults {
    /// Returns the nodes with a fault; steps do not wait for their proxies.
    pub(super) fn nodes(&self) -> BTreeSet<String> {
        self.commands.keys().chain(self.locks.keys()).chain(self.writers.keys()).cloned().collect()
    }
}

impl KernelLab {
    pub(super) async fn begin_fault(&mut self, fault: NodeFault, nodes: &[String]) -> Result<StepOutcome, LabError> {
        for node in nodes {
            match fault {
                NodeFault::Command(command, does) => {
                    command_faults::set(node, command, Some(does))?;
                    self.faults.commands.entry(node.clone()).or_default().insert(command, does);
                }
                NodeFault::Lock => {
                    let lock = self.cluster.hold_iptables_lock(node).await?;
                    self.faults.locks.insert(node.clone(), lock);
                }
                NodeFault::Writer(per_second) => {
                    let writer = self.cluster.busy_writer(node, per_second).await?;
                    self.faults.writers.insert(node.clone(), writer);
                }
                NodeFault::Log(LogReaderFault::Stall) => self.proxies.set_reader(node, OutputReader::Stalls)?,
                NodeFault::Log(LogReaderFault::End) => self.proxies.set_reader(node, OutputReader::IsGone)?,
            }
        }
        Ok(StepOutcome::new(format!("{}: {fault}", nodes.join(", ")), []))
    }

    async fn wait_until_met(&self, nodes: &[String]) {
        let deadline = Instant::now() + MET;
        let faked = |node: &String| self.faults.commands.get(node).map(|faked| (node.clone(), faked));
        for (node, faked) in nodes.iter().filter_map(faked) {
            for command in faked.keys() {
                while !command_faults::was_hit(&node, *command) && Instant::now() < deadline {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    pub(super) async fn end_fault(&mut self, kind: NodeFaultKind, nodes: &[String]) -> Result<StepOutcome, LabError> {
        if kind == NodeFaultKind::Command {
            self.wait_until_met(nodes).await;
        }
        let since = Instant::now();
        let (mut words, mut faked) = (nodes.join(", "), Vec::new());
        for node in nodes {
            match kind {
                NodeFaultKind::Command => {
                    for (command, does) in self.faults.commands.remove(node).unwrap_or_default() {
                        command_faults::set(node, command, None)?;
                        faked.push((node.clone(), command, does));
                    }
                }
                NodeFaultKind::Lock => drop(self.faults.locks.remove(node)),
                NodeFaultKind::Log => self.proxies.set_reader(node, OutputReader::Reads)?,
                NodeFaultKind::Writer => {
                    let failed = |source: io::Error| LabError::Command {
                        command: "rewriting a table of nf_tables".to_owned(),
                        place: ClusterHost::Node(node.clone()).to_string(),
                        problem: source.to_string(),
                    };
                    if let Some(writer) = self.faults.writers.remove(node) {
                        let (times, took) = writer.end().map_err(failed)?;
                        words.push_str(&format!("; {times} writes in {:.1} s", took.as_secs_f64()));
                    }
                }
            }
        }
        let mut broken: Vec<Mismatch> = self.applied(since).await?.into_iter().collect();
        for (node, command, does) in faked {
            let patience = if broken.is_empty() { LEFT } else { Duration::ZERO };
            let (met, left) = judge(&node, command, does, patience).await;
            words.push_str(&format!("; {command} was run {met} times"));
            broken.extend(left);
        }
        Ok(StepOutcome::new(words, broken))
    }
}

async fn judge(
    node: &str,
    command: IptablesCommand,
    does: CommandFaultKind,
    patience: Duration,
) -> (usize, Option<Mismatch>) {
    let met = command_faults::take_hits(node, command);
    if met.is_empty() {
        let expected = format!("the proxy on {node} runs {command} during the fault");
        return (0, Some(Mismatch::new(expected, "it never did: the fault has shown nothing")));
    }
    if does != CommandFaultKind::Hang {
        return (met.len(), None);
    }
    let left = || met.iter().flat_map(command_faults::FaultHit::left).map(|pid| pid.to_string()).collect::<Vec<_>>();
    let deadline = Instant::now() + patience;
    while !left().is_empty() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
    let left = left();
    let expected = || format!("the proxy on {node} ends each {command} that hangs, and what that has started");
    let wrong = (!left.is_empty()).then(|| Mismatch::new(expected(), format!("still there: {}", left.join(", "))));
    (met.len(), wrong)
}
