//! Reads all of the node's addresses, while links of pods are added and deleted. Kernels before 6.9 report an
//! interrupted dump, which must be repeated.

use std::fmt::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{inside, shell, wait_for};
use svcproxy::kernel::addresses::{self, Addresses as _};

/// More addresses than fit into one message.
const MANY: u32 = 1500;
/// Kernels before 6.9 keep links in rows by the last eight bits of their index, newest first, and count within a row
/// (`NETDEV_HASHBITS`, `inet_dump_ifaddr`): deleting a link of the row makes a dump skip the next one.
const INDEX: u32 = 300;
const ROW: u32 = 256;

fn address(number: u32) -> String {
    format!("172.{}.{}.{}", 16 + number / 65536, number / 256 % 256, number % 256)
}

#[test]
fn no_address_is_missed_while_links_come_and_go() {
    if !inside!() {
        return;
    }
    shell(&format!("ip link add many index {INDEX} type veth peer name other && ip link set many up"));
    let mut batch = String::new();
    let mut all: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap()];
    for number in 0..MANY {
        let address = address(number);
        writeln!(batch, "addr add {address}/32 dev many").unwrap();
        all.push(address.parse().unwrap());
    }
    let directory = tempfile::tempdir_in("/run").unwrap();
    let (file, churn) = (directory.path().join("batch"), directory.path().join("churn"));
    std::fs::write(&file, batch).unwrap();
    let same_row = |n: u32| INDEX + ROW * n;
    let links =
        (1..50).map(|n| format!("link add a{n} index {} type veth peer name b{n}\nlink del a{n}\n", same_row(n)));
    std::fs::write(&churn, links.collect::<String>()).unwrap();
    shell(&format!("ip -batch {}", file.display()));
    all.sort();
    let is_over = AtomicBool::new(false);
    let missed: Vec<usize> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut ip = Command::new("ip");
                assert!(ip.arg("-batch").arg(&churn).stdout(Stdio::null()).status().unwrap().success());
            }
        });
        let looks = (0..400).map(|_| {
            let mut found = addresses::read().unwrap().local;
            found.retain(IpAddr::is_ipv4);
            found.sort();
            all.iter().filter(|address| found.binary_search(address).is_err()).count()
        });
        let missed = looks.filter(|missed| *missed > 0).collect();
        is_over.store(true, Ordering::Relaxed);
        missed
    });
    assert_eq!(missed, Vec::<usize>::new(), "so many addresses were missed, look by look");
}

#[test]
fn objects_are_read_again_only_after_a_change() {
    if !inside!() {
        return;
    }
    shell("ip link add one type veth peer name other && ip link set one up && ip addr add 192.0.2.1/24 dev one");
    // The kernel announces the missing carrier up to a second later (`linkwatch_event`).
    wait_for("the link's state", || shell("ip -o link show one").contains(" state LOWERLAYERDOWN ").then_some(()));
    let mut reader = addresses::AddressReader::default();
    // A dump shows a new IPv6 address at once; the announcement follows from a work queue (`addrconf_dad_work`).
    let known = |reader: &mut addresses::AddressReader| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while *reader.read().unwrap() != addresses::read().unwrap() {
            assert!(Instant::now() < deadline, "{:?}, not as if it were read now", reader.read().unwrap());
            std::thread::yield_now();
        }
        reader.read().unwrap().local.as_ptr()
    };
    let first = known(&mut reader);
    assert_eq!(known(&mut reader), first, "the very list of before");
    for change in [
        "ip addr add 192.0.2.2/24 dev one",
        "ip -6 addr add fd00:2::1/64 dev one nodad",
        "ip addr del 192.0.2.1/24 dev one",
        "ip link set one down",
        "ip link set one up",
        "ip link del one",
    ] {
        let before = reader.read().unwrap().clone();
        shell(change);
        known(&mut reader);
        assert_ne!(*reader.read().unwrap(), before, "{change}");
    }
}

#[test]
fn gateways_and_tunnel_ends_count_as_other_machines_addresses() {
    if !inside!() {
        return;
    }
    shell(
        "ip link add one type veth peer name other && ip link set one up && ip link set other up && \
         ip addr add 192.0.2.1/24 dev one && ip -6 addr add fd00:2::1/64 dev one nodad && \
         ip link add overlay type vxlan id 1 dstport 4789 dev one && ip link set overlay up && \
         bridge fdb append 02:00:00:00:00:03 dev overlay dst 192.0.2.5 && \
         ip route add 10.244.1.0/24 via 192.0.2.2 && ip -6 route add fd00:244::/64 via fd00:2::2 && \
         ip route add 10.244.2.0/24 nexthop via 192.0.2.3 nexthop via 192.0.2.4",
    );
    let mut reader = addresses::AddressReader::new(true);
    let mut next_hops = || reader.read().unwrap().next_hops.iter().map(IpAddr::to_string).collect::<Vec<_>>();
    let all = ["192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "fd00:2::2"];
    assert_eq!(next_hops(), all);
    shell("ip route del 10.244.1.0/24");
    assert_eq!(next_hops(), all[1..], "a route that goes is a change");
    assert!(addresses::AddressReader::default().read().unwrap().next_hops.is_empty(), "not asked for");
}

#[test]
fn a_change_of_addresses_wakes_the_waiter() {
    if !inside!() {
        return;
    }
    shell("ip link add one type veth peer name other && ip link set one up");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut reader = addresses::AddressReader::default();
    let has = |reader: &mut addresses::AddressReader, text: &str| {
        reader.read().unwrap().local.contains(&text.parse().unwrap())
    };
    assert!(!has(&mut reader, "192.0.2.77"));
    runtime.block_on(async {
        for (change, is_there) in [("add", true), ("del", false)] {
            shell(&format!("ip addr {change} 192.0.2.77/32 dev one"));
            let deadline = tokio::time::sleep(Duration::from_secs(30));
            tokio::pin!(deadline);
            // The kernel may announce other changes of the link first.
            while has(&mut reader, "192.0.2.77") != is_there {
                tokio::select! {
                    () = std::future::poll_fn(|context| reader.poll_changed(context)) => {}
                    () = &mut deadline => panic!("{change}: nothing was heard of it"),
                }
            }
        }
    });
}
