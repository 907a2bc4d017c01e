//! The cluster: namespaces, links and routes for nodes, pods, outside clients and the load balancer.
//!
//! All methods take `&self`; share a cluster as `Arc<Cluster>`. Everything happens inside the sandbox that
//! [`crate::netns::sandbox::enter`] made, on the caller's multi-threaded tokio runtime. Dropping the cluster
//! ends its processes, servers and namespaces.

mod error;
pub mod process;
pub mod spec;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

pub use error::ClusterError;
use process::{ExecOutput, ProcessHandle, ProcessSpec};
use spec::{ClusterSpec, LoadBalancerVip, PodSpec};

use crate::traffic::client::Connection;
use crate::traffic::probe::{Outcome, Place, Probe};

/// A running cluster.
pub struct Cluster {}

/// Answer to [`Cluster::http_get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code, for example 200.
    pub status: u16,
    /// Header fields in the order received, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, bytes that are not UTF-8 replaced.
    pub body: String,
}

impl Cluster {
    /// Validates `spec`, then builds it. The servers of all pods listen when this returns.
    pub async fn build(spec: &ClusterSpec) -> Result<Cluster, ClusterError> {
        todo!()
    }

    /// The specification that the cluster was built from, with the pods as they are now.
    pub fn spec(&self) -> ClusterSpec {
        todo!()
    }

    /// Adds a pod; its servers listen when this returns.
    pub async fn add_pod(&self, pod: &PodSpec) -> Result<(), ClusterError> {
        todo!()
    }

    /// Removes a pod, its link first: connections to it fall silent, as when a pod is deleted.
    pub async fn remove_pod(&self, namespace: &str, name: &str) -> Result<(), ClusterError> {
        todo!()
    }

    /// Stops or starts a pod's servers; stopping also breaks its connections, as when its process dies.
    pub async fn set_serving(
        &self,
        namespace: &str,
        name: &str,
        serving: bool,
    ) -> Result<(), ClusterError> {
        todo!()
    }

    /// Makes client `client` send packets for `destination` to node `via_node` (replaces an earlier route to it).
    pub async fn add_client_route(
        &self,
        client: &str,
        destination: IpNet,
        via_node: &str,
    ) -> Result<(), ClusterError> {
        todo!()
    }

    /// Undoes [`Cluster::add_client_route`].
    pub async fn remove_client_route(
        &self,
        client: &str,
        destination: IpNet,
    ) -> Result<(), ClusterError> {
        todo!()
    }

    /// Starts a long-running program on a node (its network namespace, `/sys` and `/run`).
    pub async fn spawn_on_node(
        &self,
        node: &str,
        process: ProcessSpec,
    ) -> Result<ProcessHandle, ClusterError> {
        todo!()
    }

    /// Runs a command to its end in a place and collects its output; killed after `timeout`.
    pub async fn exec(
        &self,
        place: &Place,
        argv: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, ClusterError> {
        todo!()
    }

    /// Minimal HTTP/1.1 GET from a place.
    pub async fn http_get(
        &self,
        place: &Place,
        address: SocketAddr,
        path: &str,
        timeout: Duration,
    ) -> Result<HttpAnswer, ClusterError> {
        todo!()
    }

    /// Listens on `address` in a place (for example an API server on every node's loopback); served by the caller.
    pub async fn listen(
        &self,
        place: &Place,
        address: SocketAddr,
    ) -> Result<tokio::net::TcpListener, ClusterError> {
        todo!()
    }

    /// Sets the load balancer's addresses; addresses that are not in `vips` any more are withdrawn.
    pub async fn set_vips(&self, vips: Vec<LoadBalancerVip>) -> Result<(), ClusterError> {
        todo!()
    }

    /// Names of the nodes that the load balancer sends `vip` to now, sorted.
    pub fn lb_healthy(&self, vip: IpAddr) -> Result<Vec<String>, ClusterError> {
        todo!()
    }

    /// Waits until [`Cluster::lb_healthy`] is `nodes` (any order).
    pub async fn wait_lb_healthy(
        &self,
        vip: IpAddr,
        nodes: &[String],
        timeout: Duration,
    ) -> Result<(), ClusterError> {
        todo!()
    }

    /// Sends one request. Network conditions are the [`Outcome`]; an error means that the lab could not try.
    pub async fn probe(&self, probe: &Probe) -> Result<Outcome, ClusterError> {
        todo!()
    }

    /// Sends many, at most `concurrency` at a time; results in the order of `probes`.
    pub async fn probe_many(
        &self,
        probes: Vec<Probe>,
        concurrency: usize,
    ) -> Result<Vec<Outcome>, ClusterError> {
        todo!()
    }

    /// Opens a TCP connection that stays open; see [`Connection::ask`]. `Err(outcome)` inside when it was not accepted.
    pub async fn connect(
        &self,
        probe: &Probe,
    ) -> Result<Result<Connection, Outcome>, ClusterError> {
        todo!()
    }

    /// The shell line that enters a place from another terminal.
    pub fn enter_line(&self, place: &Place) -> Result<String, ClusterError> {
        todo!()
    }

    /// Every place of the cluster, nodes first.
    pub fn places(&self) -> Vec<Place> {
        todo!()
    }
}
