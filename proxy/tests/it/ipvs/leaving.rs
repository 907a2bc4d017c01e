//! The teardown of IPVS mode after a start in another mode.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use svcproxy::config::NodeAddresses;
use svcproxy::kernel::conntrack::{Conntrack, FlowFilter, ScanStep};
use svcproxy::kernel::dummy::ServiceDevice;
use svcproxy::kernel::iptables::Table;
use svcproxy::mode::assemble;
use svcproxy::mode::iptables_family::ipvs::kernel::FakeIpvsKernel as Fake;
use svcproxy::mode::iptables_family::ipvs::teardown::IpvsTeardown;
use svcproxy::model::{Family, Protocol};
use svcproxy::plan::stale_flows::Flow;

use super::{LIMIT, config, proxy, service, slice, tcp, web};

struct Flows(Vec<Flow>);

impl Conntrack for Flows {
    fn delete_some(
        &mut self,
        _: Family,
        _: &[FlowFilter],
        _: bool,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> std::io::Result<ScanStep> {
        let seen = self.0.len();
        self.0.retain(|flow| !stale(flow));
        Ok(ScanStep { seen, deleted: seen - self.0.len(), is_last: true, ..ScanStep::default() })
    }

    fn clients(&mut self, _: Family) -> std::io::Result<BTreeSet<IpAddr>> {
        Ok(self.0.iter().map(|flow| flow.client).collect())
    }
}

const UDP_ADDRESS: &str = "10.96.0.53";

fn flow(protocol: Protocol, destination: &str, by_ipvs: bool) -> Flow {
    Flow {
        protocol,
        client: "10.244.0.9".parse().unwrap(),
        destination: destination.parse().unwrap(),
        server: "10.244.0.1:8080".parse().unwrap(),
        translated: true,
        by_ipvs,
    }
}

fn left() -> Fake {
    let mut ipvs = proxy(Fake::default());
    ipvs.apply(&web(&["10.244.0.1", "10.244.0.2"]));
    ipvs.apply(&[service("dns", UDP_ADDRESS, &json!([{ "port": 53, "protocol": "UDP" }]))]);
    ipvs.apply(&[slice("dns", &["10.244.0.1"], "UDP")]);
    ipvs.sync().unwrap();
    ipvs.mode().kernel().clone()
}

fn teardown(kernel: Fake, flows: Vec<Flow>) -> IpvsTeardown<Fake, Flows> {
    IpvsTeardown::new(kernel, Flows(flows), vec!["192.0.2.1".parse().unwrap()], LIMIT)
}

fn is_gone(kernel: &Fake) -> bool {
    kernel.servers.servers.is_empty() && kernel.sets.sets.is_empty() && kernel.device.addresses.is_none()
}

/// Virtual servers stay while they have connections. UDP flows are deleted with their server.
#[test]
fn virtual_servers_are_removed_after_their_connections() {
    let by_rule = flow(Protocol::Udp, "10.96.0.53:53", false);
    let others = flow(Protocol::Udp, "203.0.113.200:53", true);
    let connection = flow(Protocol::Tcp, "10.96.0.1:80", true);
    let flows = vec![flow(Protocol::Udp, "10.96.0.53:53", true), by_rule, others, connection];
    let mut kernel = left();
    kernel.servers.connect(&tcp("10.96.0.1:80"), &"10.244.0.1:8080".parse().unwrap(), 1);
    let now = Instant::now();
    let mut leaving = teardown(kernel, flows);
    assert!(leaving.work(now).unwrap().is_some());
    assert_eq!(leaving.work(now + LIMIT).unwrap(), None);
    let (kernel, flows) = leaving.into_kernel();
    assert_eq!(flows.0, [by_rule, others, connection]);
    assert!(is_gone(&kernel));
}

/// The address stays for the node's own connections; new ones use another address.
#[test]
fn an_address_stays_while_it_is_the_source_of_the_nodes_connections() {
    let address: IpAddr = "10.96.0.1".parse().unwrap();
    let of_node = Flow { client: address, ..flow(Protocol::Tcp, "10.96.0.1:80", false) };
    let now = Instant::now();
    let mut busy = teardown(left(), vec![of_node, flow(Protocol::Tcp, "10.96.0.1:80", false)]);
    for later in [Duration::ZERO, Duration::from_secs(5)] {
        assert!(busy.work(now + later).unwrap().is_some());
    }
    let (mut kernel, flows) = busy.into_kernel();
    assert!(kernel.device.addresses(Family::V4).unwrap().into_keys().eq([address]));
    assert_eq!(kernel.device.yielded, BTreeMap::from([(address, "192.0.2.1".parse().unwrap())]));
    assert!(kernel.servers.servers.is_empty(), "nothing is led by IPVS any more");
    assert!(!kernel.sets.sets.is_empty(), "whose the address is stays written down");

    // The connection, or the time limit, has ended.
    let mut idle = teardown(kernel.clone(), flows.0[1..].to_vec());
    assert_eq!(idle.work(now).unwrap(), None);
    assert!(is_gone(&idle.into_kernel().0));
    let mut late = teardown(kernel, flows.0);
    assert!(late.work(now).unwrap().is_some());
    assert_eq!(late.work(now + LIMIT).unwrap(), None);
    let (kernel, _) = late.into_kernel();
    assert!(is_gone(&kernel) && kernel.device.yielded.is_empty());
}

#[test]
fn a_start_removes_the_rules_of_another_mode() {
    let changes = web(&["10.244.0.1", "10.244.0.2"]);
    let addresses = NodeAddresses { local: vec!["192.0.2.1".parse().unwrap()], ..NodeAddresses::default() };
    let fresh = |kernel: svcproxy::kernel::iptables::FakeIptables| {
        let mut proxy = assemble::iptables(&config(), Family::V4, kernel);
        proxy.set_addresses(&addresses);
        proxy.apply(&changes);
        proxy.sync().unwrap();
        proxy.mode().kernel().tables.clone()
    };
    let guard = |tables: &mut BTreeMap<Table, BTreeMap<String, Vec<String>>>| {
        let filter = tables.get_mut(&Table::Filter).unwrap();
        filter.remove("KUBE-FIREWALL");
        filter.values_mut().for_each(|rules| rules.retain(|rule| !rule.contains("KUBE-FIREWALL")));
    };
    let mut in_iptables = fresh(svcproxy::kernel::iptables::FakeIptables::default());
    let mut ipvs = proxy(Fake::default());
    ipvs.apply(&changes);
    ipvs.sync().unwrap();
    let in_ipvs = ipvs.mode().kernel().rules.tables.clone();

    // iptables, then IPVS: only the guard of the loopback range stays, because route_localnet may stay set.
    let mut kernel = Fake::default();
    kernel.rules.tables = in_iptables.clone();
    let mut after = proxy(kernel);
    after.apply(&changes);
    after.sync().unwrap();
    let mut tables = after.mode().kernel().rules.tables.clone();
    guard(&mut tables);
    let sorted = |tables: &BTreeMap<Table, BTreeMap<String, Vec<String>>>| {
        let mut tables = tables.clone();
        tables.values_mut().flat_map(BTreeMap::values_mut).for_each(|rules| rules.sort());
        tables
    };
    assert_eq!(sorted(&tables), sorted(&in_ipvs));

    // From IPVS back to iptables.
    let mut back = fresh(ipvs.mode().kernel().rules.clone());
    guard(&mut back);
    guard(&mut in_iptables);
    assert_eq!(sorted(&back), sorted(&in_iptables));
}
