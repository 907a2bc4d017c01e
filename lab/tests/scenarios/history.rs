//! The histories of `proxy/tests/it/ipvs` on a real kernel, in a microVM with IPVS: after each the kernel's state is
//! that of a fresh start. `HISTORIES=200 cargo nextest run -p svclab --test scenarios history` runs 200.

use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Failed, Trial};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestRng, TestRunner};
use svcproxy::config::{Config, DetectLocal, NodeAddresses, Variant, WriterChoice};
use svcproxy::kernel::ipvs::{ServerChange, VirtualServers};
use svcproxy::kernel::writer::IptablesWriter;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::ipvs::kernel::LinuxIpvs;
use svcproxy::mode::iptables_family::ipvs::syncer::IpvsSyncer;
use svcproxy::model::{Change, Family};

use crate::changes::any_change;

/// The default number of histories, which take under a minute.
const FEW: u64 = 12;
/// Time limits per history and for the boot, in seconds.
const HISTORY: u64 = 30;
const BOOT: u64 = 240;

type Proxy = FamilyProxy<IpvsSyncer<LinuxIpvs<IptablesWriter>>>;

#[derive(Debug, Clone)]
enum Event {
    Change(Box<Change>),
    Sync,
    Restart,
    FlushRules,
    FlushServers,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        19 => any_change().prop_map(|change| Event::Change(Box::new(change))),
        8 => Just(Event::Sync),
        1 => Just(Event::Restart),
        1 => Just(Event::FlushRules),
        1 => Just(Event::FlushServers),
    ]
}

fn history(number: u64) -> Vec<Event> {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Cases::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    prop::collection::vec(any_event(), 1..60).new_tree(&mut runner).unwrap().current()
}

fn proxy(changes: &[Change]) -> Proxy {
    let config = Config {
        detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        ..Config::for_node("node-a")
    };
    let kernel =
        LinuxIpvs::open(IptablesWriter::open(Family::V4, Variant::Nft, WriterChoice::Auto).unwrap().writer).unwrap();
    let mut proxy = assemble::ipvs(&config, Family::V4, kernel);
    proxy.set_addresses(&NodeAddresses {
        local: vec!["127.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()],
        primary: vec!["192.0.2.1".parse().unwrap()],
        ..NodeAddresses::default()
    });
    proxy.apply(changes);
    proxy
}

fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-euc", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Enters a new network namespace with another program's objects.
fn fresh_namespace() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    shell(
        "ip link set lo up; iptables -t nat -N DOCKER; iptables -t nat -A DOCKER -p tcp -j RETURN; ipset create MINE hash:ip; \
         ipset add MINE 192.0.2.7; ipvsadm -A -t 203.0.113.200:80 -s wlc; \
         ipvsadm -a -t 203.0.113.200:80 -r 198.51.100.77:80 -m -w 3",
    );
}

/// Returns the kernel's state as the commands print it, without draining destinations (weight 0).
fn state() -> Vec<String> {
    let text = shell(
        "iptables-save | awk '/^[*]/ { t = $1 } !/^#/ { sub(/ [[][0-9:]*[]]$/, \"\"); print t, $0 }'; \
         ipset save | sed 's/^\\(create [^ ]* [^ ]*\\).*/\\1/'; ipvsadm -Sn; ip -o addr show | sed 's/^[0-9]*: //'",
    );
    let mut lines: Vec<String> = text.lines().filter(|line| !line.ends_with(" -w 0")).map(str::to_owned).collect();
    // The order within a chain counts, and the stable sort keeps it.
    let rule = |line: &String| line.contains(" -A KUBE-");
    let (rules, mut rest): (Vec<String>, Vec<String>) = lines.drain(..).partition(rule);
    rest.sort();
    let mut rules: Vec<(String, String)> =
        rules.into_iter().map(|line| (line.split(' ').take(3).collect::<Vec<_>>().join(" "), line)).collect();
    rules.sort_by(|one, other| one.0.cmp(&other.0));
    rest.extend(rules.into_iter().map(|(_, line)| line));
    rest
}

/// Runs a history, then a line of shell, and returns the differences from a fresh start.
fn check(number: u64, damage: &str) -> Result<(), String> {
    fresh_namespace();
    let mut changes: Vec<Change> = Vec::new();
    let mut current = proxy(&[]);
    let events = history(number);
    let mut syncs = 0;
    for event in &events {
        match event {
            Event::Change(change) => {
                current.apply([&**change]);
                changes.push((**change).clone());
            }
            Event::Sync => {
                current.sync().unwrap();
                syncs += 1;
            }
            Event::Restart => current = proxy(&changes),
            Event::FlushRules => {
                shell("for table in nat filter mangle; do iptables -t $table -F; iptables -t $table -X; done");
                shell("iptables -t nat -N DOCKER; iptables -t nat -A DOCKER -p tcp -j RETURN");
                current.require_full_sync();
            }
            Event::FlushServers => {
                let kernel = current.mode().kernel();
                let all: Vec<ServerChange> =
                    kernel.servers.servers(Family::V4).unwrap().into_keys().map(ServerChange::Delete).collect();
                kernel.servers.change_servers(&all).unwrap();
                shell(
                    "ipvsadm -A -t 203.0.113.200:80 -s wlc; ipvsadm -a -t 203.0.113.200:80 -r 198.51.100.77:80 -m -w 3",
                );
                current.require_full_sync();
            }
        }
    }
    current.sync().unwrap();
    shell(damage);
    let arrived = state();
    // A second start sends nothing.
    let mut again = proxy(&changes);
    let report = again.sync().unwrap();
    if damage.is_empty() && !report.is_empty() {
        return Err(format!("history {number}: a second start sends {report:?}\n{events:#?}"));
    }

    fresh_namespace();
    proxy(&changes).sync().unwrap();
    let fresh = state();
    let only = |here: &[String], there: &[String]| -> Vec<String> {
        here.iter().filter(|line| !there.contains(line)).cloned().collect()
    };
    if arrived != fresh {
        let (more, less) = (only(&arrived, &fresh), only(&fresh, &arrived));
        let number = format!("history {number} of {} events", events.len());
        return Err(format!("{number}: only after it {more:#?}, only after a fresh start {less:#?}\n{events:#?}"));
    }
    eprintln!("history {number}: {} events, {syncs} syncs, {} lines of state", events.len(), arrived.len());
    Ok(())
}

pub fn all(count: u64) {
    let start = Instant::now();
    (0..count).for_each(|number| check(number, "").unwrap());
    eprintln!("{count} histories in {:.1} s", start.elapsed().as_secs_f64());
    // Differences of every kind are found.
    for damage in [
        "ipset add KUBE-CLUSTER-IP 10.96.0.99,tcp:1",
        "ipvsadm -A -t 10.96.0.99:1 -s rr",
        "ip addr add 10.96.0.99/32 dev kube-ipvs0",
        "iptables -t nat -A KUBE-SERVICES -d 10.96.0.99 -j RETURN",
    ] {
        let disagreement = check(0, damage).unwrap_err();
        assert!(disagreement.contains("10.96.0.99"), "{damage}: {disagreement}");
    }
}

pub fn trials() -> Vec<Trial> {
    vec![Trial::ignorable_test("history::microvm::histories_end_as_a_fresh_start", in_microvm).with_ignored_flag(true)]
}

fn in_microvm() -> Result<Completion, Failed> {
    let count = std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(FEW);
    let deadline = BOOT + count * HISTORY;
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(["guest-run", "--deadline", &deadline.to_string(), "--"]);
    command.arg(std::env::current_exe().unwrap()).args([crate::HISTORIES, &count.to_string()]);
    let output = crate::support::finish(command, Duration::from_secs(deadline + BOOT));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) if text.contains(&format!("{count} histories in ")) => Ok(Completion::Completed),
        Some(3) => crate::support::unable(&text),
        status => Err(format!("{status:?}\n{text}").into()),
    }
}
