//! Reports lost claims to frontends: one log line and one Event each.

use std::collections::BTreeSet;

use tracing::{info, warn};

use crate::events::{Event, EventSubject, Recorder};
use crate::model::{Family, ServicePortName};
use crate::state::claims::{Claim, ClaimRank, Dispute};
use crate::state::service::Frontend;

/// A Service loses a node port or health check in both families, but that is reported once.
#[derive(Debug, Default)]
pub(super) struct Disputes {
    standing: BTreeSet<(ServicePortName, Claim, Family)>,
}

impl Disputes {
    pub(super) fn note(&mut self, family: Family, disputes: Vec<Dispute>, events: &Recorder) -> usize {
        for Dispute { loser, claim, winner } in disputes {
            let in_a_family = |family| (loser.clone(), claim, family);
            let known = Family::ALL.into_iter().any(|family| self.standing.contains(&in_a_family(family)));
            match winner {
                Some((winner, rank)) => {
                    self.standing.insert(in_a_family(family));
                    if !known {
                        report(&loser, claim, &winner, rank, events);
                    }
                }
                None => {
                    self.standing.remove(&in_a_family(family));
                    if !Family::ALL.into_iter().any(|family| self.standing.contains(&in_a_family(family))) {
                        info!("the claim of Service {} to {claim} is no longer disputed", loser.service);
                    }
                }
            }
        }
        self.standing.iter().filter(|(.., of)| *of == family).count()
    }
}

fn report(loser: &ServicePortName, claim: Claim, winner: &ServicePortName, rank: ClaimRank, events: &Recorder) {
    let (service, has) = (&loser.service, &winner.service);
    let by = match rank {
        ClaimRank::ClusterIp => "as its cluster IP",
        ClaimRank::Other => "and is older, or the first by name",
    };
    let field = match claim {
        Claim::Frontend(_, Frontend::Address(_)) => "its addresses (spec.externalIPs, status.loadBalancer)",
        Claim::Frontend(_, Frontend::NodePort(_)) => "its nodePort",
        Claim::HealthCheck(_) => "its healthCheckNodePort",
    };
    let note =
        format!("Service {service} does not get {claim}: Service {has} has it {by}; change {field}, or the other's");
    warn!("{note}");
    events.record(Event::warning(EventSubject::Service(service.clone()), "FrontendTaken", "SyncProxyRules", note));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;

    fn name(service: &str) -> ServicePortName {
        crate::testing::port_name(service, Protocol::Tcp)
    }

    #[test]
    fn a_dispute_in_both_families_is_reported_once_until_it_ends_in_both() {
        let (recorder, mut events) = Recorder::new();
        let mut disputes = Disputes::default();
        let claim = Claim::Frontend(Protocol::Tcp, Frontend::NodePort(30_080));
        let lost = || vec![Dispute { loser: name("b"), claim, winner: Some((name("a"), ClaimRank::Other)) }];
        let over = || vec![Dispute { loser: name("b"), claim, winner: None }];
        let mut reported = || std::iter::from_fn(|| events.try_recv().ok()).collect::<Vec<Event>>();
        assert_eq!(disputes.note(Family::V4, lost(), &recorder), 1);
        assert_eq!(disputes.note(Family::V6, lost(), &recorder), 1);
        let first = reported();
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].about, EventSubject::Service(name("b").service));
        assert!(first[0].note.contains("default/b") && first[0].note.contains("default/a"), "{}", first[0].note);
        assert!(first[0].note.contains("node port 30080/tcp"), "{}", first[0].note);
        assert_eq!(disputes.note(Family::V4, over(), &recorder), 0);
        disputes.note(Family::V4, lost(), &recorder);
        assert_eq!(reported(), [], "it has stood all the time in the other family");
        disputes.note(Family::V4, over(), &recorder);
        disputes.note(Family::V6, over(), &recorder);
        disputes.note(Family::V6, lost(), &recorder);
        assert_eq!(reported().len(), 1);
    }
}
