//! Maintains the flowtable for long connections in nftables mode, with the node's current links. A failure costs only
//! speed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::Plans;
use super::companion::Companion;
use crate::config::NodeAddresses;
use crate::kernel::nftables::Flowtable;

const RETRY: Duration = Duration::from_secs(10);

pub struct LongConnections<F> {
    flowtable: F,
    links: BTreeSet<String>,
    due: Option<Instant>,
    /// The last logged failure.
    logged: Option<String>,
}

impl<F: Flowtable> LongConnections<F> {
    pub fn new(flowtable: F) -> LongConnections<F> {
        LongConnections { flowtable, links: BTreeSet::new(), due: None, logged: None }
    }

    fn update(&mut self, now: Instant) {
        match self.flowtable.bring(&self.links) {
            Ok(()) => {
                self.due = None;
                if self.logged.take().is_some() {
                    info!("the flowtable now offloads long connections");
                }
            }
            Err(error) => {
                self.due = Some(now + RETRY);
                let error = error.to_string();
                if self.logged.as_ref() != Some(&error) {
                    warn!(%error, "cannot update the flowtable: some connections are not offloaded; the proxy will retry");
                    self.logged = Some(error);
                }
            }
        }
    }
}

impl<F: Flowtable + Send + 'static> Companion for LongConnections<F> {
    fn full(&mut self, addresses: &NodeAddresses, _: &dyn Plans) {
        self.addresses_changed(addresses);
        self.due = Some(Instant::now());
    }

    fn addresses_changed(&mut self, addresses: &NodeAddresses) -> bool {
        let changed = !self.links.iter().eq(&addresses.links);
        if changed {
            self.links = addresses.links.iter().cloned().collect();
            self.due = Some(Instant::now());
        }
        changed
    }

    fn detect_flush(&mut self) -> Option<String> {
        let is_deleted = self.due.is_none() && !self.flowtable.stands().unwrap_or(true);
        is_deleted.then(|| "the flowtable".to_owned())
    }

    fn follow_up(&mut self, now: Instant) -> Option<Instant> {
        if self.due.is_some_and(|due| due <= now) {
            self.update(now);
        }
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::kernel::nftables::{FakeNftTable, NftTableError};
    use crate::mode::family::FamilyProxy;
    use crate::mode::nftables::syncer::NftablesSyncer;
    use crate::model::Family;

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

    type Proxy = FamilyProxy<NftablesSyncer<FakeNftTable>>;

    fn flowtable(proxy: &mut Proxy) -> &mut InMemory {
        &mut proxy.companion::<LongConnections<InMemory>>().unwrap().flowtable
    }

    #[test]
    fn the_flowtable_follows_links_without_a_sync_and_a_deleted_one_is_reported() {
        let proxy = FamilyProxy::with_mode(
            Config::for_node("n"),
            Family::V4,
            NftablesSyncer::new(FakeNftTable::new(Family::V4)),
        );
        let mut proxy = proxy.with_companion(LongConnections::new(InMemory::default()));
        let later = || Instant::now() + Duration::from_secs(60);
        proxy.set_addresses(&links(&["eth0"]));
        assert!(proxy.sync().unwrap().full);
        assert_eq!(proxy.follow_up(later()).unwrap(), None);
        let has = |proxy: &mut Proxy| {
            let found: &BTreeSet<String> = flowtable(proxy).links.as_ref().unwrap();
            found.iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(has(&mut proxy), ["eth0"]);
        assert!(proxy.set_addresses(&links(&["eth0", "veth1"])), "follow_up is due");
        assert!(!proxy.is_due(), "a changed link requires no sync");
        flowtable(&mut proxy).refuses = true;
        assert!(proxy.follow_up(later()).unwrap().is_some(), "a failure is retried");
        flowtable(&mut proxy).refuses = false;
        let again = later() + RETRY;
        assert_eq!(proxy.follow_up(again).unwrap(), None);
        assert_eq!(has(&mut proxy), ["eth0", "veth1"]);
        assert!(!proxy.set_addresses(&links(&["eth0", "veth1"])));
        let brought = flowtable(&mut proxy).brought;
        assert_eq!(proxy.follow_up(again).unwrap(), None);
        assert_eq!(flowtable(&mut proxy).brought, brought, "nothing is sent without a change");
        assert_eq!(proxy.detect_flush().unwrap(), None);
        flowtable(&mut proxy).links = None;
        assert_eq!(proxy.detect_flush().unwrap().as_deref(), Some("the flowtable"));
    }
}
