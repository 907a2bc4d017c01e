//! Reports Services that publish another machine's address: one log line and one Event per Service.

use std::collections::BTreeSet;

use tracing::{info, warn};

use crate::events::{Event, EventSubject, Recorder};
use crate::model::{Family, ObjectKey};
use crate::plan::other_machines::PublishedAddresses;

#[derive(Debug, Default)]
pub(super) struct OtherMachines(BTreeSet<ObjectKey>);

impl OtherMachines {
    /// Ignores a further address of a known Service: with k3s each joining node adds one.
    pub(super) fn note(&mut self, family: Family, now: &PublishedAddresses, events: &Recorder) {
        let now = now.by_service();
        for service in self.0.iter().filter(|service| !now.contains_key(service)) {
            info!(%family, "Service {service} no longer publishes an address of another machine");
        }
        for (service, addresses) in now.iter().filter(|(service, _)| !self.0.contains(service)) {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let note = format!(
                "Service {service} publishes addresses of other machines ({}): they are not bound to this node, and what pods of this node \
                 send there is left to those machines; if that is not meant, change spec.externalIPs or status.loadBalancer",
                addresses.join(", ")
            );
            warn!(%family, "{note}");
            events.record(Event::warning(
                EventSubject::Service((*service).clone()),
                "AddressOfAnotherMachine",
                "SyncProxyRules",
                note,
            ));
        }
        self.0 = now.into_keys().cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Mode, NodeAddresses};
    use crate::mode::assemble;
    use crate::mode::iptables_family::ipvs::kernel::FakeIpvsKernel;
    use crate::model::Change;
    use crate::testing::service;
    use serde_json::json;

    fn web(external_ips: &[&str]) -> Change {
        service("web", json!({"clusterIP": "10.96.0.1", "externalIPs": external_ips, "ports": [{"port": 80}]}))
    }

    #[test]
    fn a_service_that_publishes_another_machines_address_is_reported_once() {
        let config = Config { mode: Mode::Ipvs, ..Config::for_node("n1") };
        let mut proxy = assemble::ipvs(&config, Family::V4, FakeIpvsKernel::default());
        let hops = ["172.18.0.3", "172.18.0.4"].map(|ip| ip.parse().unwrap()).to_vec();
        proxy.set_addresses(&NodeAddresses { next_hops: hops, ..NodeAddresses::default() });
        let (recorder, mut events) = Recorder::new();
        let mut reported = OtherMachines::default();
        let both = ["172.18.0.3", "172.18.0.4"];
        for addresses in [&both[..1], &both, &[], &both[1..]] {
            proxy.apply(&[web(addresses)]);
            proxy.sync().unwrap();
            reported.note(Family::V4, proxy.published_of_other_machines(), &recorder);
        }
        let notes: Vec<String> = std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.note).collect();
        assert_eq!(notes.len(), 2, "again only after it was over: {notes:?}");
        assert!(notes[0].contains("default/web") && notes[0].contains("(172.18.0.3)"), "{notes:?}");
    }
}
