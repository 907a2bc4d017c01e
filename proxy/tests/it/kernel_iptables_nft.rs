//! Netlink and the commands write the same tables.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::changes::any_change;
use crate::support::{changes_of_every_kind, cluster_cidrs, configs_of_every_rule, inside, shell};
use nix::sched::{CloneFlags, unshare};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use svcproxy::config::{Config, NodeAddresses, Variant};
use svcproxy::kernel::iptables::Commands;
use svcproxy::kernel::iptables_nft::NfTables;
use svcproxy::kernel::packet_filter::PacketFilter;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::iptables::cleanup::cleanup;
use svcproxy::mode::iptables_family::iptables::syncer::IptablesSyncer;
use svcproxy::model::{Change, Family};
use svcproxy::ruleset::Table;

struct Elsewhere {
    namespace: File,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Elsewhere { namespace: thread.join().unwrap() }
    }

    fn shell(&self, line: &str) -> String {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd());
        shell(&format!("nsenter --net={path} sh -c '{line}'"))
    }

    fn open(&self, family: Family) -> NfTables {
        let namespace = self.namespace.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            NfTables::open(family).unwrap()
        });
        thread.join().unwrap()
    }

    fn dump(&self, family: Family) -> String {
        without_counters(&self.shell(save(family)))
    }
}

fn save(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables-nft-save",
        Family::V6 => "ip6tables-nft-save",
    }
}

fn without_counters(dump: &str) -> String {
    let lines = dump.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap_or(line).to_owned() + "\n").collect()
}

fn proxy<K: PacketFilter>(config: &Config, family: Family, kernel: K) -> FamilyProxy<IptablesSyncer<K>> {
    let mut proxy = assemble::iptables(config, family, kernel);
    let (v4, v6) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    proxy.set_addresses(&NodeAddresses { local: vec![v4, v6], primary: vec![v4, v6], ..NodeAddresses::default() });
    proxy
}

fn commands(family: Family) -> Commands {
    Commands::find(family, Variant::Nft).unwrap()
}

fn cluster_cidr() -> Config {
    Config { detect_local: cluster_cidrs(), ..Config::for_node("node-a") }
}

#[test]
fn every_form_of_rule_equals_the_commands_and_reads_back() {
    if !inside!() {
        return;
    }
    let changes = changes_of_every_kind(&[2, 3, 4, 5, 6, 7, 8]);
    let configs = configs_of_every_rule();
    for family in Family::ALL {
        let elsewhere = Elsewhere::new();
        for config in &configs {
            let mut by_commands = proxy(config, family, commands(family));
            let mut by_netlink = proxy(config, family, elsewhere.open(family));
            by_commands.apply(&changes);
            by_netlink.apply(&changes);
            assert_eq!(by_netlink.sync().unwrap(), by_commands.sync().unwrap(), "{family} {config:?}");
            assert_eq!(elsewhere.dump(family), without_counters(&shell(save(family))), "{family} {config:?}");
            for mut second in
                [proxy(config, family, elsewhere.open(family)), proxy(config, family, NfTables::open(family).unwrap())]
            {
                second.apply(&changes);
                let report = second.sync().unwrap();
                assert!(report.full && report.is_empty(), "{family} {config:?}: {report:?}");
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Change(Box<Change>),
    Sync,
    Restart,
    /// Another program flushes nat, and restores its own jump.
    Flush,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        19 => any_change().prop_map(|change| Event::Change(Box::new(change))),
        6 => Just(Event::Sync),
        1 => Just(Event::Restart),
        1 => Just(Event::Flush),
    ]
}

#[test]
fn every_history_ends_as_with_the_commands() {
    if !inside!() {
        return;
    }
    let config = cluster_cidr();
    let mut runner =
        TestRunner::new_with_rng(ProptestConfig::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (mut syncs, family) = (0, Family::V4);
    let elsewhere = Elsewhere::new();
    let foreign = "iptables-nft -t nat -N DOCKER; iptables-nft -t nat -A DOCKER -p tcp -j RETURN; iptables-nft -t nat -A PREROUTING -j DOCKER; iptables-nft -P FORWARD DROP";
    for case in 0..10 {
        let events = prop::collection::vec(any_event(), 10..50).new_tree(&mut runner).unwrap().current();
        for flush in [
            "iptables-nft -F",
            "iptables-nft -t nat -F",
            "iptables-nft -t nat -X",
            "iptables-nft -X",
            "iptables-nft -t mangle -X",
        ] {
            shell(flush);
            elsewhere.shell(flush);
        }
        shell(foreign);
        elsewhere.shell(foreign);
        let mut by_commands = proxy(&config, family, commands(family));
        let mut by_netlink = proxy(&config, family, elsewhere.open(family));
        let mut changes = Vec::new();
        for event in events.into_iter().chain([Event::Sync]) {
            match event {
                Event::Change(change) => {
                    by_commands.apply([&*change]);
                    by_netlink.apply([&*change]);
                    changes.push(*change);
                }
                Event::Sync => {
                    assert_eq!(by_netlink.sync().unwrap(), by_commands.sync().unwrap(), "case {case}");
                    assert_eq!(elsewhere.dump(family), without_counters(&shell(save(family))), "case {case}");
                    syncs += 1;
                }
                Event::Restart => {
                    by_commands = proxy(&config, family, commands(family));
                    by_netlink = proxy(&config, family, elsewhere.open(family));
                    by_commands.apply(&changes);
                    by_netlink.apply(&changes);
                }
                Event::Flush => {
                    let flush = "iptables-nft -F KUBE-SERVICES || true; iptables-nft -t nat -F; iptables-nft -t nat -A PREROUTING -j DOCKER";
                    shell(flush);
                    elsewhere.shell(flush);
                    let lost = (by_commands.detect_flush().unwrap(), by_netlink.detect_flush().unwrap());
                    assert_eq!(lost.0, lost.1, "case {case}");
                    by_commands.require_full_sync();
                    by_netlink.require_full_sync();
                }
            }
        }
        let removed = (cleanup(&mut elsewhere.open(family)).unwrap(), cleanup(&mut commands(family)).unwrap());
        assert_eq!(removed.0, removed.1, "case {case}");
        assert_eq!(elsewhere.dump(family), without_counters(&shell(save(family))), "case {case}");
    }
    assert!(syncs > 40, "{syncs}");
}

/// `iptables-nft -X` deletes the built-in chains of empty tables, and `nft flush ruleset` the tables.
#[test]
fn a_deleted_table_is_created_by_the_next_sync() {
    if !inside!() {
        return;
    }
    let mut by_netlink = proxy(&cluster_cidr(), Family::V4, NfTables::open(Family::V4).unwrap());
    by_netlink.sync().unwrap();
    let whole = without_counters(&shell(save(Family::V4)));
    for table in ["filter", "nat", "mangle"] {
        let batch = || {
            let of = nf_tables::Table::new(nf_tables::Family::Ipv4, table);
            let mut batch = nf_tables::Batch::new();
            batch.delete_table(of).unwrap();
            batch
        };
        nf_tables::NfSocket::open().unwrap().commit(&batch()).unwrap();
        assert!(by_netlink.detect_flush().unwrap().is_some(), "{table}");
        by_netlink.require_full_sync();
        by_netlink.sync().unwrap();
        let mended = without_counters(&shell(save(Family::V4)));
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&mended), sorted(&whole), "{table}");
    }
}

/// A sync deletes another program's rule in a chain of the proxy.
#[test]
fn unchanged_rules_keep_their_counters() {
    if !inside!() {
        return;
    }
    let mut by_netlink = proxy(&cluster_cidr(), Family::V4, NfTables::open(Family::V4).unwrap());
    by_netlink.apply(&changes_of_every_kind(&[2, 3, 4]));
    by_netlink.sync().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"counts in KUBE-POSTROUTING", "127.0.0.1:9").unwrap();
    let counted = |tables: &mut NfTables| {
        let rules = tables.counted(Table::Nat, Some("KUBE-POSTROUTING")).unwrap();
        rules.into_iter().map(|rule| rule.packets).sum::<u64>()
    };
    let before = counted(by_netlink.mode().kernel());
    assert!(before > 0, "{}", shell("iptables-nft-save -c"));
    shell("iptables-nft -t nat -I KUBE-POSTROUTING 2 -s 192.0.2.77 -j ACCEPT");
    by_netlink.require_full_sync();
    assert!(!by_netlink.sync().unwrap().is_empty());
    assert!(!shell("iptables-nft-save").contains("192.0.2.77"));
    assert_eq!(counted(by_netlink.mode().kernel()), before);
}

/// A successor compares thousands of rules on two threads, and lists the tables before it knows the wanted rules.
#[test]
fn a_successor_sends_what_differs() {
    if !inside!() {
        return;
    }
    let changes = changes_of_every_kind(&(2..=250).collect::<Vec<u8>>());
    let successor = |damage: &str| {
        let mut tables = NfTables::open(Family::V4).unwrap().with_comparer().unwrap();
        let messages = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&messages);
        tables.observe(Box::new(move |batch| {
            seen.fetch_add(batch.messages(), Ordering::Relaxed);
        }));
        let mut proxy = proxy(&cluster_cidr(), Family::V4, tables);
        proxy.look_ahead();
        if !damage.is_empty() {
            shell(damage);
        }
        proxy.apply(&changes);
        proxy.sync().unwrap();
        assert!(proxy.refused().is_empty(), "{:?}", proxy.refused().values().next());
        messages.load(Ordering::Relaxed)
    };
    assert!(successor("") > 5000);
    let whole = without_counters(&shell(save(Family::V4)));
    let stands = || {
        let now = without_counters(&shell(save(Family::V4)));
        let other = now.lines().zip(whole.lines()).find(|(now, whole)| now != whole);
        assert!(now == whole, "{other:?}");
    };
    assert_eq!(successor(""), 0);
    let chains: Vec<&str> = whole.lines().filter_map(|line| line.strip_prefix(":KUBE-SEP-")).collect();
    let some: Vec<&str> = chains.iter().step_by(97).filter_map(|chain| chain.split(' ').next()).collect();
    assert!(some.len() > 10, "{}", chains.len());
    let flushes: Vec<String> = some.iter().map(|chain| format!("iptables-nft -t nat -F KUBE-SEP-{chain};")).collect();
    let damage = flushes.concat() + "iptables-nft -t nat -F PREROUTING";
    let before = successor(&damage);
    assert!((some.len()..100).contains(&before), "{before} messages for {} chains", some.len());
    stands();
    shell(&damage);
    assert_eq!(successor(""), before);
    stands();
}
