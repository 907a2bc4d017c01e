use svclab_cluster::ClusterError;
use svclab_cluster::traffic::probe::ProbeAnswer;

use super::backend::ASK;
use super::error::LabError;
use super::lab::KernelLab;

impl KernelLab {
    /// Sends a stray segment from the pod at a connection's other end. Does nothing if the connection is dead: the step
    /// detects that.
    pub(super) async fn send_stray(&mut self, name: &str) -> Result<(), LabError> {
        let Some(connection) = self.connections.get_mut(name) else { return Ok(()) };
        let slow = || ClusterError::kernel(format!("connection {name}"));
        let ProbeAnswer::Replied { server, peer, .. } = connection.ask(ASK).await.map_err(slow())? else {
            return Ok(());
        };
        let (namespace, pod) = server.split_once('/').unwrap_or(("default", &server));
        let tap = self.cluster.tap(namespace, pod, peer).await?;
        // The tap needs a packet to observe.
        if !matches!(connection.ask(ASK).await.map_err(slow())?, ProbeAnswer::Replied { .. }) {
            return Ok(());
        }
        let failed = |error| LabError::Step(format!("a stray segment from {server} over connection {name}: {error}"));
        tap.send_stray(peer).map_err(failed)
    }
}
