//! A Service a thousand times larger than others.

use serde_json::{Value, json};
use svcproxy::config::{Config, Mode};
use svcproxy::kernel::nftables::FakeNftTable;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::nftables::syncer::NftablesSyncer;
use svcproxy::model::{Change, Family};
use svcproxy::nftables::ElementValue as Element;

use svcproxy::relay;
use svcproxy::testing;

type NftablesProxy = FamilyProxy<NftablesSyncer<FakeNftTable>>;

const PORTS: u16 = 20_000;

fn service(name: &str, ip: &str, ports: impl Iterator<Item = u16>) -> Change {
    let ports: Vec<Value> = ports.map(|port| json!({ "name": format!("p{port}"), "port": port })).collect();
    testing::service(name, json!({ "clusterIP": ip, "ports": ports }))
}

fn slice(service: &str, host: u8, ports: impl Iterator<Item = u16>) -> Change {
    let ports: Vec<Value> = ports.map(|port| json!({ "name": format!("p{port}"), "port": port })).collect();
    testing::slice(service, json!([{ "addresses": [format!("10.244.1.{host}")] }]), json!(ports))
}

fn endpoints(proxy: &mut NftablesProxy, ip: [u8; 4]) -> usize {
    let content = proxy.mode().table().table.as_ref().unwrap();
    let leads = |value: &Element| matches!(value, Element::Endpoint(endpoint) if endpoint.bytes().starts_with(&ip));
    content.elements.values().filter(|value| leads(value)).count()
}

#[test]
fn a_service_of_many_ports_delays_no_other() {
    let config = Config { mode: Mode::Nftables, ..Config::for_node("node-a") };
    let mut proxy =
        assemble::nftables(&config, Family::V4, FakeNftTable::new(Family::V4), |_| relay::FakeRelays::default());
    let (large, small) = ([10, 244, 1, 2], [10, 244, 1, 9]);
    proxy.apply(&[service("a-large", "10.96.0.1", 1..=PORTS), slice("a-large", 1, 1..=PORTS)]);
    proxy.sync().unwrap();
    proxy.apply(&[slice("a-large", 2, 1..=PORTS)]);
    proxy.apply(&[service("small", "10.96.0.2", 80..=80), slice("small", 9, 80..=80)]);
    assert!(!proxy.sync().unwrap().full && proxy.has_rest());
    let of_large = endpoints(&mut proxy, large);
    assert_eq!(endpoints(&mut proxy, small), 1);
    assert!(of_large > 0 && of_large < usize::from(PORTS) / 5, "{of_large}");
    let mut syncs = 1;
    while proxy.has_rest() {
        proxy.sync().unwrap();
        syncs += 1;
    }
    assert!(syncs < 15 && endpoints(&mut proxy, large) == usize::from(PORTS), "{syncs}");
}
