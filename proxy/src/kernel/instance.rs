//! Allows one proxy per network namespace, since two would undo each other's rules.
//!
//! The lock is an abstract UNIX socket (unix(7)), whose name belongs to the network namespace. The kernel frees it when
//! the process ends.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, socket};
use nix::unistd::geteuid;
use tracing::warn;

const NAME: &str = "svcproxy";
/// How long to wait for an ending proxy, as in a rolling update.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// The answer to every connection.
const ANSWER: &[u8] = b"svcproxy\n";
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error(
    "another svcproxy (process {process}) is at work in this network namespace, and two would undo each other's rules: stop it first"
)]
pub struct AnotherInstance {
    process: String,
}

#[derive(Debug)]
pub struct InstanceLock(Option<UnixListener>);

enum LockHolder {
    Proxy(AnotherInstance),
    /// Another user's process, or not a proxy: any process can take the name.
    Stranger(String),
    Gone(String),
}

impl InstanceLock {
    /// Blocks for up to two seconds while another proxy holds the lock, and for up to five more without an answer.
    /// After any other failure, logs a warning and continues without the lock.
    pub fn claim() -> Result<InstanceLock, AnotherInstance> {
        claim(NAME, PATIENCE, ANSWER_PATIENCE)
    }

    pub async fn answer(self) {
        let listener = self.0.and_then(|listener| {
            listener.set_nonblocking(true).ok()?;
            tokio::net::UnixListener::from_std(listener).ok()
        });
        let Some(listener) = listener else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                // The answer fits into a new connection's buffer.
                Ok((stream, _)) => drop(stream.into_std().and_then(|mut stream| stream.write_all(ANSWER))),
                Err(_) => tokio::time::sleep(PATIENCE).await,
            }
        }
    }
}

fn claim(name: &str, patience: Duration, answer: Duration) -> Result<InstanceLock, AnotherInstance> {
    let deadline = Instant::now() + patience;
    let without = |why: &dyn std::fmt::Display| {
        warn!("cannot make sure that no other svcproxy is at work here: {why}");
        Ok(InstanceLock(None))
    };
    loop {
        let address = match SocketAddr::from_abstract_name(name) {
            Ok(address) => address,
            Err(error) => return without(&error),
        };
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(InstanceLock(Some(listener))),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return without(&error),
            Err(_) => match holder(name, answer) {
                LockHolder::Stranger(process) => return without(&format!("{process} has the socket @{name}")),
                // A proxy would have answered.
                LockHolder::Gone(process) if Instant::now() >= deadline => {
                    return without(&format!("{process} has the socket @{name}"));
                }
                LockHolder::Proxy(other) if Instant::now() >= deadline => return Err(other),
                LockHolder::Proxy(_) | LockHolder::Gone(_) => std::thread::sleep(PAUSE),
            },
        }
    }
}

/// Returns the process that called `listen` (`SO_PEERCRED`, unix(7)), and whether it is a proxy.
fn holder(name: &str, patience: Duration) -> LockHolder {
    let asked = connect(name, patience).and_then(|stream| Ok((getsockopt(&stream, PeerCredentials)?, stream)));
    let (peer, stream) = match asked {
        Ok(asked) => asked,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return LockHolder::Stranger("a process that takes no connection".to_owned());
        }
        Err(_) => return LockHolder::Gone("a process that does not listen".to_owned()),
    };
    // The PID is 0 in an invisible PID namespace.
    let process = if peer.pid() > 0 { peer.pid().to_string() } else { "of another container".to_owned() };
    if peer.uid() != geteuid().as_raw() {
        return LockHolder::Stranger(format!("process {process} of user {}", peer.uid()));
    }
    let silent = || format!("process {process}, which does not answer as svcproxy,");
    match answers(stream, patience) {
        Ok(true) => LockHolder::Proxy(AnotherInstance { process }),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => LockHolder::Gone(silent()),
        _ => LockHolder::Stranger(silent()),
    }
}

fn connect(name: &str, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let stream = UnixStream::from(socket);
    stream.set_write_timeout(Some(patience))?;
    socket::connect(stream.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(stream)
}

fn answers(mut stream: UnixStream, patience: Duration) -> io::Result<bool> {
    stream.set_read_timeout(Some(patience))?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer == ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> String {
        format!("svcproxy-test-{of}-{}", std::process::id())
    }

    fn try_claim(name: &str) -> Result<InstanceLock, AnotherInstance> {
        claim(name, Duration::ZERO, Duration::from_secs(60))
    }

    #[tokio::test]
    async fn a_second_claim_is_refused_until_the_first_ends() {
        let name = name("second");
        let answering = tokio::spawn(try_claim(&name).unwrap().answer());
        let again = name.clone();
        let refused = tokio::task::spawn_blocking(move || try_claim(&again)).await.unwrap().unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        answering.abort();
        let _ = answering.await;
        assert!(try_claim(&name).unwrap().0.is_some());
    }

    #[test]
    fn one_that_is_about_to_end_is_waited_for() {
        let name = name("ends");
        let first = try_claim(&name).unwrap();
        let waiting = std::thread::spawn({
            let name = name.clone();
            move || claim(&name, Duration::from_secs(60), Duration::from_secs(60)).map(|instance| instance.0.is_some())
        });
        first.0.as_ref().unwrap().accept().unwrap();
        drop(first);
        assert!(waiting.join().unwrap().unwrap());
    }

    #[test]
    fn a_holder_that_does_not_answer_as_a_proxy_keeps_none_from_its_work() {
        let name = name("silent");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let squatter = UnixListener::bind_addr(&address).unwrap();
        let process = format!("process {}, which does not answer as svcproxy,", std::process::id());
        let who = |patience| match holder(&name, patience) {
            LockHolder::Stranger(who) | LockHolder::Gone(who) => who,
            LockHolder::Proxy(_) => panic!("it is none"),
        };
        assert_eq!(who(Duration::from_millis(1)), process);
        assert!(claim(&name, Duration::ZERO, Duration::from_millis(1)).unwrap().0.is_none());
        (0..2).for_each(|_| drop(squatter.accept().unwrap()));
        for said in ["", "svc", "HTTP/1.1 400 Bad Request"] {
            std::thread::scope(|scope| {
                scope.spawn(|| squatter.accept().unwrap().0.write_all(said.as_bytes()).unwrap());
                assert_eq!(who(Duration::from_secs(60)), process, "{said}");
            });
        }
        // Fills the backlog.
        let waiting: Vec<UnixStream> =
            std::iter::from_fn(|| connect(&name, Duration::from_millis(1)).ok()).take(10_000).collect();
        assert!(waiting.len() < 10_000);
        assert_eq!(who(Duration::from_millis(1)), "a process that takes no connection");
    }

    #[tokio::test]
    async fn any_number_of_others_learn_who_has_it() {
        let name = name("many");
        let answering = tokio::spawn(try_claim(&name).unwrap().answer());
        let refused = tokio::task::spawn_blocking(move || {
            (0..300).all(|_| try_claim(&name).is_err_and(|e| e.process == std::process::id().to_string()))
        });
        assert!(refused.await.unwrap());
        answering.abort();
    }
}
