//! Decides which findings of repeated audits are reported: those that two readings of the node show, the settling time
//! apart, on Services that did not change in between.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use svclab_audit::audit::{Finding, Report};
use svclab_snapshot::collect::RecentChanges;

/// A kind, and a service port or frontend: what two audits have in common if both find it. A finding of the whole node
/// has several.
pub(super) type FindingId = (&'static str, String);

pub(super) fn ids_of(finding: &Finding) -> impl Iterator<Item = FindingId> + '_ {
    let alone = finding.services.is_empty().then_some(&finding.service);
    alone.into_iter().chain(&finding.services).map(|service| (finding.kind, service.clone()))
}

pub(super) fn ids(report: &Report) -> BTreeSet<FindingId> {
    report.wrong().flat_map(ids_of).collect()
}

#[derive(Debug)]
pub(super) struct Confirmation {
    settle: Duration,
    /// Findings that are not reported yet, with the time of the first audit that found them.
    pending: BTreeMap<FindingId, Instant>,
    reported: BTreeSet<FindingId>,
}

impl Confirmation {
    pub(super) fn new(settle: Duration) -> Confirmation {
        Confirmation { settle, pending: BTreeMap::new(), reported: BTreeSet::new() }
    }

    /// Takes the findings of a node that was read at `now`. Returns findings to be verified, and then reported.
    pub(super) fn found(
        &mut self,
        now: Instant,
        found: &BTreeSet<FindingId>,
        changed: &RecentChanges,
    ) -> BTreeSet<FindingId> {
        self.reported.retain(|finding| found.contains(finding));
        self.pending.retain(|finding, _| found.contains(finding));
        for finding in found.difference(&self.reported) {
            let since = self.pending.entry(finding.clone()).or_insert(now);
            if has_changed(&finding.1, changed) {
                *since = now;
            }
        }
        let due = self.pending.iter().filter(|(_, since)| now.duration_since(**since) >= self.settle);
        due.map(|(finding, _)| finding.clone()).collect()
    }

    pub(super) fn report(&mut self, verified: BTreeSet<FindingId>) {
        self.pending.retain(|finding, _| !verified.contains(finding));
        self.reported.extend(verified);
    }

    pub(super) fn is_reported(&self, finding: &Finding) -> bool {
        ids_of(finding).any(|id| self.reported.contains(&id))
    }

    pub(super) fn reported(&self) -> &BTreeSet<FindingId> {
        &self.reported
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// When the next pending finding may be verified. Ignores those that were due, and could not be verified.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        self.pending.values().map(|since| *since + self.settle).filter(|due| *due > now).min()
    }
}

/// Whether the Service of a finding, or the Service that had its frontend, changed.
fn has_changed(service: &str, changed: &RecentChanges) -> bool {
    let name = |text: &str| text.split_once('/').map(|(space, name)| (space.to_owned(), name.to_owned()));
    let without_port = service.rsplit_once(':').map_or(service, |(service, _)| service);
    let changed_service =
        [service, without_port].into_iter().filter_map(name).any(|name| changed.services.contains(&name));
    changed_service || service.split_once('/').is_some_and(|(_, frontend)| changed.released.contains(frontend))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(10);

    fn findings(services: &[&str]) -> BTreeSet<FindingId> {
        services.iter().map(|service| ("dropped", (*service).to_owned())).collect()
    }

    #[test]
    fn a_finding_is_due_after_the_settling_time_and_forgotten_once_it_is_gone() {
        let (mut confirmation, start) = (Confirmation::new(SETTLE), Instant::now());
        let quiet = RecentChanges::default();
        let web = findings(&["shop/web:http"]);
        assert!(confirmation.found(start, &web, &quiet).is_empty());
        assert_eq!(confirmation.next_due(start), Some(start + SETTLE));
        assert_eq!(confirmation.next_due(start + SETTLE), None);
        assert!(confirmation.found(start + SETTLE / 2, &web, &quiet).is_empty());
        assert_eq!(confirmation.found(start + SETTLE, &web, &quiet), web);
        confirmation.report(web.clone());
        assert_eq!((confirmation.pending(), confirmation.reported()), (0, &web));
        assert!(confirmation.found(start + SETTLE * 2, &web, &quiet).is_empty(), "it is reported already");
        confirmation.found(start + SETTLE * 3, &findings(&[]), &quiet);
        assert!(confirmation.reported().is_empty());
        assert!(confirmation.found(start + SETTLE * 4, &web, &quiet).is_empty(), "it is new again");
    }

    #[test]
    fn the_time_starts_again_with_every_change_of_the_service() {
        let changed = RecentChanges {
            services: [("shop".to_owned(), "web".to_owned())].into(),
            released: ["10.96.0.1:80".to_owned()].into(),
        };
        for service in ["shop/web:http", "shop/web", "(no service)/10.96.0.1:80"] {
            let (mut confirmation, start) = (Confirmation::new(SETTLE), Instant::now());
            let found = findings(&[service, "shop/other:http"]);
            confirmation.found(start, &found, &RecentChanges::default());
            let due = confirmation.found(start + SETTLE, &found, &changed);
            assert_eq!(due, findings(&["shop/other:http"]), "{service}");
            assert_eq!(confirmation.found(start + SETTLE * 2, &found, &RecentChanges::default()), found);
        }
    }
}
