//! After any full and partial syncs, the health checks that the proxy reported are the oracle's.

use std::collections::BTreeMap;

use proptest::test_runner::TestCaseError;
use svclab_oracle::generate::{histories, writes};
use svclab_oracle::{Family, health_checks};
use svclab_properties::node::{addresses, config, families};
use svclab_properties::proxies::changes;
use svclab_properties::sweep::cases;
use svcproxy::kernel::iptables::FakeIptables;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::iptables::syncer::IptablesSyncer;
use svcproxy::model::ObjectKey;
use svcproxy::plan::health::ServiceCheck;

use crate::check_all;
use crate::history::change;

type Published = BTreeMap<ObjectKey, ServiceCheck>;

fn take(proxy: &mut FamilyProxy<IptablesSyncer<FakeIptables>>, published: &mut Published) {
    proxy.sync().unwrap();
    for (service, check) in proxy.take_health_changes() {
        match check {
            Some(check) => published.insert(service, check),
            None => published.remove(&service),
        };
    }
}

#[test]
fn health_checks_are_as_promised() {
    let answered = std::cell::Cell::new([0u64; 2]);
    check_all(300, cases() / 4, &histories(8), |history| {
        let states = history.states();
        let world = &states[0].world;
        for place in &world.nodes {
            for family in families(world) {
                let mut proxy = assemble::iptables(&config(world, &place.name), family, FakeIptables::default());
                proxy.set_addresses(&addresses(world, place));
                let mut published = Published::new();
                proxy.apply(&changes(&states[0].objects).0);
                for (number, state) in states.iter().enumerate() {
                    if number > 0 {
                        let before = &states[number - 1].objects;
                        let written = writes(before, &state.objects).into_iter().filter_map(change);
                        proxy.apply(&written.collect::<Vec<_>>());
                    }
                    take(&mut proxy, &mut published);
                    let of = if family == svcproxy::model::Family::V4 { Family::V4 } else { Family::V6 };
                    let promised = health_checks(&state.objects, &place.name).into_iter();
                    let promised: Vec<_> = promised.filter(|check| check.family == of).collect();
                    if promised.len() != published.len() {
                        return Err(TestCaseError::fail(format!("promised {promised:?}\ntold {published:?}")));
                    }
                    for check in promised {
                        let key = ObjectKey::new(&check.namespace, &check.service);
                        let says = published.get(&key);
                        let right = says.is_some_and(|says| {
                            says.port == check.port
                                && check.local_endpoints.is_none_or(|promised| promised == says.local_endpoints)
                        });
                        if !right {
                            return Err(TestCaseError::fail(format!("{}: {check:?}, published {says:?}", place.name)));
                        }
                        let mut count = answered.get();
                        count[usize::from(check.status() == Some(200))] += 1;
                        answered.set(count);
                    }
                }
            }
        }
        Ok(())
    });
    let answered = answered.get();
    println!("503 and 200: {answered:?}");
    assert!(answered.iter().all(|count| *count > 10), "{answered:?}");
}
