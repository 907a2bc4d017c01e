//! Steps that begin and end faults of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use svclab_cluster::busy_writer::BusyWriter;
use svclab_cluster::process::OutputReader;
use svclab_cluster::traffic::probe::ClusterHost;

use super::error::LabError;
use super::fakes;
use super::lab::Lab;
use crate::expect::Mismatch;
use crate::scenario::execute::Seen;
use crate::scenario::fault::{Command, Does, Fault, FaultKind, LogReader};

/// How long a fault of a command lasts at least, if the proxy does not run it sooner: longer than kube-proxy's own period.
const MET: Duration = Duration::from_secs(40);
/// How long what hung may still be there when its proxy has caught up: a proxy may end it in the background.
const LEFT: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// The faults that last, by node.
#[derive(Default)]
pub(super) struct Faults {
    commands: BTreeMap<String, BTreeMap<Command, Does>>,
    locks: BTreeMap<String, Flock<File>>,
    writers: BTreeMap<String, BusyWriter>,
}

impl Faults {
    /// Nodes with a fault: their proxies may be unable to apply anything, so steps do not wait for them.
    pub(super) fn nodes(&self) -> BTreeSet<String> {
        self.commands.keys().chain(self.locks.keys()).chain(self.writers.keys()).cloned().collect()
    }
}

impl Lab {
    /// Begins a fault.
    pub(super) async fn begin_fault(&mut self, fault: Fault, nodes: &[String]) -> Result<Seen, LabError> {
        for node in nodes {
            match fault {
                Fault::Command(command, does) => {
                    fakes::set(node, command, Some(does))?;
                    self.faults.commands.entry(node.clone()).or_default().insert(command, does);
                }
                Fault::Lock => {
                    let lock = self.cluster.hold_iptables_lock(node).await?;
                    self.faults.locks.insert(node.clone(), lock);
                }
                Fault::Writer(per_second) => {
                    let writer = self.cluster.busy_writer(node, per_second).await?;
                    self.faults.writers.insert(node.clone(), writer);
                }
                Fault::Log(LogReader::Stall) => self.proxies.set_reader(node, OutputReader::Stalls)?,
                Fault::Log(LogReader::End) => self.proxies.set_reader(node, OutputReader::IsGone)?,
            }
        }
        Ok(Seen::new(format!("{}: {fault}", nodes.join(", ")), []))
    }

    /// Waits until the proxies have run every command that is faked: what leads to it may be noticed late.
    async fn wait_until_met(&self, nodes: &[String]) {
        let deadline = Instant::now() + MET;
        let faked = |node: &String| self.faults.commands.get(node).map(|faked| (node.clone(), faked));
        for (node, faked) in nodes.iter().filter_map(faked) {
            for command in faked.keys() {
                while !fakes::is_met(&node, *command) && Instant::now() < deadline {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Ends faults, waits until the proxies have caught up, and judges what the faults have left.
    pub(super) async fn end_fault(&mut self, kind: FaultKind, nodes: &[String]) -> Result<Seen, LabError> {
        if kind == FaultKind::Command {
            self.wait_until_met(nodes).await;
        }
        let since = Instant::now();
        let (mut words, mut faked) = (nodes.join(", "), Vec::new());
        for node in nodes {
            match kind {
                FaultKind::Command => {
                    for (command, does) in self.faults.commands.remove(node).unwrap_or_default() {
                        fakes::set(node, command, None)?;
                        faked.push((node.clone(), command, does));
                    }
                }
                FaultKind::Lock => drop(self.faults.locks.remove(node)),
                FaultKind::Log => self.proxies.set_reader(node, OutputReader::Reads)?,
                FaultKind::Writer => {
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
        Ok(Seen::new(words, broken))
    }
}

/// How often a command was met that did not do its work, and what is wrong with that.
async fn judge(node: &str, command: Command, does: Does, patience: Duration) -> (usize, Option<Mismatch>) {
    let met = fakes::met(node, command);
    if met.is_empty() {
        let expected = format!("the proxy on {node} runs {command} during the fault");
        return (0, Some(Mismatch::new(expected, "it never did: the fault has shown nothing")));
    }
    if does != Does::Hang {
        return (met.len(), None);
    }
    let left = || met.iter().flat_map(fakes::Met::left).map(|pid| pid.to_string()).collect::<Vec<_>>();
    let deadline = Instant::now() + patience;
    while !left().is_empty() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
    let left = left();
    let expected = || format!("the proxy on {node} ends each {command} that hangs, and what that has started");
    let wrong = (!left.is_empty()).then(|| Mismatch::new(expected(), format!("still there: {}", left.join(", "))));
    (met.len(), wrong)
}
