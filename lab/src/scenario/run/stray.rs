//! A segment that belongs nowhere, from the pod at the other end of an open connection.

use svclab_cluster::ClusterError;
use svclab_cluster::traffic::probe::ProbeAnswer;

use super::backend::ASK;
use super::error::LabError;
use super::lab::Lab;

impl Lab {
    /// Sends it. Only where there are no answers to a plain question is there nothing to send: the step finds that out by
    /// itself when it asks.
    pub(super) async fn stray(&mut self, name: &str) -> Result<(), LabError> {
        let Some(connection) = self.connections.get_mut(name) else { return Ok(()) };
        let slow = || ClusterError::kernel(format!("connection {name}"));
        let ProbeAnswer::Replied { server, peer, .. } = connection.ask(ASK).await.map_err(slow())? else {
            return Ok(());
        };
        let (namespace, pod) = server.split_once('/').unwrap_or(("default", &server));
        let tap = self.cluster.tap(namespace, pod, peer).await?;
        // So that there is something to hear.
        if !matches!(connection.ask(ASK).await.map_err(slow())?, ProbeAnswer::Replied { .. }) {
            return Ok(());
        }
        let failed = |error| LabError::Step(format!("a stray segment from {server} over connection {name}: {error}"));
        tap.send_stray(peer).map_err(failed)
    }
}
