//! Probes: sockets made in the place's namespace, awaited together on the lab's runtime.

use std::net::SocketAddr;
use std::time::Duration;

use super::probe::Answer;

/// A TCP connection that stays open between questions.
pub struct Connection {}

impl Connection {
    /// The client's own address and port.
    pub fn client(&self) -> SocketAddr {
        todo!()
    }

    /// Sends a line and waits for the server's.
    pub async fn ask(&mut self, timeout: Duration) -> Answer {
        todo!()
    }
}
