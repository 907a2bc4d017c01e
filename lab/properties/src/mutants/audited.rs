use std::collections::BTreeSet;
use std::fmt;

use svclab_audit::audit::{AuditOptions, audit};
use svclab_sim::cluster::NodeState;

use super::{Expectation, Mutant, MutationFixture};
use crate::proxies::Dump;
use crate::snapshots::snapshot;

#[derive(Debug, Clone)]
pub struct AuditScore {
    pub mutant: Mutant,
    pub nodes: usize,
    pub kinds: BTreeSet<&'static str>,
    pub unable: Vec<String>,
}

impl AuditScore {
    pub fn is_right(&self) -> bool {
        match self.mutant.expectation {
            Expectation::Broken => !self.kinds.is_empty(),
            Expectation::Equivalent(_) => self.kinds.is_empty(),
        }
    }
}

/// Nodes on which an equivalent mutant must have no finding.
const NODES: usize = 9;

/// Audits nodes with the mutant until an audit has a finding.
pub fn audit_score(mutant: Mutant, fixtures: &[MutationFixture]) -> AuditScore {
    let mut found = AuditScore { mutant, nodes: 0, kinds: BTreeSet::new(), unable: Vec::new() };
    let mut enough = 0;
    for (fixture, node, state) in fixtures
        .iter()
        .flat_map(|fixture| fixture.states.iter().map(move |(node, state)| (fixture, node.as_str(), state.clone())))
    {
        let mut state = state;
        if !mutant.apply(&mut state) {
            continue;
        }
        found.nodes += 1;
        match audit(&snapshot(&fixture.cluster, node, &printed(&state)), &AuditOptions::default()) {
            Ok(report) => {
                enough += usize::from(!report.is_clean());
                found.kinds.extend(report.findings.iter().map(|finding| finding.kind));
                found.unable.extend(report.not_judged.iter().map(|one| one.why.clone()));
            }
            Err(error) => found.unable.push(error.to_string()),
        }
        let last = match mutant.expectation {
            Expectation::Broken => enough > 0,
            Expectation::Equivalent(_) => found.nodes >= NODES,
        };
        if last {
            break;
        }
    }
    found
}

pub fn printed(state: &NodeState) -> Dump {
    let addresses = state.addresses.iter().map(|own| {
        let lifetime = if own.secondary && own.ip.is_ipv6() { " preferred_lft 0" } else { "" };
        format!("ip addr add {}/{} dev kube-ipvs0{lifetime}\n", own.ip, own.prefix)
    });
    Dump {
        v4: state.v4.to_string(),
        v6: state.v6.to_string(),
        nft: state.nft.to_string(),
        sets: state.sets.to_string(),
        servers: state.servers.to_string(),
        addresses: addresses.collect(),
        relays: state.relays.clone(),
    }
}

impl fmt::Display for AuditScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.kinds.iter().copied().collect();
        let right = if self.is_right() { " " } else { "!" };
        write!(f, "{right} {:<64} {} nodes: {}", self.mutant.name, self.nodes, kinds.join(", "))?;
        self.unable.first().map_or(Ok(()), |why| write!(f, " ({} not judged: {why})", self.unable.len()))
    }
}
