//! A flowtable beside a mode, for connections that have become long: made with the first sync, and kept on the node's links as these come
//! and go. What fails here costs speed at most, and no sync.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tracing::{info, warn};

use super::Mode;
use super::Plans;
use crate::config::NodeAddresses;
use crate::kernel::nftables::Flowtable;
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::Report;

/// When it is tried again after a failure.
const AGAIN: Duration = Duration::from_secs(10);

/// A mode with a flowtable beside it, where one is wanted.
pub struct WithFlowtable<M, F> {
    mode: M,
    beside: Option<Beside<F>>,
}

struct Beside<F> {
    flowtable: F,
    links: BTreeSet<String>,
    /// When there is something to do.
    due: Option<Instant>,
    /// What was said of a failure.
    said: Option<String>,
}

impl<M, F: Flowtable> WithFlowtable<M, F> {
    /// `flowtable`: where one is wanted.
    pub fn new(mode: M, flowtable: Option<F>) -> WithFlowtable<M, F> {
        let beside = |flowtable| Beside { flowtable, links: BTreeSet::new(), due: None, said: None };
        WithFlowtable { mode, beside: flowtable.map(beside) }
    }

    /// The flowtable, for tests.
    pub fn flowtable(&mut self) -> Option<&mut F> {
        self.beside.as_mut().map(|beside| &mut beside.flowtable)
    }
}

impl<F: Flowtable> Beside<F> {
    fn work(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        match self.flowtable.bring(&self.links) {
            Ok(()) => {
                self.due = None;
                if self.said.take().is_some() {
                    info!("long connections go by the flowtable now");
                }
            }
            Err(error) => {
                self.due = Some(now + AGAIN);
                let error = error.to_string();
                if self.said.as_ref() != Some(&error) {
                    warn!(%error, "some connections do not go by the flowtable; it will be tried again");
                    self.said = Some(error);
                }
            }
        }
    }

    fn follow(&mut self, addresses: &NodeAddresses) -> bool {
        let changed = !self.links.iter().eq(&addresses.links);
        if changed {
            self.links = addresses.links.iter().cloned().collect();
            self.due = Some(Instant::now());
        }
        changed
    }
}

impl<M: Mode, F: Flowtable> Mode for WithFlowtable<M, F> {
    type Error = M::Error;

    fn needs_full(&self) -> bool {
        self.mode.needs_full()
    }

    fn require_full_sync(&mut self) {
        self.mode.require_full_sync();
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        self.mode.take_previous_frontends()
    }

    fn relay_ports(&self, name: &ServicePortName) -> Vec<u16> {
        self.mode.relay_ports(name)
    }

    fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        self.mode.refused()
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        self.mode.depends_on(node, before, after)
    }

    /// A link that comes asks for no sync.
    fn addresses_changed(&mut self, addresses: &NodeAddresses) -> bool {
        let of_mode = self.mode.addresses_changed(addresses);
        self.beside.as_mut().is_some_and(|beside| beside.follow(addresses)) || of_mode
    }

    fn detect_flush(&mut self) -> Result<Option<String>, M::Error> {
        let lost = self.mode.detect_flush()?;
        // It is not there before the first sync.
        if lost.is_some() || self.mode.needs_full() {
            return Ok(lost);
        }
        let Some(beside) = self.beside.as_mut().filter(|beside| beside.due.is_none()) else { return Ok(None) };
        let stands = beside.flowtable.stands().unwrap_or(true);
        Ok((!stands).then(|| "the flowtable".to_owned()))
    }

    fn look_ahead(&mut self) {
        self.mode.look_ahead();
    }

    fn compact(&mut self) {
        self.mode.compact();
    }

    fn full(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Result<Report, M::Error> {
        if let Some(beside) = &mut self.beside {
            beside.follow(addresses);
            beside.due = Some(Instant::now());
        }
        self.mode.full(node, addresses, plans)
    }

    fn set_service_ranges(&mut self, ranges: Vec<IpNet>) {
        self.mode.set_service_ranges(ranges);
    }

    fn partial(&mut self, changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>) -> Result<Report, M::Error> {
        self.mode.partial(changed)
    }

    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, M::Error> {
        let due = self.beside.as_mut().and_then(|beside| {
            beside.work(now);
            beside.due
        });
        let next = self.mode.follow_up(now)?;
        Ok(next.into_iter().chain(due).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::kernel::nftables::{Fake, NftTableError};
    use crate::mode::family::FamilyProxy;
    use crate::mode::localhost::WithLocalhost;
    use crate::mode::nftables::syncer::Syncer;
    use crate::model::{Change, Family};

    #[derive(Default)]
    struct InMemory {
        links: Option<BTreeSet<String>>,
        refuses: bool,
        brought: usize,
    }

    impl Flowtable for InMemory {
        fn bring(&mut self, links: &BTreeSet<String>) -> Result<(), NftTableError> {
            self.brought += 1;
            if self.refuses {
                return Err(NftTableError { operation: "x".to_owned(), reason: "y".to_owned() });
            }
            self.links = Some(links.clone());
            Ok(())
        }

        fn stands(&mut self) -> Result<bool, NftTableError> {
            Ok(self.links.is_some())
        }
    }

    fn links(links: &[&str]) -> NodeAddresses {
        NodeAddresses { links: links.iter().map(|link| (*link).to_owned()).collect(), ..NodeAddresses::default() }
    }

    #[test]
    fn it_follows_links_without_a_sync_and_comes_back_when_it_is_lost() {
        let mode = WithFlowtable::new(Syncer::new(Fake::new(Family::V4)), Some(InMemory::default()));
        let mut proxy = FamilyProxy::with_mode(Config::for_node("n"), Family::V4, mode);
        let later = || Instant::now() + Duration::from_secs(60);
        proxy.set_addresses(&links(&["eth0"]));
        assert!(proxy.sync().unwrap().full);
        assert_eq!(proxy.follow_up(later()).unwrap(), None);
        let has = |proxy: &mut FamilyProxy<WithFlowtable<_, InMemory>>| {
            let found: &BTreeSet<String> = proxy.mode().flowtable().unwrap().links.as_ref().unwrap();
            found.iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(has(&mut proxy), ["eth0"]);
        assert!(proxy.set_addresses(&links(&["eth0", "veth1"])), "there is something to do");
        assert!(!proxy.is_due(), "and it is no sync");
        proxy.mode().flowtable().unwrap().refuses = true;
        assert!(proxy.follow_up(later()).unwrap().is_some(), "it will be tried again");
        proxy.mode().flowtable().unwrap().refuses = false;
        let again = later() + AGAIN;
        assert_eq!(proxy.follow_up(again).unwrap(), None);
        assert_eq!(has(&mut proxy), ["eth0", "veth1"]);
        assert!(!proxy.set_addresses(&links(&["eth0", "veth1"])));
        let brought = proxy.mode().flowtable().unwrap().brought;
        assert_eq!(proxy.follow_up(again).unwrap(), None);
        assert_eq!(proxy.mode().flowtable().unwrap().brought, brought, "what does not change costs nothing");
        assert_eq!(proxy.detect_flush().unwrap(), None);
        proxy.mode().flowtable().unwrap().links = None;
        assert_eq!(proxy.detect_flush().unwrap().as_deref(), Some("the flowtable"));
    }

    /// As the program has it: what is around a mode hands on what it does nothing about.
    #[test]
    fn ranges_of_cluster_ips_come_through() {
        let mode = WithFlowtable::new(Syncer::new(Fake::new(Family::V4)), Some(InMemory::default()));
        let mode = WithLocalhost::new(mode, None::<crate::relay::Fake>);
        let config = Config { mode: crate::config::Mode::Nftables, ..Config::for_node("n") };
        let mut proxy = FamilyProxy::with_mode(config, Family::V4, mode);
        assert!(proxy.sync().unwrap().full);
        let range = serde_json::json!({ "metadata": { "name": "more" }, "spec": { "cidrs": ["10.96.0.0/16"] } });
        let range = serde_json::from_value(range).unwrap();
        proxy.apply([&Change::ServiceCidr("more".to_owned(), Some(std::sync::Arc::new(range)))]);
        let report = proxy.sync().unwrap();
        assert_eq!((report.full, report.changes), (false, 1));
    }
}
