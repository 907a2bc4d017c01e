use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::events::{Event, EventSubject, Recorder};
use crate::http::ListenError;

/// The interval of retries, as in kube-proxy.
const BIND_RETRY: Duration = Duration::from_secs(5);

/// Dropping the value closes the ports.
#[derive(Debug)]
pub struct PortServers {
    tasks: JoinSet<()>,
    fatal: bool,
    events: Recorder,
}

impl PortServers {
    pub fn new(fatal: bool, events: Recorder) -> PortServers {
        PortServers { tasks: JoinSet::new(), fatal, events }
    }

    /// If the port cannot be bound, retries and records an Event, unless `fatal`.
    pub fn serve<T: Send + 'static>(
        &mut self,
        reason: &'static str,
        bind: impl Fn() -> Result<T, ListenError> + Send + 'static,
    ) -> Result<(), ListenError> {
        match bind() {
            Ok(server) => self.tasks.spawn(hold(server)),
            Err(error) if self.fatal => return Err(error),
            Err(error) => {
                warn!(%error, "trying again every {BIND_RETRY:?}");
                self.events.record(Event::warning(EventSubject::Node, reason, "Listen", error.to_string()));
                let (address, purpose) = (error.address, error.purpose);
                self.tasks.spawn(async move {
                    let server = loop {
                        tokio::time::sleep(BIND_RETRY).await;
                        if let Ok(server) = bind() {
                            break server;
                        }
                    };
                    info!(%address, "listening for {purpose}");
                    hold(server).await;
                })
            }
        };
        Ok(())
    }
}

async fn hold<T>(server: T) {
    std::future::pending::<()>().await;
    drop(server);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{ConnectionLimit, Server, immediate};
    use std::net::SocketAddr;

    fn bind(address: SocketAddr) -> impl Fn() -> Result<Server, ListenError> + Send + 'static {
        let limit = ConnectionLimit::new("/x", 1);
        let handler = immediate(|_| crate::http::json(hyper::StatusCode::OK, &().into()));
        move || Server::bind(address, false, "/x", &limit, handler.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_in_use_is_retried_unless_that_is_fatal() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let (recorder, mut events) = Recorder::new();
        assert!(PortServers::new(true, recorder.clone()).serve("Test", bind(address)).is_err());
        assert!(events.try_recv().is_err(), "the proxy ends with a sentence");
        let mut servers = PortServers::new(false, recorder);
        servers.serve("Test", bind(address)).unwrap();
        let reported = events.try_recv().unwrap();
        assert!(reported.reason == "Test" && reported.note.contains(&address.to_string()), "{reported:?}");
        drop(taken);
        tokio::time::timeout(3 * BIND_RETRY, async {
            while tokio::net::TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(BIND_RETRY / 5).await;
            }
        })
        .await
        .unwrap();
    }
}
