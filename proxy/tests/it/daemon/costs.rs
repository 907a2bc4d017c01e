//! The cost of each kind of change, in every mode and by every writer.

use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use svcproxy::config::Config;
use svcproxy::kernel::iptables_nft::NfTables;
use svcproxy::kernel::{dummy, ipset, ipvs};
use svcproxy::mode::assemble;
use svcproxy::mode::iptables_family::ipvs::kernel::IpvsAdapters;
use svcproxy::model::{Change, Family};
use svcproxy::relay;

use crate::daemon::kernel::CountedKernel;
use crate::daemon::lab::{DaemonLab, cluster, node, service, slice};
use crate::support::inside;
use svcproxy::testing::key;

const HOUR: Duration = Duration::from_secs(3600);

fn changes() -> Vec<(&'static str, Vec<Change>)> {
    vec![
        ("a start", cluster()),
        ("an endpoint", vec![slice("web", &[10, 12], "TCP")]),
        ("the same again", vec![slice("web", &[10, 12], "TCP")]),
        ("many at once", vec![slice("web", &[11], "TCP"), slice("api", &[9], "TCP")]),
        ("a service that comes", vec![service("new", 9, "TCP"), slice("new", &[90], "TCP")]),
        ("a service that goes", vec![Change::Service(key("new"), None)]),
        ("its endpoints go", vec![Change::EndpointSlice(key("new"), None)]),
        ("an endpoint of UDP that goes", vec![slice("dns", &[30], "UDP")]),
        ("an endpoint of UDP that comes", vec![slice("dns", &[30, 32], "UDP")]),
        ("the last ones go", vec![slice("dns", &[], "UDP")]),
        ("the first one comes", vec![slice("dns", &[30], "UDP")]),
        ("a heartbeat of the node", vec![node("z1", 1)]),
        ("another node", vec![Change::Node("node-b".into(), None)]),
        ("another zone", vec![node("z2", 1)]),
    ]
}

async fn costs(mut lab: DaemonLab) -> Vec<String> {
    let mut lines = Vec::new();
    for (what, changes) in changes() {
        // A start reads the existing rules before there is anything to sync.
        let cost = if lines.is_empty() { lab.cost_so_far(changes).await } else { lab.cost(changes).await };
        lines.push(format!("{what}: {cost}"));
    }
    // Each pod's interface has the gateway's address: with the second pod the list has it twice.
    for (what, host) in [("an endpoint, with an address of a pod's link", 13), ("the same address once more", 14)] {
        lab.kernels[0].addresses.lock().unwrap().local.push("10.244.1.1".parse().unwrap());
        lines.push(format!("{what}: {}", lab.cost(vec![slice("web", &[host], "TCP")]).await));
    }
    lines
}

/// A dump of the tables marks a full sync.
#[tokio::test(flavor = "multi_thread")]
async fn of_iptables_mode_by_commands() {
    let expected = [
        "a start: 1 dumps, 2 restores, 1 conntrack dumps",
        "an endpoint: 1 restores",
        "the same again: nothing",
        "many at once: 1 restores",
        "a service that comes: 1 restores",
        "a service that goes: 1 restores",
        "its endpoints go: nothing",
        "an endpoint of UDP that goes: 1 restores, 1 conntrack dumps",
        "an endpoint of UDP that comes: 1 restores",
        "the last ones go: 1 restores, 2 conntrack dumps",
        "the first one comes: 1 restores, 2 conntrack dumps",
        "a heartbeat of the node: nothing",
        "another node: nothing",
        "another zone: 1 dumps, 1 conntrack dumps",
        "an endpoint, with an address of a pod's link: 1 restores",
        "the same address once more: 1 restores",
    ];
    assert_eq!(costs(DaemonLab::start(HOUR)).await, expected);
}

/// Uses real tables in a namespace, because the number of messages depends on the kernel's state.
#[test]
fn of_iptables_mode_by_netlink() {
    if !inside!() {
        return;
    }
    let expected = [
        "a start: 1 dumps, 2 restores, 1 conntrack dumps, 144 messages",
        "an endpoint: 1 restores, 8 messages",
        "the same again: nothing",
        "many at once: 1 restores, 22 messages",
        "a service that comes: 1 restores, 13 messages",
        "a service that goes: 1 restores, 10 messages",
        "its endpoints go: nothing",
        "an endpoint of UDP that goes: 1 restores, 1 conntrack dumps, 6 messages",
        "an endpoint of UDP that comes: 1 restores, 7 messages",
        "the last ones go: 1 restores, 2 conntrack dumps, 16 messages",
        "the first one comes: 1 restores, 2 conntrack dumps, 17 messages",
        "a heartbeat of the node: nothing",
        "another node: nothing",
        "another zone: 1 dumps, 1 conntrack dumps",
        "an endpoint, with an address of a pod's link: 1 restores, 8 messages",
        "the same address once more: 1 restores, 8 messages",
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let costs = runtime.block_on(async {
        let assemble = |config: &Config, family, kernel: crate::daemon::kernel::Kernel| {
            assemble::iptables(config, family, CountedKernel::netlink(&kernel, elsewhere(family)))
        };
        costs(DaemonLab::start_in(HOUR, None, assemble)).await
    });
    assert_eq!(costs, expected);
}

/// Opens tables in a new network namespace per family, because one family's writes look like another program's to the other.
fn elsewhere(family: Family) -> NfTables {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        NfTables::open(family).unwrap()
    });
    thread.join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ipvs_mode() {
    let lab = DaemonLab::start_in(HOUR, None, |config, family, kernel| {
        let adapters = IpvsAdapters {
            servers: CountedKernel::beside(&kernel, ipvs::FakeIpvs::default()),
            sets: CountedKernel::beside(&kernel, ipset::FakeIpSets::default()),
            device: CountedKernel::beside(&kernel, dummy::FakeDevice::default()),
            rules: kernel,
        };
        assemble::ipvs(config, family, adapters)
    });
    let expected = [
        "a start: 1 dumps, 2 restores, 1 conntrack dumps, 21 lists, 60 messages",
        "an endpoint: 1 lists, 5 messages",
        "the same again: nothing",
        "many at once: 2 lists, 16 messages",
        "a service that comes: 6 messages",
        "a service that goes: 5 messages",
        "its endpoints go: nothing",
        "an endpoint of UDP that goes: 1 conntrack dumps, 2 messages",
        "an endpoint of UDP that comes: 2 messages",
        "the last ones go: 2 conntrack dumps, 4 messages",
        "the first one comes: 2 conntrack dumps, 2 messages",
        "a heartbeat of the node: nothing",
        "another node: nothing",
        "another zone: 1 dumps, 1 conntrack dumps, 26 lists, 1 messages",
        // Node ports are virtual servers on every local address. The second pod adds no address.
        "an endpoint, with an address of a pod's link: 1 dumps, 1 conntrack dumps, 27 lists, 23 messages",
        "the same address once more: 2 lists, 8 messages",
    ];
    assert_eq!(costs(lab).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_userspace_mode() {
    let lab = DaemonLab::start_in(HOUR, None, |config, family, kernel| {
        let relays = CountedKernel::beside(&kernel, relay::FakeRelays::default());
        assemble::userspace(config, family, kernel, relays)
    });
    let expected = [
        "a start: 1 dumps, 2 restores, 1 conntrack dumps, 10 relayed",
        "an endpoint: 1 relayed",
        "the same again: nothing",
        "many at once: 2 relayed",
        "a service that comes: 1 restores, 2 relayed",
        "a service that goes: 1 restores, 2 relayed",
        "its endpoints go: nothing",
        "an endpoint of UDP that goes: 1 conntrack dumps, 1 relayed",
        "an endpoint of UDP that comes: 1 relayed",
        "the last ones go: 1 restores, 2 conntrack dumps, 3 relayed",
        "the first one comes: 1 restores, 2 conntrack dumps, 2 relayed",
        "a heartbeat of the node: nothing",
        "another node: nothing",
        "another zone: 1 dumps, 1 conntrack dumps, 5 relayed",
        "an endpoint, with an address of a pod's link: 1 relayed",
        "the same address once more: 1 relayed",
    ];
    assert_eq!(costs(lab).await, expected);
}
