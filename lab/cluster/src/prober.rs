//! Probes from hosts of the cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Cluster, ClusterError};
use crate::traffic::client::{self, ProbeConnection};
use crate::traffic::datagram_pair;
use crate::traffic::drop_check::ProbeOrigin;
use crate::traffic::port_scan;
use crate::traffic::probe::{ClusterHost, Probe, ProbeOutcome};
use crate::traffic::stray_segment::TcpTap;

/// Sends probes from one host.
#[derive(Clone)]
pub struct Prober(ProbeOrigin);

impl Prober {
    /// Sends a probe; see [`Cluster::probe`].
    pub async fn send(&self, probe: &Probe) -> Result<ProbeOutcome, ClusterError> {
        let sent = client::send(&self.0, probe).await;
        sent.map_err(ClusterError::kernel(format!("probe from {} to {}", probe.from, probe.to)))
    }
}

impl Cluster {
    /// Returns a prober on `place` for another task.
    pub fn prober(&self, place: &ClusterHost) -> Result<Prober, ClusterError> {
        self.origin(place).map(Prober)
    }

    fn origin(&self, place: &ClusterHost) -> Result<ProbeOrigin, ClusterError> {
        Ok(ProbeOrigin {
            namespace: self.namespace(place)?,
            control: Arc::clone(&self.fabric.namespace),
            source_ports: self.source_ports.clone(),
        })
    }

    /// Sends a probe. Network failures are a [`ProbeOutcome`]; an error means that the lab could not send the probe.
    pub async fn probe(&self, probe: &Probe) -> Result<ProbeOutcome, ClusterError> {
        self.prober(&probe.from)?.send(probe).await
    }

    /// Sends probes, at most `concurrency` at once; returns the outcomes in the order of `probes`.
    pub async fn probe_many(&self, probes: Vec<Probe>, concurrency: usize) -> Result<Vec<ProbeOutcome>, ClusterError> {
        let sent = probes.iter().enumerate();
        let sent = sent.map(|(index, probe)| async move { Ok((index, self.probe(probe).await?)) });
        // Unordered, so that an unanswered probe does not delay later ones.
        let sent = stream::iter(sent).buffer_unordered(concurrency.max(1));
        let mut outcomes: Vec<(usize, ProbeOutcome)> = sent.try_collect().await?;
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Sends `count` pairs of concurrent datagrams; returns an outcome per datagram.
    pub async fn probe_pairs(&self, probe: &Probe, count: usize) -> Result<Vec<ProbeOutcome>, ClusterError> {
        let origin = self.origin(&probe.from)?;
        let mut outcomes = Vec::with_capacity(2 * count);
        for _ in 0..count {
            let failed = ClusterError::kernel(format!("probe from {} to {}", probe.from, probe.to));
            outcomes.extend(datagram_pair::send(&origin, probe).await.map_err(failed)?);
        }
        Ok(outcomes)
    }

    /// Returns the TCP ports that accept a connection within `patience`.
    pub async fn scan(
        &self,
        place: &ClusterHost,
        address: IpAddr,
        ports: &BTreeSet<u16>,
        patience: Duration,
    ) -> Result<Vec<u16>, ClusterError> {
        let found = port_scan::scan(&self.origin(place)?, address, ports, patience).await;
        found.map_err(ClusterError::kernel(format!("scan of {address} from {place}")))
    }

    /// Captures TCP segments to a pod's address of the family of `like`.
    pub async fn tap(&self, namespace: &str, name: &str, like: SocketAddr) -> Result<TcpTap, ClusterError> {
        let pod = self.pod(namespace, name)?;
        let own = pod.spec.addresses.iter().copied().find(|address| address.is_ipv4() == like.is_ipv4());
        let pod_name = format!("pod {namespace}/{name}");
        let own = own.ok_or_else(|| ClusterError::invalid(pod_name.clone(), "has no address of that family"))?;
        let opened =
            pod.namespace.run(move || TcpTap::open(own)).await.map_err(ClusterError::kernel(pod_name.clone()))?;
        opened.map_err(ClusterError::io(format!("capturing segments to {pod_name}")))
    }

    /// Opens a persistent TCP connection; the inner error is a failed attempt.
    pub async fn connect(&self, probe: &Probe) -> Result<Result<ProbeConnection, ProbeOutcome>, ClusterError> {
        let opened = client::connect(self.origin(&probe.from)?, probe).await;
        opened.map_err(ClusterError::kernel(format!("connection from {} to {}", probe.from, probe.to)))
    }
}
