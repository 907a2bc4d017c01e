//! Probes: sockets made in the place's namespace, awaited together on the lab's runtime.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::probe::{Answer, Outcome, Probe};
use crate::cluster::spec::Protocol;
use crate::netns::NetnsError;
use crate::netns::namespace::Namespace;
use crate::netns::sockets;

/// What a client says; servers answer any line.
const QUESTION: &[u8] = b"who?\n";

/// A TCP connection that stays open between questions.
pub struct Connection {
    stream: BufReader<TcpStream>,
    client: SocketAddr,
}

impl Connection {
    /// The client's own address and port.
    pub fn client(&self) -> SocketAddr {
        self.client
    }

    /// Sends a line and waits for the server's.
    pub async fn ask(&mut self, limit: Duration) -> Answer {
        timeout(limit, question(&mut self.stream)).await.unwrap_or(Answer::TimedOut)
    }
}

/// Sends one probe from `namespace`. An error means that the socket could not be made or bound as wanted.
pub(crate) async fn send(namespace: &Namespace, probe: &Probe) -> Result<Outcome, NetnsError> {
    match probe.protocol {
        Protocol::Tcp | Protocol::Sctp => send_stream(namespace, probe).await,
        Protocol::Udp => send_udp(namespace, probe).await,
    }
}

/// Opens a connection and leaves it open; the inner error is what came back instead of an acceptance.
pub(crate) async fn connect(namespace: &Namespace, probe: &Probe) -> Result<Result<Connection, Outcome>, NetnsError> {
    let socket = stream_socket(namespace, probe).await?;
    let start = Instant::now();
    let refused = |answer| Outcome { answer, client: None, took: start.elapsed() };
    let stream = match timeout(probe.timeout, socket.connect(probe.to)).await {
        Err(_) => return Ok(Err(refused(Answer::TimedOut))),
        Ok(Err(error)) => return Ok(Err(refused(classify(&error)))),
        Ok(Ok(stream)) => stream,
    };
    Ok(match stream.local_addr() {
        Ok(client) => Ok(Connection { stream: BufReader::new(stream), client }),
        Err(error) => Err(refused(Answer::Broken(error.to_string()))),
    })
}

async fn send_stream(namespace: &Namespace, probe: &Probe) -> Result<Outcome, NetnsError> {
    let socket = stream_socket(namespace, probe).await?;
    // An abortive close leaves no TIME_WAIT, so that a source port can be used again at once.
    socket.set_zero_linger().map_err(NetnsError::io("setting SO_LINGER"))?;
    let (mut client, start) = (None, Instant::now());
    let exchange = async {
        let stream = match socket.connect(probe.to).await {
            Ok(stream) => stream,
            Err(error) => return classify(&error),
        };
        client = stream.local_addr().ok();
        question(&mut BufReader::new(stream)).await
    };
    let answer = timeout(probe.timeout, exchange).await.unwrap_or(Answer::TimedOut);
    Ok(Outcome { answer, client, took: start.elapsed() })
}

async fn question(stream: &mut BufReader<TcpStream>) -> Answer {
    if let Err(error) = stream.get_mut().write_all(QUESTION).await {
        return Answer::Broken(error.to_string());
    }
    let mut line = String::new();
    match stream.read_line(&mut line).await {
        Ok(0) => Answer::Broken("the server closed the connection".to_owned()),
        Ok(_) => parse(&line),
        Err(error) => Answer::Broken(error.to_string()),
    }
}

async fn send_udp(namespace: &Namespace, probe: &Probe) -> Result<Outcome, NetnsError> {
    let bind = source(probe);
    let socket = sockets::udp(namespace, bind).await?;
    let (mut client, start) = (None, Instant::now());
    let exchange = async {
        // A connected socket hears ICMP errors.
        if let Err(error) = socket.connect(probe.to).await {
            return classify(&error);
        }
        client = socket.local_addr().ok();
        match socket.send(QUESTION).await {
            // Netfilter of this very machine took it, which may have sent an ICMP error instead: the socket hears of that next.
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {}
            Err(error) => return classify(&error),
            Ok(_) => {}
        }
        let mut datagram = [0; 2048];
        match socket.recv(&mut datagram).await {
            Ok(length) => parse(&String::from_utf8_lossy(&datagram[..length])),
            Err(error) => classify(&error),
        }
    };
    let answer = timeout(probe.timeout, exchange).await.unwrap_or(Answer::TimedOut);
    Ok(Outcome { answer, client, took: start.elapsed() })
}

async fn stream_socket(namespace: &Namespace, probe: &Probe) -> Result<TcpSocket, NetnsError> {
    let bind = source(probe);
    let protocol = probe.protocol;
    let attempt = format!("binding a {protocol} socket to {bind} in {}", namespace.name());
    let chosen = probe.source_address.is_some() || probe.source_port.is_some();
    namespace
        .run(move || {
            let socket = if protocol == Protocol::Sctp { sockets::sctp(bind) } else { sockets::tcp(bind) }?;
            // Unbound sockets get a port at connect time, which may be shared between destinations.
            if chosen {
                socket.set_reuseaddr(true)?;
                socket.bind(bind)?;
            }
            Ok(socket)
        })
        .await?
        .map_err(NetnsError::io(attempt))
}

/// Where to bind: the wildcard of the destination's family and port 0, as far as nothing else is asked for.
pub(super) fn source(probe: &Probe) -> SocketAddr {
    let any = sockets::anywhere(probe.to);
    let port = probe.source_port.unwrap_or(any.port());
    SocketAddr::new(probe.source_address.unwrap_or(any.ip()), port)
}

/// What an error before the answer means.
pub(super) fn classify(error: &io::Error) -> Answer {
    match error.kind() {
        ErrorKind::ConnectionRefused => Answer::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Answer::Broken(error.to_string()),
        // The kernel's own time-out, or a packet that netfilter dropped on its way out: silence on the wire.
        ErrorKind::TimedOut => Answer::TimedOut,
        _ if error.raw_os_error() == Some(Errno::EPERM as i32) => Answer::TimedOut,
        _ => Answer::Unreachable(error.to_string()),
    }
}

fn parse(line: &str) -> Answer {
    parse_with_question(line).0
}

/// The answer, and what it is one to.
pub(super) fn parse_with_question(line: &str) -> (Answer, String) {
    #[derive(serde::Deserialize)]
    struct Reply {
        server: String,
        peer: SocketAddr,
        at: SocketAddr,
        question: String,
    }
    match serde_json::from_str::<Reply>(line) {
        Ok(Reply { server, peer, at, question }) => {
            let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            (Answer::Replied { server, peer: canonical(peer), at: canonical(at) }, question)
        }
        Err(_) => (Answer::Broken(format!("not an echo server's answer: {}", line.trim_end())), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_the_wire_did() {
        let of = |errno: Errno| classify(&io::Error::from(errno));
        assert_eq!(of(Errno::ECONNREFUSED), Answer::Refused);
        assert_eq!(of(Errno::ETIMEDOUT), Answer::TimedOut);
        assert_eq!(of(Errno::EPERM), Answer::TimedOut);
        for errno in [Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EACCES, Errno::EINVAL] {
            assert!(matches!(of(errno), Answer::Unreachable(_)), "{errno}");
        }
        assert!(matches!(of(Errno::ECONNRESET), Answer::Broken(_)));
    }

    #[test]
    fn mapped_addresses_are_told_as_ipv4() {
        let reply = parse(
            r#"{"server":"default/web","peer":"[::ffff:10.0.0.1]:4711","at":"[::ffff:10.0.0.2]:80","question":"who?"}"#,
        );
        let Answer::Replied { peer, at, .. } = reply else {
            panic!("{reply:?}");
        };
        assert_eq!((peer, at), ("10.0.0.1:4711".parse().unwrap(), "10.0.0.2:80".parse().unwrap()));
        assert!(matches!(parse("HTTP/1.1 400 Bad Request\r\n"), Answer::Broken(_)));
    }
}
