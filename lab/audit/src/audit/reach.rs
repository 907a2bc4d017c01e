//! Which callers reach which frontends: a table.

use std::net::SocketAddr;

use svclab_oracle::{Family, FrontendKind, ServiceFrontend};
use svclab_sim::network::{NetworkError, Outcomes, PacketVerdict as Found};

use super::sources::{AuditCaller, SourceKind};
use super::{Audit, AuditCall, SOURCE_PORT};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It is answered.
    Answered,
    /// It is answered with this probability.
    InPart(String),
    /// It is refused or rejected, and the caller is told so.
    Refused,
    /// It gets no answer.
    Dropped,
    /// The caller has no way to make it.
    NoCall,
    /// The outcome is not known, for this reason.
    Unknown(String),
}

/// A frontend and a cell per caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachRow {
    /// The frontend.
    pub target: String,
    /// What becomes of each caller's call.
    pub cells: Vec<Reach>,
}

/// All callers by all frontends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachTable {
    /// The callers.
    pub callers: Vec<String>,
    /// The frontends.
    pub rows: Vec<ReachRow>,
}

impl Reach {
    /// Returns what becomes of a call with these outcomes.
    #[must_use]
    pub fn of(outcomes: &Outcomes) -> Reach {
        let is_answered = |verdict: &Found| matches!(verdict, Found::Answered { .. });
        let is_refused = |verdict: &Found| {
            matches!(verdict, Found::Refused { delivered: true, .. } | Found::Rejected { delivered: true, .. })
        };
        let all = |which: &dyn Fn(&Found) -> bool| outcomes.outcomes.iter().all(|one| which(&one.verdict));
        if all(&is_answered) {
            Reach::Answered
        } else if all(&is_refused) {
            Reach::Refused
        } else if all(&|verdict| !is_answered(verdict)) {
            Reach::Dropped
        } else {
            Reach::InPart(outcomes.probability(is_answered).to_string())
        }
    }
}

impl Audit<'_> {
    pub(super) fn reach(&self) -> ReachTable {
        let callers = &self.sources.common;
        let rows = self.frontends.iter().flat_map(|frontend| {
            let to = self.destinations(frontend).into_iter();
            to.map(move |to| ReachRow {
                target: format!("{}/{} {to}/{}", word(frontend.kind), frontend.service, frontend.protocol),
                cells: callers.iter().map(|source| self.cell(frontend, source, to)).collect(),
            })
        });
        ReachTable { rows: rows.collect(), callers: callers.iter().map(|source| source.label.clone()).collect() }
    }

    fn cell(&self, frontend: &ServiceFrontend, source: &AuditCaller, to: SocketAddr) -> Reach {
        let is_other_family = source.address.is_some_and(|address| Family::of(address) != frontend.family);
        // Only the node itself calls loopback addresses.
        if is_other_family || to.ip().is_loopback() != (source.kind == SourceKind::Loopback) {
            return Reach::NoCall;
        }
        let asked = AuditCall { frontend, source, source_port: SOURCE_PORT, to };
        let found = self.machines.network.outcomes(&self.flow(&asked));
        if let Some(why) = self.unknown_program(&asked, found.as_ref().ok()) {
            return Reach::Unknown(why);
        }
        match found {
            Ok(found) => Reach::of(&found),
            Err(NetworkError::NoSource { .. }) => Reach::NoCall,
            Err(error) => Reach::Unknown(error.to_string()),
        }
    }
}

fn word(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => "service",
        FrontendKind::NodePort => "nodePort",
        FrontendKind::LoadBalancerIp => "loadBalancer",
        FrontendKind::ExternalIp => "externalIP",
    }
}
