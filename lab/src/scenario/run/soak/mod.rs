//! Soak: many changes at an even pace.
//!
//! Judges requests to an unchanging service, complaints in the proxies' logs, failed restores, memory and open files
//! over time, and the final rules against a fresh proxy's on clean tables.

mod compare;
mod listeners;
mod sample;
mod stream;
mod traffic;
mod watch;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use compare::NodeRules;
use stream::Stream;
use svclab_apiserver::objects::ObjectKey;
use svclab_cluster::process::OutputReader;
use svclab_cluster::traffic::probe::{ClusterHost, Probe};
use svclab_spec::Protocol;
use traffic::SteadyTraffic;
use watch::ProxyWatch;

use super::error::LabError;
use super::lab::KernelLab;
use super::marker::Marker;
use super::proxies::SIGTERM;
use super::{ProxyUnderTest, RunOptions};
use crate::expect::Mismatch;
use crate::input::InputFiles;
use crate::mode::Mode;
use crate::scenario::execute::Executor;
use crate::scenario::{LoadError, PATIENCE, Scenario, load};

/// The number of changes before the measurement of memory, which needs a stable number of objects.
const POPULATION: usize = 1000;
/// The number of changes between two waits for the proxies.
const AT_ONCE: usize = 200;
/// The longest stall of log readers, which else lasts two tenths of the time: a proxy's buffer is limited.
const UNREAD: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);
pub const PARTS: u32 = 10;
/// The unchanging service's pods.
const SERVERS: &[&str] = &["default/steady-1", "default/steady-2"];
const LOOKS: usize = 10;
/// The limit of delayed work in nftables mode.
const AT_REST: Duration = Duration::from_millis(1500);
/// The device with the service addresses of IPVS mode.
const DEVICE: &str = "kube-ipvs0";
const TOLD: usize = 3;

#[derive(Debug, Clone)]
pub struct SoakOptions {
    pub run: RunOptions,
    pub seed: u64,
    pub duration: Duration,
    pub changes: usize,
    /// Shell commands that damage the first node before the comparison, to show that a soak can fail.
    pub damage: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct SoakRow {
    pub at: Duration,
    pub changes: usize,
    pub nodes: Vec<SoakNodeRow>,
    pub requests: u64,
    /// Requests without the right answer.
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoakNodeRow {
    pub node: String,
    pub syncs: u64,
    /// Median resident memory in KiB.
    pub rss: u64,
    /// Median number of open files.
    pub fds: u64,
    pub errors: u64,
    /// Processor time per change in this tenth, children included.
    pub per_change: Duration,
}

#[derive(Debug, Clone, Default)]
pub struct SoakReport {
    pub broken: Vec<String>,
    pub rules: usize,
    pub versions: u64,
}

impl SoakReport {
    fn note(&mut self, broken: impl IntoIterator<Item = Mismatch>) {
        let words = |broken: Mismatch| format!("expected: {}; seen: {}", broken.expected, broken.seen);
        self.broken.extend(broken.into_iter().map(words));
    }
}

fn scenario(seed: u64) -> Result<Scenario, LoadError> {
    load::parse(&InputFiles::default(), Path::new("soak.yaml"), include_str!("cluster.yaml"), seed)
}

/// Runs a soak. `progress` gets a row per tenth of the time.
///
/// # Errors
/// When the lab fails. Broken promises are in the report.
pub async fn soak(options: &SoakOptions, progress: &mut (dyn FnMut(&SoakRow) + Send)) -> Result<SoakReport, LabError> {
    if matches!(&options.run.proxy, ProxyUnderTest::Foreign(foreign) if foreign.cleanup.is_none()) {
        let message = "a soak starts the proxy again on clean tables: its description needs a `cleanup` command";
        return Err(LabError::Step(message.to_owned()));
    }
    let scenario = scenario(options.seed)?;
    let mut lab = KernelLab::start(&scenario, &options.run).await?;
    let mut report = SoakReport::default();
    report.note(lab.take_late());
    let mut stream = Stream::new(options.seed);
    let population = POPULATION.min(options.changes);
    for change in 1..=population {
        lab.store.write(|store| stream.change(store))?;
        if change % AT_ONCE == 0 || change == population {
            lab.publish().await?;
            report.note(waited(&mut lab).await?);
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
        // A lagging proxy's rules are not final.
        if caught_up {
            compare(options, &mut lab, &mut report).await?;
        }
    }
    Ok(report)
}

async fn churn(
    options: &SoakOptions,
    lab: &mut KernelLab,
    stream: &mut Stream,
    report: &mut SoakReport,
    progress: &mut (dyn FnMut(&SoakRow) + Send),
) -> Result<bool, LabError> {
    let from = ClusterHost::Pod { namespace: "default".to_owned(), name: "caller".to_owned() };
    let traffic = SteadyTraffic::begin(&lab.cluster.prober(&from)?, &probes(lab, &from)?, SERVERS);
    let mut watched: Vec<ProxyWatch> = lab.nodes().into_iter().map(|node| ProxyWatch::begin(lab, node)).collect();
    let start = Instant::now();
    let (mut made, mut next_look) = (0, start);
    let (tenth, mut reader) = (options.duration / PARTS, OutputReader::Reads);
    let unread = start + 3 * tenth..start + 3 * tenth + (2 * tenth).min(UNREAD);
    for part in 1..=PARTS {
        let end = start + options.duration * part / PARTS;
        watched.iter_mut().for_each(ProxyWatch::begin_tenth);
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
        progress(&SoakRow {
            at: start.elapsed(),
            changes: made,
            nodes,
            requests: requests.made,
            failed: requests.failed,
        });
        if let Some(dead) = watched.iter().find(|node| !node.lives(lab)) {
            report.broken.push(dead.death(lab));
            break;
        }
    }
    for _ in made..options.changes {
        lab.store.write(|store| stream.change(store))?;
    }
    lab.publish().await?;
    let late = waited(lab).await?;
    let caught_up = late.is_empty();
    report.note(late);
    let requests = traffic.end().await?;
    if requests.failed > 0 || requests.made == 0 {
        let (failed, made) = (requests.failed, requests.made);
        let words = format!("{failed} of {made} requests to the service that does not change failed");
        report.broken.push(format!("{words}: {}", requests.examples.join(", ")));
    }
    report.broken.extend(watched.iter().flat_map(ProxyWatch::verdict));
    Ok(caught_up)
}

async fn waited(lab: &mut KernelLab) -> Result<Vec<Mismatch>, LabError> {
    let late = lab.applied(Instant::now()).await?;
    Ok(late.into_iter().chain(lab.take_late()).collect())
}

fn share(all: usize, elapsed: Duration, duration: Duration) -> usize {
    let part = elapsed.as_secs_f64() / duration.as_secs_f64();
    ((all as f64 * part) as usize).min(all)
}

fn probes(lab: &KernelLab, from: &ClusterHost) -> Result<Vec<Probe>, LabError> {
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
        bytes: 0,
        dscp: 0,
        timeout: PATIENCE,
    };
    Ok(addresses.map(probe).collect())
}

async fn compare(options: &SoakOptions, lab: &mut KernelLab, report: &mut SoakReport) -> Result<(), LabError> {
    let nodes = lab.nodes();
    let mut soaked = Vec::new();
    settle(lab, &nodes).await?;
    for (number, node) in nodes.iter().enumerate() {
        lab.proxies.end(node, SIGTERM).await?;
        let place = ClusterHost::Node(node.clone());
        for command in options.damage.iter().filter(|_| number == 0) {
            lab.output_of(&place, &["sh", "-euc", command].map(str::to_owned)).await?;
        }
        soaked.push(dump(lab, node).await?);
        report.note(lab.proxies.cleanup(&lab.cluster, &lab.feed, node).await?);
        lab.proxies.start(&lab.cluster, &lab.feed, node).await?;
    }
    report.note(waited(lab).await?);
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

/// Waits for proxies in nftables mode, which add and delete chains until a second after a change.
async fn settle(lab: &KernelLab, nodes: &[String]) -> Result<(), LabError> {
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

/// Returns the node's kernel state. Reads until two dumps are equal: IPVS may list virtual servers wrongly while
/// another namespace changes.
async fn dump(lab: &KernelLab, node: &str) -> Result<NodeRules, LabError> {
    let mut rules = dump_once(lab, node).await?;
    for _ in 1..LOOKS {
        let before = std::mem::replace(&mut rules, dump_once(lab, node).await?);
        if before == rules {
            break;
        }
    }
    Ok(rules)
}

async fn dump_once(lab: &KernelLab, node: &str) -> Result<NodeRules, LabError> {
    let mut rules = NodeRules::default();
    for (family, command) in [("IPv4", "iptables-save"), ("IPv6", "ip6tables-save")] {
        let saved = lab.output_of(&ClusterHost::Node(node.to_owned()), &[command.to_owned()]).await?;
        rules.read(family, &saved);
    }
    if lab.proxies.mode_of(node) == Mode::Ipvs {
        let shown = async |command: &str| {
            let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
            lab.output_of(&ClusterHost::Node(node.to_owned()), &argv).await
        };
        rules.read_sets(&shown("ipset save").await?);
        rules.read_servers(&shown("ipvsadm -Sn").await?);
        rules.read_addresses(DEVICE, &shown("ip -o addr show dev kube-ipvs0").await?);
    }
    let marker = lab.marker.as_ref().map(Marker::addresses).unwrap_or_default();
    for table in lab.proxies.nft_tables(node) {
        rules.read_nft(&lab.table(&ClusterHost::Node(node.to_owned()), &table).await?, &marker);
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
