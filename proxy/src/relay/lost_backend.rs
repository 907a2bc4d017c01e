use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tokio::time::{Instant, sleep_until};

use super::balancer::Balancer;

/// Waits until the backend has stopped serving and the drain of its connections is over. A backend that serves again
/// keeps its connections.
pub async fn lost(balancer: &Mutex<Balancer>, backend: SocketAddr) {
    let choice = || balancer.lock().unwrap_or_else(PoisonError::into_inner);
    let mut changes = choice().changes();
    let mut since = None;
    loop {
        changes.mark_unchanged();
        let delay = choice().delay_of_lost(&backend);
        since = delay.and(since.or_else(|| Some(Instant::now())));
        let Some((delay, since)) = delay.zip(since) else {
            // The balancer, whose channel this is, lives as long as the connection.
            let _ = changes.changed().await;
            continue;
        };
        tokio::select! {
            () = sleep_until(since + delay) => return,
            _ = changes.changed() => {}
        }
    }
}
