//! Probes from places of the cluster.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Cluster, ClusterError};
use crate::traffic::client::{self, Connection};
use crate::traffic::probe::{Outcome, Probe};

impl Cluster {
    /// Sends one request. Network conditions are the [`Outcome`]; an error means that the lab could not try.
    pub async fn probe(&self, probe: &Probe) -> Result<Outcome, ClusterError> {
        let sent = client::send(&*self.namespace(&probe.from)?, probe).await;
        sent.map_err(ClusterError::kernel(format!("probe from {} to {}", probe.from, probe.to)))
    }

    /// Sends many, at most `concurrency` at a time; results in the order of `probes`.
    pub async fn probe_many(&self, probes: Vec<Probe>, concurrency: usize) -> Result<Vec<Outcome>, ClusterError> {
        let sent = probes.iter().enumerate();
        let sent = sent.map(|(index, probe)| async move { Ok((index, self.probe(probe).await?)) });
        // Unordered, or one silent probe would hold back all behind it.
        let sent = stream::iter(sent).buffer_unordered(concurrency.max(1));
        let mut outcomes: Vec<(usize, Outcome)> = sent.try_collect().await?;
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Opens a TCP connection that stays open; see [`Connection::ask`]. The inner error is what came back instead.
    pub async fn connect(&self, probe: &Probe) -> Result<Result<Connection, Outcome>, ClusterError> {
        let opened = client::connect(&*self.namespace(&probe.from)?, probe).await;
        opened.map_err(ClusterError::kernel(format!("connection from {} to {}", probe.from, probe.to)))
    }
}
