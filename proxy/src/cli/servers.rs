//! The ports that are served for as long as the proxy runs.

use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::http::ListenError;

/// How soon a port that could not be bound is tried again (upstream's pause).
const BIND_RETRY: Duration = Duration::from_secs(5);

/// What listens; all of it ends with this.
#[derive(Debug, Default)]
pub struct Servers(JoinSet<()>);

impl Servers {
    /// Holds what `bind` opens. A port that is taken is tried again and again, unless that is to be fatal.
    ///
    /// # Errors
    /// When it is fatal.
    pub fn serve<T: Send + 'static>(
        &mut self,
        fatal: bool,
        bind: impl Fn() -> Result<T, ListenError> + Send + 'static,
    ) -> Result<(), ListenError> {
        match bind() {
            Ok(server) => self.0.spawn(hold(server)),
            Err(error) if fatal => return Err(error),
            Err(error) => {
                warn!(%error, "trying again every {BIND_RETRY:?}");
                let (address, purpose) = (error.address, error.purpose);
                self.0.spawn(async move {
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
    use crate::http::{Server, at_once};
    use std::net::SocketAddr;

    fn bind(address: SocketAddr) -> impl Fn() -> Result<Server, ListenError> + Send + 'static {
        move || Server::bind(address, false, "/x", at_once(|_| crate::http::json(hyper::StatusCode::OK, &().into())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_is_taken_is_tried_again_unless_that_is_fatal() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let mut servers = Servers::default();
        assert!(servers.serve(true, bind(address)).is_err());
        servers.serve(false, bind(address)).unwrap();
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
