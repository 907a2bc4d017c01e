//! One proxy per network namespace: two would undo each other's rules without end.
//!
//! The lock is an abstract UNIX socket (unix(7)). Its name belongs to the network namespace, as the rules do, so that a
//! proxy in a container on the host's network finds one that systemd has started; no file is left behind, and the
//! kernel frees the name when the process ends, however it ends.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use tracing::warn;

/// The socket's name, without the NUL byte in front.
const NAME: &str = "svcproxy";
/// How long to wait for a proxy that is about to end, as in a rolling update.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Another proxy is at work in this network namespace.
#[derive(Debug, thiserror::Error)]
#[error(
    "another svcproxy (process {process}) is at work in this network namespace, and two would undo each other's rules: stop it first"
)]
pub struct AnotherInstance {
    process: String,
}

/// The lock. It is held until the process ends or this is dropped.
#[derive(Debug)]
pub struct Instance(Option<UnixListener>);

/// Whose the name is.
enum Holder {
    Proxy(AnotherInstance),
    /// A process of another user: anyone may take the name, and nobody may keep the proxy from its work by that.
    Stranger(u32),
    /// It has ended since.
    Gone,
}

impl Instance {
    /// Takes the lock. Blocks for two seconds at most while another proxy has it. Where the lock cannot be had for
    /// another reason, a warning is logged and the proxy works without.
    ///
    /// # Errors
    /// When another proxy of the same user keeps it.
    pub fn claim() -> Result<Instance, AnotherInstance> {
        claim(NAME, PATIENCE)
    }

    /// Accepts and closes the connections by which others learn who has the lock. Never resolves.
    pub async fn answer(self) {
        let listener = self.0.and_then(|listener| {
            listener.set_nonblocking(true).ok()?;
            tokio::net::UnixListener::from_std(listener).ok()
        });
        let Some(listener) = listener else { return std::future::pending().await };
        loop {
            if listener.accept().await.is_err() {
                // Out of descriptors, for the moment.
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

fn claim(name: &str, patience: Duration) -> Result<Instance, AnotherInstance> {
    let deadline = Instant::now() + patience;
    let without = |why: &dyn std::fmt::Display| {
        warn!("cannot make sure that no other svcproxy is at work here: {why}");
        Ok(Instance(None))
    };
    loop {
        let address = match SocketAddr::from_abstract_name(name) {
            Ok(address) => address,
            Err(error) => return without(&error),
        };
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Instance(Some(listener))),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return without(&error),
            Err(_) => match holder(&address) {
                Holder::Stranger(user) => return without(&format!("user {user} has the socket @{name}")),
                // Bound, and nobody listens: no proxy does that for so long.
                Holder::Gone if Instant::now() >= deadline => {
                    return without(&format!("somebody has the socket @{name}"));
                }
                Holder::Proxy(other) if Instant::now() >= deadline => return Err(other),
                Holder::Proxy(_) | Holder::Gone => std::thread::sleep(PAUSE),
            },
        }
    }
}

/// Credentials of a socket's other end are those of the process that called `listen` (`SO_PEERCRED`, unix(7)).
fn holder(address: &SocketAddr) -> Holder {
    let credentials = UnixStream::connect_addr(address).and_then(|stream| Ok(getsockopt(&stream, PeerCredentials)?));
    match credentials {
        Ok(peer) if peer.uid() != geteuid().as_raw() => Holder::Stranger(peer.uid()),
        // 0 is a process of a PID namespace that is not seen from here.
        Ok(peer) if peer.pid() > 0 => Holder::Proxy(AnotherInstance { process: peer.pid().to_string() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Holder::Gone,
        _ => Holder::Proxy(AnotherInstance { process: "of another container".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> String {
        format!("svcproxy-test-{of}-{}", std::process::id())
    }

    #[test]
    fn a_second_claim_is_refused_until_the_first_ends() {
        let name = name("second");
        let first = claim(&name, Duration::ZERO).unwrap();
        let refused = claim(&name, Duration::ZERO).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        claim(&name, Duration::ZERO).unwrap();
    }

    #[test]
    fn one_that_is_about_to_end_is_waited_for() {
        let name = name("ends");
        let first = claim(&name, Duration::ZERO).unwrap();
        let waiting = std::thread::spawn({
            let name = name.clone();
            move || claim(&name, Duration::from_secs(60)).map(drop)
        });
        // Its connection says that it has found the name taken.
        first.0.as_ref().unwrap().accept().unwrap();
        drop(first);
        waiting.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn any_number_of_others_learn_who_has_it() {
        let name = name("many");
        let answering = tokio::spawn(claim(&name, Duration::ZERO).unwrap().answer());
        let refused = tokio::task::spawn_blocking(move || {
            // More than a listening socket queues.
            (0..300).all(|_| claim(&name, Duration::ZERO).is_err_and(|e| e.process == std::process::id().to_string()))
        });
        assert!(refused.await.unwrap());
        answering.abort();
    }
}
