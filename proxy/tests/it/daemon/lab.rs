//! A daemon with a fake source and fake kernels, and its objects.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use svcproxy::config::{Config, DetectLocal, NodeAddresses};
use svcproxy::daemon::{Daemon, HealthChecks, LeftoverCleanup, Runner, StopSignals};
use svcproxy::events::{Event, Recorder};
use svcproxy::health::HealthState;
use svcproxy::http::ConnectionLimit;
use svcproxy::kernel::addresses::Addresses;
use svcproxy::kernel::netlink::NetlinkError;
use svcproxy::kernel::watch::TableWatch;
use svcproxy::metrics::Metrics;
use svcproxy::mode::Mode;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::model::{Batch, Change, Family};
use svcproxy::source::{ObjectSource, SkippedObjects, SourceError};
use svcproxy::testing;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc};

use crate::daemon::kernel::{Kernel, RequestCounts};

pub const PATIENCE: Duration = Duration::from_secs(60);

struct Node(Arc<Mutex<NodeAddresses>>, NodeAddresses, Pin<Box<OwnedNotified>>, Arc<Notify>);

impl Node {
    fn of(kernel: &Kernel) -> Node {
        let moved = Arc::clone(&kernel.moved);
        Node(Arc::clone(&kernel.addresses), NodeAddresses::default(), Box::pin(moved.clone().notified_owned()), moved)
    }
}

impl Addresses for Node {
    fn read(&mut self) -> Result<&NodeAddresses, NetlinkError> {
        self.1 = self.0.lock().unwrap().clone();
        Ok(&self.1)
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let heard = self.2.as_mut().poll(context);
        if heard.is_ready() {
            self.2 = Box::pin(Arc::clone(&self.3).notified_owned());
        }
        heard
    }
}

struct Batches(mpsc::UnboundedReceiver<Batch>);

impl ObjectSource for Batches {
    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        Ok(self.0.recv().await)
    }

    fn skipped(&self) -> SkippedObjects {
        SkippedObjects::default()
    }
}

pub struct DaemonLab {
    pub kernels: [Kernel; 2],
    pub batches: mpsc::UnboundedSender<Batch>,
    pub health: HealthState,
    pub metrics: Arc<Metrics>,
    pub events: mpsc::Receiver<Event>,
    version: u64,
}

impl DaemonLab {
    pub fn start(sync_period: Duration) -> DaemonLab {
        DaemonLab::start_beside(sync_period, None)
    }

    pub fn start_beside(sync_period: Duration, leftovers: Option<LeftoverCleanup>) -> DaemonLab {
        DaemonLab::start_in(sync_period, leftovers, assemble::iptables)
    }

    pub fn start_in<M: Mode + Send + 'static>(
        sync_period: Duration,
        leftovers: Option<LeftoverCleanup>,
        assemble: impl Fn(&Config, Family, Kernel) -> FamilyProxy<M>,
    ) -> DaemonLab {
        DaemonLab::start_with(Config { sync_period, ..Config::for_node("node-a") }, leftovers, assemble)
    }

    pub fn start_with<M: Mode + Send + 'static>(
        config: Config,
        leftovers: Option<LeftoverCleanup>,
        assemble: impl Fn(&Config, Family, Kernel) -> FamilyProxy<M>,
    ) -> DaemonLab {
        let config = Config {
            detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
            min_sync_period: Duration::ZERO,
            ..config
        };
        let sync_period = config.sync_period;
        let kernels = [Kernel::default(), Kernel::default()];
        let (batches, receiver) = mpsc::unbounded_channel();
        let health = HealthState::new(sync_period, &Family::ALL);
        let runners = Family::ALL.into_iter().zip(&kernels).map(|(family, kernel)| Runner {
            family: assemble(&config, family, kernel.clone()),
            watch: TableWatch::notified(family, Arc::clone(&kernel.announced)),
            addresses: Box::new(Node::of(kernel)),
            conntrack: kernel.clone(),
        });
        let metrics = Arc::new(Metrics::new(&Family::ALL).unwrap());
        let (recorder, events) = Recorder::new();
        let daemon = Daemon {
            source: Batches(receiver),
            runners: runners.collect(),
            health: health.clone(),
            health_checks: HealthChecks::new(health.clone(), ConnectionLimit::new("health checks", 8)),
            metrics: Arc::clone(&metrics),
            events: recorder,
            config: config.clone(),
            leftovers,
        };
        tokio::spawn(daemon.run(StopSignals::at_signals()));
        DaemonLab { kernels, batches, health, metrics, events, version: 0 }
    }

    pub fn publish(&mut self, changes: Vec<Change>) {
        self.version += 1;
        let resource_version = Some(self.version.to_string());
        self.batches.send(Batch { changes, resource_version, ..Batch::default() }).unwrap();
    }

    pub async fn applied(&self, family: Family) {
        let version = Some(self.version.to_string());
        let reached =
            || self.health.snapshot().families.get(&family).is_some_and(|one| one.applied.manifests == version);
        wait_for(&format!("{family} has applied {version:?}"), reached).await;
    }

    /// Returns the requests to the IPv4 kernel.
    pub async fn cost(&mut self, changes: Vec<Change>) -> RequestCounts {
        *self.kernels[0].asked.lock().unwrap() = RequestCounts::default();
        self.cost_so_far(changes).await
    }

    pub async fn cost_so_far(&mut self, changes: Vec<Change>) -> RequestCounts {
        self.publish(changes);
        self.applied(Family::V4).await;
        *self.kernels[0].asked.lock().unwrap()
    }
}

pub async fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn service(name: &str, host: u8, protocol: &str) -> Change {
    let spec = json!({
        "type": "NodePort", "clusterIP": format!("10.96.0.{host}"), "clusterIPs": [format!("10.96.0.{host}")],
        "ports": [{ "port": 80, "protocol": protocol, "nodePort": 30_000 + u16::from(host) }],
    });
    testing::service(name, spec)
}

pub fn slice(name: &str, hosts: &[u8], protocol: &str) -> Change {
    let endpoints: Vec<Value> = hosts.iter().map(|h| json!({ "addresses": [format!("10.244.0.{h}")] })).collect();
    testing::slice(name, json!(endpoints), json!([{ "port": 80, "protocol": protocol }]))
}

pub fn node(zone: &str, heartbeat: u32) -> Change {
    let labels = json!({ "topology.kubernetes.io/zone": zone });
    let conditions = json!([{ "type": "Ready", "status": "True", "message": format!("{heartbeat}") }]);
    testing::node("node-a", json!({ "metadata": { "labels": labels }, "status": { "conditions": conditions } }))
}

pub fn cluster() -> Vec<Change> {
    let ports = [("web", 1, "TCP"), ("api", 2, "TCP"), ("dns", 3, "UDP"), ("log", 4, "UDP"), ("ntp", 5, "UDP")];
    let all = ports.into_iter().flat_map(|(name, host, protocol)| {
        [service(name, host, protocol), slice(name, &[10 * host, 10 * host + 1], protocol)]
    });
    all.chain([node("z1", 0)]).collect()
}
