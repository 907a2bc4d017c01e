//! A soak: many changes at an even pace, and a look at what they leave behind.
//!
//! Judged are: requests to a service that nobody changes, complaints in the proxies' logs, restores that failed, memory
//! and open files over time, and at the end the rules against those of a fresh proxy on clean tables.

mod compare;
mod listeners;
mod sample;
mod stream;
mod traffic;
mod watch;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use compare::Rules;
use stream::Stream;
use svclab_apiserver::objects::ObjectKey;
use svclab_cluster::process::OutputReader;
use svclab_cluster::traffic::probe::{ClusterHost, Probe};
use svclab_spec::Protocol;
use traffic::Traffic;
use watch::Watched;

use super::backend::NFT_TABLES;
use super::error::LabError;
use super::lab::Lab;
use super::marker::Marker;
use super::proxies::SIGTERM;
use super::{Proxy, RunOptions};
use crate::expect::Mismatch;
use crate::input::Files;
use crate::mode::Mode;
use crate::scenario::execute::Executor;
use crate::scenario::{LoadError, PATIENCE, Scenario, load};

/// Changes before the clock starts, so that the number of objects does not grow while memory is judged; fewer in a soak of
/// fewer.
const POPULATION: usize = 1000;
/// So many of them are made before the proxies are waited for.
const AT_ONCE: usize = 200;
/// Nobody reads the proxies' logs for two of them, but not for longer than this: what a proxy keeps of its lines is bounded.
const UNREAD: Duration = Duration::from_secs(60);
/// Between two looks at memory and open files.
const LOOK: Duration = Duration::from_millis(200);
/// Parts of the time, each with a row of its own.
pub const PARTS: u32 = 10;
/// Who serves what nobody changes.
const SERVERS: &[&str] = &["default/steady-1", "default/steady-2"];
/// Looks at most, until two are alike.
const LOOKS: usize = 10;
/// What a proxy in nftables mode puts off it does within this.
const AT_REST: Duration = Duration::from_millis(1500);
/// Where IPVS mode puts the addresses of services.
const DEVICE: &str = "kube-ipvs0";
/// Differences that are printed for each node.
const TOLD: usize = 3;

/// How to soak.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// Proxy, mode, variant, source of the objects.
    pub run: RunOptions,
    /// Decides every change.
    pub seed: u64,
    /// How long.
    pub duration: Duration,
    /// How many changes in that time.
    pub changes: usize,
    /// Shell commands for the first node before its rules are compared: damage, to show that a soak can fail.
    pub damage: Vec<String>,
}

/// What there is to tell after a tenth of the time.
#[derive(Debug, Clone)]
pub struct Row {
    /// Time since the start.
    pub at: Duration,
    /// Changes made so far.
    pub changes: usize,
    /// Of each node.
    pub nodes: Vec<NodeRow>,
    /// Requests sent so far to the service that nobody changes.
    pub requests: u64,
    /// Those that were not answered as they should be.
    pub failed: u64,
}

/// A proxy over a tenth of the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its node.
    pub node: String,
    /// Syncs since it was started.
    pub syncs: u64,
    /// Resident memory in KiB, the median over this tenth.
    pub rss: u64,
    /// Open files, likewise.
    pub fds: u64,
    /// Complaints in its log so far, and restores that failed.
    pub errors: u64,
    /// Its processor time, and that of its children, for each change of this tenth.
    pub per_change: Duration,
}

/// The end.
#[derive(Debug, Clone, Default)]
pub struct SoakReport {
    /// Every promise that was not kept.
    pub broken: Vec<String>,
    /// Rules that were compared.
    pub rules: usize,
    /// Versions that the objects went through.
    pub versions: u64,
}

impl SoakReport {
    fn note(&mut self, broken: Option<Mismatch>) {
        let words = |broken: Mismatch| format!("expected: {}; seen: {}", broken.expected, broken.seen);
        self.broken.extend(broken.map(words));
    }
}

/// The cluster to soak, which no file describes.
fn scenario(seed: u64) -> Result<Scenario, LoadError> {
    load::parse(&Files::default(), Path::new("soak.yaml"), include_str!("cluster.yaml"), seed)
}

/// Soaks; `progress` gets a row for each tenth of the time.
///
/// # Errors
/// When the lab itself cannot go on. Broken promises are in the report.
pub async fn soak(options: &SoakOptions, progress: &mut (dyn FnMut(&Row) + Send)) -> Result<SoakReport, LabError> {
    if matches!(&options.run.proxy, Proxy::Foreign(foreign) if foreign.cleanup.is_none()) {
        let message = "a soak starts the proxy again on clean tables: its description needs a `cleanup` command";
        return Err(LabError::Step(message.to_owned()));
    }
    let scenario = scenario(options.seed)?;
    let mut lab = Lab::start(&scenario, &options.run).await?;
    let mut report = SoakReport::default();
    let mut stream = Stream::new(options.seed);
    let population = POPULATION.min(options.changes);
    for change in 1..=population {
        lab.store.write(|store| stream.change(store))?;
        if change % AT_ONCE == 0 || change == population {
            lab.publish().await?;
            report.note(lab.applied(Instant::now()).await?);
        }
    }
    let mut executor = Executor::default();
    for step in &scenario.steps {
        let seen = executor.step(&mut lab, step).await?;
        let words =
            seen.broken.iter().map(|broken| format!("{}: {}; seen: {}", step.name, broken.expected, broken.seen));
        report.broken.extend(words);
    }
    if report.broken.is_empty() {
        let first = lab.store.version();
        let caught_up = churn(options, &mut lab, &mut stream, &mut report, progress).await?;
        report.versions = lab.store.version() - first;
        // The rules of a proxy that lags behind are not yet those that it will have.
        if caught_up {
            compare(options, &mut lab, &mut report).await?;
        }
    }
    Ok(report)
}

/// The changes, with everything that is looked at meanwhile; whether the proxies have caught up with them at the end.
async fn churn(
    options: &SoakOptions,
    lab: &mut Lab,
    stream: &mut Stream,
    report: &mut SoakReport,
    progress: &mut (dyn FnMut(&Row) + Send),
) -> Result<bool, LabError> {
    let from = ClusterHost::Pod { namespace: "default".to_owned(), name: "caller".to_owned() };
    let traffic = Traffic::begin(&lab.cluster.prober(&from)?, &probes(lab, &from)?, SERVERS);
    let mut watched: Vec<Watched> = lab.nodes().into_iter().map(|node| Watched::begin(lab, node)).collect();
    let start = Instant::now();
    let (mut made, mut next_look) = (0, start);
    let (tenth, mut reader) = (options.duration / PARTS, OutputReader::Reads);
    let unread = start + 3 * tenth..start + 3 * tenth + (2 * tenth).min(UNREAD);
    for part in 1..=PARTS {
        let end = start + options.duration * part / PARTS;
        watched.iter_mut().for_each(Watched::turn);
        let before = made;
        while Instant::now() < end {
            let due = share(options.changes, start.elapsed(), options.duration);
            while made < due {
                lab.store.write(|store| stream.change(store))?;
                made += 1;
            }
            lab.publish().await?;
            let before = reader;
            reader = if unread.contains(&Instant::now()) { OutputReader::Stalls } else { OutputReader::Reads };
            if reader != before {
                lab.nodes().iter().try_for_each(|node| lab.proxies.set_reader(node, reader))?;
            }
            if Instant::now() >= next_look {
                watched.iter_mut().for_each(|node| node.look(lab));
                next_look += LOOK;
            }
            let next_change = start + options.duration.mul_f64((made + 1) as f64 / options.changes.max(1) as f64);
            tokio::time::sleep_until(next_change.min(next_look).min(end).into()).await;
        }
        let due = share(options.changes, options.duration * part, options.duration * PARTS);
        for _ in made..due {
            lab.store.write(|store| stream.change(store))?;
        }
        made = made.max(due);
        let requests = traffic.report();
        let mut nodes = Vec::new();
        for node in &mut watched {
            nodes.push(node.row(lab, made - before).await);
        }
        progress(&Row { at: start.elapsed(), changes: made, nodes, requests: requests.made, failed: requests.failed });
        if let Some(dead) = watched.iter().find(|node| !node.lives(lab)) {
            report.broken.push(dead.death(lab));
            break;
        }
    }
    for _ in made..options.changes {
        lab.store.write(|store| stream.change(store))?;
    }
    lab.publish().await?;
    let late = lab.applied(Instant::now()).await?;
    let caught_up = late.is_none();
    report.note(late);
    let requests = traffic.end().await?;
    if requests.failed > 0 || requests.made == 0 {
        let (failed, made) = (requests.failed, requests.made);
        let words = format!("{failed} of {made} requests to the service that does not change failed");
        report.broken.push(format!("{words}: {}", requests.examples.join(", ")));
    }
    report.broken.extend(watched.iter().flat_map(Watched::verdict));
    Ok(caught_up)
}

/// How many of `all` are due after `elapsed` of `duration`.
fn share(all: usize, elapsed: Duration, duration: Duration) -> usize {
    let part = elapsed.as_secs_f64() / duration.as_secs_f64();
    ((all as f64 * part) as usize).min(all)
}

/// One probe to each cluster IP of the service that nobody changes.
fn probes(lab: &Lab, from: &ClusterHost) -> Result<Vec<Probe>, LabError> {
    let steady = ObjectKey::new(None, "steady");
    let service = lab.store.read(|store| store.service(&steady).cloned())?;
    let addresses = service.spec.and_then(|spec| spec.cluster_ips).unwrap_or_default();
    let addresses = addresses.iter().filter_map(|address| address.parse().ok());
    let probe = |address| Probe {
        from: from.clone(),
        to: SocketAddr::new(address, 80),
        protocol: Protocol::Tcp,
        source_address: None,
        source_port: None,
        timeout: PATIENCE,
    };
    Ok(addresses.map(probe).collect())
}

/// Compares every node's rules with those of a fresh proxy.
async fn compare(options: &SoakOptions, lab: &mut Lab, report: &mut SoakReport) -> Result<(), LabError> {
    let nodes = lab.nodes();
    let mut soaked = Vec::new();
    settle(lab, &nodes).await?;
    for (number, node) in nodes.iter().enumerate() {
        lab.proxies.end(node, SIGTERM).await?;
        let place = ClusterHost::Node(node.clone());
        for command in options.damage.iter().filter(|_| number == 0) {
            lab.must(&place, &["sh", "-euc", command].map(str::to_owned)).await?;
        }
        soaked.push(dump(lab, node).await?);
        report.note(lab.proxies.cleanup(&lab.cluster, &lab.feed, node).await?);
        lab.proxies.start(&lab.cluster, &lab.feed, node).await?;
    }
    report.note(lab.applied(Instant::now()).await?);
    settle(lab, &nodes).await?;
    for (node, soaked) in nodes.iter().zip(soaked) {
        let fresh = dump(lab, node).await?;
        report.rules += fresh.len();
        let differences = soaked.differences(&fresh);
        let count = differences.len();
        report.broken.extend(differences.into_iter().take(TOLD).map(|difference| format!("{node}: {difference}")));
        if count > TOLD {
            report.broken.push(format!("{node}: {} more chains differ", count - TOLD));
        }
    }
    Ok(())
}

/// Waits until proxies in nftables mode change nothing more: chains go, and others come, a second after the change that they follow from.
async fn settle(lab: &Lab, nodes: &[String]) -> Result<(), LabError> {
    for node in nodes.iter().filter(|node| lab.proxies.mode_of(node) == Mode::Nftables) {
        let mut before = dump_once(lab, node).await?;
        for _ in 0..LOOKS {
            tokio::time::sleep(AT_REST).await;
            let now = dump_once(lab, node).await?;
            if now == before {
                break;
            }
            before = now;
        }
    }
    Ok(())
}

/// What the node's kernel has. IPVS lists the virtual servers of one namespace wrongly while another's change: two looks that are
/// alike were not disturbed.
async fn dump(lab: &Lab, node: &str) -> Result<Rules, LabError> {
    let mut rules = dump_once(lab, node).await?;
    for _ in 1..LOOKS {
        let before = std::mem::replace(&mut rules, dump_once(lab, node).await?);
        if before == rules {
            break;
        }
    }
    Ok(rules)
}

async fn dump_once(lab: &Lab, node: &str) -> Result<Rules, LabError> {
    let mut rules = Rules::default();
    for (family, command) in [("IPv4", "iptables-save"), ("IPv6", "ip6tables-save")] {
        let saved = lab.must(&ClusterHost::Node(node.to_owned()), &[command.to_owned()]).await?;
        rules.read(family, &saved);
    }
    if lab.proxies.mode_of(node) == Mode::Ipvs {
        let shown = async |command: &str| {
            let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
            lab.must(&ClusterHost::Node(node.to_owned()), &argv).await
        };
        rules.read_sets(&shown("ipset save").await?);
        rules.read_servers(&shown("ipvsadm -Sn").await?);
        rules.read_addresses(DEVICE, &shown("ip -o addr show dev kube-ipvs0").await?);
    }
    if lab.proxies.mode_of(node) == Mode::Nftables {
        let marker = lab.marker.as_ref().map(Marker::addresses).unwrap_or_default();
        for table in NFT_TABLES {
            rules.read_nft(&lab.table(&ClusterHost::Node(node.to_owned()), table).await?, &marker);
        }
    }
    rules.sort_jumps();
    if lab.proxies.mode_of(node) == Mode::Userspace {
        rules.name_listening_ports();
    }
    if lab.proxies.are_foreign() {
        rules.sort();
    }
    Ok(rules)
}
