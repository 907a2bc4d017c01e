//! Clusters of network namespaces.
//!
//! ```no_run
//! # async fn example(spec: svclab_spec::ClusterSpec, probe: svclab_cluster::traffic::probe::Probe) -> Result<(), svclab_cluster::ClusterError> {
//! let cluster = svclab_cluster::Cluster::build(&spec).await?;
//! let outcome = cluster.probe(&probe).await?;
//! println!("{:?} in {:?}", outcome.answer, outcome.took);
//! # Ok(())
//! # }
//! ```
//!
//! Contains no service proxy; [`Cluster::spawn_on_node`] starts one. See `examples/two_nodes.rs`.
//!
//! A cluster lives in the sandbox of [`svclab_netns::sandbox::enter`] and on the caller's tokio runtime; dropping it
//! ends everything inside.

#![warn(missing_docs)]

mod balancer;
mod build;
pub mod busy_writer;
mod error;
mod host;
mod http_get;
mod kill_on_child;
mod output;
mod overlay;
mod pod;
pub mod prober;
pub mod process;
pub mod traffic;
pub mod tree_usage;
mod validate;
mod vip_relay;
mod vips;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use ipnet::IpNet;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use svclab_netns::links::{NextHop, Route};
use svclab_netns::namespace::Namespace;
use svclab_netns::netem::Impairment;
use svclab_netns::sockets;
use svclab_netns::{enter, labs};

use balancer::LoadBalancer;
use busy_writer::BusyWriter;
pub use error::ClusterError;
use host::{ETH0, NodeNetwork};
pub use http_get::HttpAnswer;
use pod::{Pod, PodSite};
use process::{ExecOutput, ProcessHandle, ProcessSpec};
use svclab_spec::{ClusterSpec, NodeSpec, PodSpec};

use crate::traffic::probe::ClusterHost;
use crate::traffic::source_ports::SourcePorts;

/// The xtables lock (`XT_LOCK_NAME` of iptables' `configure.ac`).
const IPTABLES_LOCK: &str = "/run/xtables.lock";
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_LOOK: Duration = Duration::from_millis(2);

/// A running cluster.
pub struct Cluster {
    spec: Mutex<ClusterSpec>,
    nodes: BTreeMap<String, Node>,
    clients: BTreeMap<String, Arc<Namespace>>,
    balancer: Option<LoadBalancer>,
    pods: Mutex<BTreeMap<(String, String), Arc<Pod>>>,
    next_pod: AtomicU32,
    client_routes: tokio::sync::Mutex<BTreeSet<(String, IpNet)>>,
    /// Held while pods or load-balancer addresses change.
    changing: tokio::sync::Mutex<()>,
    fabric: NodeNetwork,
    source_ports: SourcePorts,
}

struct Node {
    spec: NodeSpec,
    namespace: Arc<Namespace>,
    /// The host's port of the node network.
    port: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Builds a cluster; all servers listen when this returns.
    pub async fn build(spec: &ClusterSpec) -> Result<Cluster, ClusterError> {
        let cluster = build::build(spec).await?;
        cluster.publish_places()?;
        Ok(cluster)
    }

    /// Returns the specification with the current pods.
    pub fn spec(&self) -> ClusterSpec {
        lock(&self.spec).clone()
    }

    /// Adds pods; their servers listen when this returns.
    pub async fn add_pods(&self, pods: &[PodSpec]) -> Result<(), ClusterError> {
        let _changing = self.changing.lock().await;
        let mut spec = self.spec();
        spec.pods.extend_from_slice(pods);
        validate::cluster(&spec)?;
        let built = try_join_all(pods.iter().map(async |pod| {
            let node = self.node(&pod.node)?;
            let number = self.next_pod.fetch_add(1, Ordering::Relaxed);
            let site = PodSite { cluster: &spec, node: &node.spec, namespace: &node.namespace, number };
            let built = Arc::new(Pod::build(pod, site).await?);
            Ok::<_, ClusterError>(((pod.namespace.clone(), pod.name.clone()), built))
        }));
        let built = built.await?;
        lock(&self.pods).extend(built);
        *lock(&self.spec) = spec;
        self.publish_places()
    }

    /// Removes pods by `(namespace, name)`, links first: connections time out instead of being reset.
    pub async fn remove_pods(&self, keys: &[(String, String)]) -> Result<(), ClusterError> {
        let _changing = self.changing.lock().await;
        try_join_all(keys.iter().map(async |(namespace, name)| {
            let pod = self.pod(namespace, name)?;
            pod.unplug(&self.node(&pod.spec.node)?.namespace).await
        }))
        .await?;
        lock(&self.pods).retain(|key, _| !keys.contains(key));
        lock(&self.spec).pods.retain(|pod| !keys.contains(&(pod.namespace.clone(), pod.name.clone())));
        self.publish_places()
    }

    /// Starts or stops a pod's servers; stopping also closes connections.
    pub async fn set_serving(&self, namespace: &str, name: &str, serving: bool) -> Result<(), ClusterError> {
        self.pod(namespace, name)?.serve(serving).await
    }

    /// Routes a client's packets for `destination` to a node.
    pub async fn add_client_route(&self, client: &str, destination: IpNet, via_node: &str) -> Result<(), ClusterError> {
        let host = self.client(client)?;
        let node = &self.node(via_node)?.spec;
        let gateway = validate::address_for(&node.addresses, destination.addr());
        let gateway = gateway.ok_or_else(|| {
            let problem = format!("has no address of the family of {destination}");
            ClusterError::invalid(format!("node {via_node}"), problem)
        })?;
        let route = Route::new(destination.trunc(), NextHop::Gateway(gateway, ETH0));
        let mut routes = self.client_routes.lock().await;
        let done = host.links().set_route(&route).await;
        done.map_err(ClusterError::kernel(format!("client {client}: route via {via_node}")))?;
        routes.insert((client.to_owned(), route.destination));
        Ok(())
    }

    /// Reverts [`Cluster::add_client_route`].
    pub async fn remove_client_route(&self, client: &str, destination: IpNet) -> Result<(), ClusterError> {
        let host = self.client(client)?;
        let mut routes = self.client_routes.lock().await;
        let key = (client.to_owned(), destination.trunc());
        let unknown = || ClusterError::Unknown(format!("route to {destination} of client {client}"));
        if !routes.contains(&key) {
            return Err(unknown());
        }
        let done = host.links().remove_route(key.1, None).await;
        done.map_err(ClusterError::kernel(format!("client {client}")))?;
        routes.remove(&key);
        Ok(())
    }

    /// Detaches a node from the node network; the node keeps its links, addresses, routes and rules.
    pub async fn cut_off(&self, node: &str, cut_off: bool) -> Result<(), ClusterError> {
        self.fabric.cut_off(self.node(node)?.port, cut_off).await
    }

    /// Impairs packets that others send to a node or its pods; `None` ends this.
    pub async fn impair(&self, node: &str, impairment: Option<&Impairment>) -> Result<(), ClusterError> {
        self.fabric.impair(self.node(node)?.port, impairment).await
    }

    /// Starts a long-running program on a node.
    pub async fn spawn_on_node(&self, node: &str, process: ProcessSpec) -> Result<ProcessHandle, ClusterError> {
        ProcessHandle::start(&self.node(node)?.namespace, &process).await
    }

    /// Runs `work` on the host's thread, so that its sockets and child processes belong to the host. `work` must be
    /// short: it blocks the host.
    pub async fn run<T: Send + 'static>(
        &self,
        place: &ClusterHost,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ClusterError> {
        self.namespace(place)?.run(work).await.map_err(ClusterError::kernel(place.to_string()))
    }

    /// Takes the xtables lock of a node until the result is dropped.
    pub async fn hold_iptables_lock(&self, node: &str) -> Result<Flock<File>, ClusterError> {
        let attempted = || format!("locking {IPTABLES_LOCK} of node {node}");
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            // Waiting for the lock on the node's thread would block the node.
            let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(IPTABLES_LOCK);
            let file =
                self.run(&ClusterHost::Node(node.to_owned()), open).await?.map_err(ClusterError::io(attempted()))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() < deadline => tokio::time::sleep(LOCK_LOOK).await,
                Err((_, error)) => return Err(ClusterError::io(attempted())(error.into())),
            }
        }
    }

    /// Rewrites an nft table on a node `per_second` times per second.
    pub async fn busy_writer(&self, node: &str, per_second: u32) -> Result<BusyWriter, ClusterError> {
        let attempted = || format!("rewriting an nft table on node {node}");
        let socket = self.run(&ClusterHost::Node(node.to_owned()), BusyWriter::open).await?;
        let started = socket.and_then(|socket| BusyWriter::start(socket, per_second));
        started.map_err(ClusterError::io(attempted()))
    }

    /// Runs a command; kills it after `timeout`.
    pub async fn exec(
        &self,
        place: &ClusterHost,
        argv: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, ClusterError> {
        process::exec(&*self.namespace(place)?, argv, timeout).await
    }

    /// Sends an HTTP GET from a host.
    pub async fn http_get(
        &self,
        place: &ClusterHost,
        address: SocketAddr,
        path: &str,
        timeout: Duration,
    ) -> Result<HttpAnswer, ClusterError> {
        let namespace = self.namespace(place)?;
        let attempted = format!("GET http://{address}{path} from {place}");
        match tokio::time::timeout(timeout, http_get::get(&namespace, address, path)).await {
            Ok(answer) => answer.map_err(ClusterError::io(attempted)),
            Err(_) => Err(ClusterError::TimedOut { waiting_for: attempted, after: timeout }),
        }
    }

    /// Listens on `address` of a host.
    pub async fn listen(
        &self,
        place: &ClusterHost,
        address: SocketAddr,
    ) -> Result<tokio::net::TcpListener, ClusterError> {
        let listener = sockets::listen(&*self.namespace(place)?, address).await;
        listener.map_err(ClusterError::kernel(place.to_string()))
    }

    /// Returns the `nsenter` command line for another terminal.
    pub fn enter_line(&self, place: &ClusterHost) -> Result<String, ClusterError> {
        let namespace = self.namespace(place)?;
        let unknown = || ClusterError::Unknown(format!("sandbox around {place}"));
        enter::line(&namespace).ok_or_else(unknown)
    }

    /// Returns all hosts.
    pub fn places(&self) -> Vec<ClusterHost> {
        let nodes = self.nodes.keys().cloned().map(ClusterHost::Node);
        let pods: Vec<_> = lock(&self.pods).keys().cloned().collect();
        let pods = pods.into_iter().map(|(namespace, name)| ClusterHost::Pod { namespace, name });
        let clients = self.clients.keys().cloned().map(ClusterHost::Client);
        let balancer = self.balancer.iter().map(|_| ClusterHost::LoadBalancer);
        nodes.chain(pods).chain(clients).chain(balancer).collect()
    }

    fn node(&self, name: &str) -> Result<&Node, ClusterError> {
        self.nodes.get(name).ok_or_else(|| ClusterError::Unknown(format!("node {name}")))
    }

    fn client(&self, name: &str) -> Result<&Arc<Namespace>, ClusterError> {
        self.clients.get(name).ok_or_else(|| ClusterError::Unknown(format!("client {name}")))
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Pod>, ClusterError> {
        let pods = lock(&self.pods);
        let pod = pods.get(&(namespace.to_owned(), name.to_owned())).cloned();
        pod.ok_or_else(|| ClusterError::Unknown(format!("pod {namespace}/{name}")))
    }

    fn balancer(&self) -> Result<&LoadBalancer, ClusterError> {
        let unknown = || ClusterError::Unknown("load balancer".to_owned());
        self.balancer.as_ref().ok_or_else(unknown)
    }

    fn namespace(&self, place: &ClusterHost) -> Result<Arc<Namespace>, ClusterError> {
        Ok(match place {
            ClusterHost::Node(name) => Arc::clone(&self.node(name)?.namespace),
            ClusterHost::Client(name) => Arc::clone(self.client(name)?),
            ClusterHost::Pod { namespace, name } => Arc::clone(&self.pod(namespace, name)?.namespace),
            ClusterHost::LoadBalancer => Arc::clone(&self.balancer()?.namespace),
        })
    }

    fn publish_places(&self) -> Result<(), ClusterError> {
        let places = self.places().into_iter();
        let found: Result<Vec<_>, ClusterError> =
            places.map(|place| Ok((place.to_string(), self.namespace(&place)?))).collect();
        let found = found?;
        let list = found.iter().map(|(place, namespace)| (place.clone(), &**namespace));
        labs::publish(list).map_err(ClusterError::io("writing the list of hosts"))
    }
}
