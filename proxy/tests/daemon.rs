//! The daemon's loop over kernels in memory: what each kind of change costs, and that one family's trouble is its own.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use svcproxy::config::{Config, DetectLocal, NodeAddresses};
use svcproxy::daemon::{Daemon, HealthChecks, Runner, Stop};
use svcproxy::events::{About, Event, Recorder};
use svcproxy::health::HealthState;
use svcproxy::http::Room;
use svcproxy::kernel::addresses::Addresses;
use svcproxy::kernel::conntrack::{Conntrack, Filter};
use svcproxy::kernel::iptables::{Fake, Iptables, IptablesError, Table};
use svcproxy::kernel::netlink::NetlinkError;
use svcproxy::kernel::watch::Watch;
use svcproxy::metrics::Metrics;
use svcproxy::mode::iptables::family::FamilyProxy;
use svcproxy::mode::iptables::syncer::Syncer;
use svcproxy::model::Family;
use svcproxy::plan::flows::Flow;
use svcproxy::ruleset::Transaction;
use svcproxy::source::{Batch, Change, ObjectKey, SkippedObjects, Source, SourceError};
use tokio::sync::{Notify, mpsc};

const PATIENCE: Duration = Duration::from_secs(60);

/// What was asked of one family's kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Asked {
    dumps: usize,
    restores: usize,
    looks: usize,
    conntrack_dumps: usize,
}

/// One family's kernel, for the proxy and the test.
#[derive(Clone, Default)]
struct Kernel {
    tables: Arc<Mutex<Fake>>,
    asked: Arc<Mutex<Asked>>,
    addresses: Arc<Mutex<NodeAddresses>>,
    announced: Arc<Notify>,
    /// Restores wait for as long as this is set.
    hangs: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
}

impl Kernel {
    fn count(&self, count: impl FnOnce(&mut Asked)) {
        count(&mut self.asked.lock().unwrap());
    }
}

impl Iptables for Kernel {
    fn save(&mut self, tables: &[Table]) -> Result<String, IptablesError> {
        self.count(|asked| asked.dumps += 1);
        self.tables.lock().unwrap().save(tables)
    }

    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.count(|asked| asked.restores += 1);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.fails.load(Ordering::SeqCst) {
            let message = "no".to_owned();
            return Err(IptablesError::Failed { command: "ip6tables-restore".into(), status: 1, message });
        }
        self.tables.lock().unwrap().restore(change)
    }

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.count(|asked| asked.looks += 1);
        self.tables.lock().unwrap().uses(table, chains)
    }

    fn random_fully(&self) -> bool {
        true
    }
}

impl Conntrack for Kernel {
    fn delete(&mut self, _: Family, filters: &[Filter], _: &dyn Fn(&Flow) -> bool) -> std::io::Result<usize> {
        assert!(!filters.contains(&Filter::NONE), "the whole table is never dumped");
        self.count(|asked| asked.conntrack_dumps += filters.len());
        Ok(0)
    }

    fn clients(&mut self, _: Family) -> std::io::Result<BTreeSet<IpAddr>> {
        Ok(BTreeSet::new())
    }
}

struct Node(Arc<Mutex<NodeAddresses>>, NodeAddresses);

impl Addresses for Node {
    fn read(&mut self) -> Result<&NodeAddresses, NetlinkError> {
        self.1 = self.0.lock().unwrap().clone();
        Ok(&self.1)
    }
}

struct Batches(mpsc::UnboundedReceiver<Batch>);

impl Source for Batches {
    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        Ok(self.0.recv().await)
    }

    fn skipped(&self) -> SkippedObjects {
        SkippedObjects::default()
    }
}

/// A running daemon. Dropping it ends its source, and so the daemon.
struct Lab {
    kernels: [Kernel; 2],
    batches: mpsc::UnboundedSender<Batch>,
    health: HealthState,
    metrics: Arc<Metrics>,
    events: mpsc::Receiver<Event>,
    version: u64,
}

impl Lab {
    fn start(sync_period: Duration) -> Lab {
        let config = Config {
            detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
            min_sync_period: Duration::ZERO,
            sync_period,
            ..Config::for_node("node-a")
        };
        let kernels = [Kernel::default(), Kernel::default()];
        let (batches, receiver) = mpsc::unbounded_channel();
        let health = HealthState::new(sync_period, &Family::ALL);
        let runners = Family::ALL.into_iter().zip(&kernels).map(|(family, kernel)| Runner {
            family: FamilyProxy::with_mode(config.clone(), family, Syncer::new(kernel.clone())),
            watch: Watch::notified(family, Arc::clone(&kernel.announced)),
            addresses: Box::new(Node(Arc::clone(&kernel.addresses), NodeAddresses::default())),
            conntrack: kernel.clone(),
        });
        let metrics = Arc::new(Metrics::new(&Family::ALL).unwrap());
        let (recorder, events) = Recorder::new();
        let daemon = Daemon {
            source: Batches(receiver),
            runners: runners.collect(),
            health: health.clone(),
            health_checks: HealthChecks::new(health.clone(), Room::new("health checks", 8)),
            metrics: Arc::clone(&metrics),
            events: recorder,
            config: config.clone(),
            leftovers: None,
        };
        tokio::spawn(daemon.run(Stop::at_signals()));
        Lab { kernels, batches, health, metrics, events, version: 0 }
    }

    fn publish(&mut self, changes: Vec<Change>) {
        self.version += 1;
        let resource_version = Some(self.version.to_string());
        self.batches.send(Batch { changes, resource_version, ..Batch::default() }).unwrap();
    }

    async fn applied(&self, family: Family) {
        let version = Some(self.version.to_string());
        let reached = || self.health.look().families.get(&family).is_some_and(|one| one.applied.manifests == version);
        wait_for(&format!("{family} has applied {version:?}"), reached).await;
    }

    /// What this costs the kernel of IPv4.
    async fn cost(&mut self, changes: Vec<Change>) -> Asked {
        *self.kernels[0].asked.lock().unwrap() = Asked::default();
        self.publish(changes);
        self.applied(Family::V4).await;
        *self.kernels[0].asked.lock().unwrap()
    }
}

async fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "default".into(), name: name.into() }
}

fn service(name: &str, host: u8, protocol: &str) -> Change {
    let spec = json!({
        "type": "NodePort", "clusterIP": format!("10.96.0.{host}"), "clusterIPs": [format!("10.96.0.{host}")],
        "ports": [{ "port": 80, "protocol": protocol, "nodePort": 30_000 + u16::from(host) }],
    });
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    Change::Service(key(name), Some(Arc::new(serde_json::from_value(object).unwrap())))
}

fn slice(name: &str, hosts: &[u8], protocol: &str) -> Change {
    let endpoints: Vec<Value> = hosts.iter().map(|h| json!({ "addresses": [format!("10.244.0.{h}")] })).collect();
    let object = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } }, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{ "port": 80, "protocol": protocol }],
    });
    Change::EndpointSlice(key(name), Some(Arc::new(serde_json::from_value(object).unwrap())))
}

fn node(zone: &str, heartbeat: u32) -> Change {
    let labels = json!({ "topology.kubernetes.io/zone": zone });
    let conditions = json!([{ "type": "Ready", "status": "True", "message": format!("{heartbeat}") }]);
    let object = json!({ "metadata": { "name": "node-a", "labels": labels }, "status": { "conditions": conditions } });
    Change::Node("node-a".into(), Some(Arc::new(serde_json::from_value(object).unwrap())))
}

fn cluster() -> Vec<Change> {
    let ports = [("web", 1, "TCP"), ("api", 2, "TCP"), ("dns", 3, "UDP"), ("log", 4, "UDP"), ("ntp", 5, "UDP")];
    let all = ports.into_iter().flat_map(|(name, host, protocol)| {
        [service(name, host, protocol), slice(name, &[10 * host, 10 * host + 1], protocol)]
    });
    all.chain([node("z1", 0)]).collect()
}

/// Nothing costs more than what changed: a dump of the tables is the mark of a full sync.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_change_has_its_cost() {
    let mut lab = Lab::start(Duration::from_secs(3600));
    let first = lab.cost(cluster()).await;
    // The jumps, then the rest. All three UDP services, by one dump of their protocol: six frontends are more than a few.
    assert_eq!(first, Asked { dumps: 1, restores: 2, looks: 0, conntrack_dumps: 1 });
    let nothing = Asked::default();
    let restore = Asked { restores: 1, ..nothing };
    let table: Vec<(&str, Vec<Change>, Asked)> = vec![
        ("an endpoint", vec![slice("web", &[10, 12], "TCP")], restore),
        ("the same again", vec![slice("web", &[10, 12], "TCP")], nothing),
        ("many at once", vec![slice("web", &[11], "TCP"), slice("api", &[9], "TCP")], restore),
        ("a service that comes", vec![service("new", 9, "TCP"), slice("new", &[90], "TCP")], restore),
        ("a service that goes", vec![Change::Service(key("new"), None)], restore),
        ("its endpoints go", vec![Change::EndpointSlice(key("new"), None)], nothing),
        // Its cluster IP and its node port, each by a dump of its own.
        ("an endpoint of UDP", vec![slice("dns", &[30], "UDP")], Asked { conntrack_dumps: 2, ..restore }),
        ("a heartbeat of the node", vec![node("z1", 1)], nothing),
        ("another node", vec![Change::Node("node-b".into(), None)], nothing),
        ("another zone", vec![node("z2", 1)], Asked { dumps: 1, conntrack_dumps: 1, ..nothing }),
    ];
    for (what, changes, cost) in table {
        assert_eq!(lab.cost(changes).await, cost, "{what}");
    }
    // A pod's interface brings its gateway's address along; rules for every local address depend on none of them.
    lab.kernels[0].addresses.lock().unwrap().local.push("10.244.1.1".parse().unwrap());
    assert_eq!(lab.cost(vec![slice("web", &[13], "TCP")]).await, restore);
}

/// Of two services on one address and port one has it; who has not is named once, and gets it in the same sync in which it
/// is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_claims_anothers_address_is_reported_once() {
    let mut lab = Lab::start(Duration::from_secs(3600));
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    let spec = json!({ "clusterIP": "10.96.0.66", "externalIPs": ["10.96.0.1"], "ports": [{ "port": 80 }] });
    let object = json!({ "metadata": { "name": "aaa" }, "spec": spec });
    let claims = Change::Service(key("aaa"), Some(Arc::new(serde_json::from_value(object).unwrap())));
    let leads_to = |lab: &Lab| {
        let tables = lab.kernels[0].tables.lock().unwrap();
        let lines = &tables.tables[&Table::Nat]["KUBE-SERVICES"];
        lines.iter().filter(|line| line.contains("10.96.0.1/32")).cloned().collect::<Vec<_>>().join("; ")
    };
    let disputed = |lab: &Lab| {
        let text = lab.metrics.text().unwrap();
        let line = text.lines().find(|line| line.starts_with(r#"svcproxy_disputed_frontends{ip_family="IPv4"}"#));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    let restore = Asked { restores: 1, ..Asked::default() };
    assert_eq!(lab.cost(vec![claims, slice("aaa", &[66], "TCP")]).await, restore);
    assert!(leads_to(&lab).contains("default/web cluster IP") && !leads_to(&lab).contains("default/aaa"));
    assert_eq!(disputed(&lab), Some(1));
    lab.cost(vec![slice("aaa", &[67], "TCP"), slice("web", &[11], "TCP")]).await;
    let event = lab.events.try_recv().unwrap();
    assert_eq!((event.about, event.reason), (About::Service(key("aaa")), "FrontendTaken"));
    assert!(event.note.contains("10.96.0.1:80/tcp") && event.note.contains("default/web"), "{}", event.note);
    assert!(lab.events.try_recv().is_err(), "once");
    assert_eq!(lab.cost(vec![Change::Service(key("web"), None)]).await, restore);
    assert!(leads_to(&lab).contains("default/aaa external IP"), "{}", leads_to(&lab));
    assert_eq!(disputed(&lab), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_is_mended_and_writes_of_others_cost_one_look() {
    let mut lab = Lab::start(Duration::from_secs(3600));
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    let kernel = lab.kernels[0].clone();
    *kernel.asked.lock().unwrap() = Asked::default();
    kernel.announced.notify_one();
    wait_for("a look at each table", || kernel.asked.lock().unwrap().looks == 3).await;
    assert_eq!(*kernel.asked.lock().unwrap(), Asked { looks: 3, ..Asked::default() });
    kernel.tables.lock().unwrap().flush();
    kernel.announced.notify_one();
    wait_for("the rules are back", || kernel.tables.lock().unwrap().tables[&Table::Nat].contains_key("KUBE-SERVICES"))
        .await;
}

/// The changes of one family do not wait for the other, whatever becomes of that.
#[tokio::test(flavor = "multi_thread")]
async fn a_family_that_fails_or_hangs_delays_no_other() {
    let mut lab = Lab::start(Duration::from_secs(1));
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    lab.applied(Family::V6).await;
    let [v4, v6] = lab.kernels.clone();
    v6.fails.store(true, Ordering::SeqCst);
    v6.tables.lock().unwrap().flush();
    v6.announced.notify_one();
    wait_for("IPv6 fails again and again", || v6.asked.lock().unwrap().restores >= 3).await;
    let tries = v6.asked.lock().unwrap().restores;
    for host in 20..25 {
        assert_eq!(lab.cost(vec![slice("web", &[host], "TCP")]).await, Asked { restores: 1, ..Asked::default() });
    }
    let more = v6.asked.lock().unwrap().restores - tries;
    assert!(more <= 5, "a family that fails is not tried with each change of the other: {more}");
    v6.hangs.store(true, Ordering::SeqCst);
    let tries = v6.asked.lock().unwrap().restores;
    wait_for("IPv6 hangs", || v6.asked.lock().unwrap().restores > tries).await;
    for host in 25..30 {
        lab.cost(vec![slice("web", &[host], "TCP")]).await;
    }
    let looked = |alive: bool| lab.health.look().alive == alive;
    wait_for("a sync that does not end shows in /livez", || looked(false)).await;
    v6.fails.store(false, Ordering::SeqCst);
    v6.hangs.store(false, Ordering::SeqCst);
    lab.applied(Family::V6).await;
    wait_for("all is well again", || looked(true)).await;
    assert!(v4.tables.lock().unwrap().tables[&Table::Nat].contains_key("KUBE-SERVICES"));
}
