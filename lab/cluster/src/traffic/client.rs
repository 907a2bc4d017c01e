//! Sends probes from a host's namespace.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use svclab_netns::NetnsError;
use svclab_netns::dscp::set_dscp;
use svclab_netns::namespace::{self, NoStarts};
use svclab_netns::sockets;
use svclab_spec::Protocol;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use super::drop_check::{ProbeOrigin, answer_within};
use super::echo_protocol::EchoRequest;
use super::probe::{Probe, ProbeAnswer, ProbeOutcome, RESET};

const WHO: &str = "who?";
/// The longest UDP datagram, in bytes.
pub(super) const MAX_DATAGRAM: usize = 1 << 16;

/// A TCP connection for several requests.
pub struct ProbeConnection {
    origin: ProbeOrigin,
    stream: BufReader<TcpStream>,
    client: SocketAddr,
    bytes: usize,
}

impl ProbeConnection {
    /// Returns the client's address and port.
    pub fn client(&self) -> SocketAddr {
        self.client
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// The machine is too slow to distinguish a drop from a late reply.
    pub async fn ask(&mut self, limit: Duration) -> Result<ProbeAnswer, NetnsError> {
        answer_within(&self.origin, limit, question(&mut self.stream, self.bytes)).await
    }
}

/// Sends a probe; fails only if the socket cannot be created or bound.
pub(crate) async fn send(origin: &ProbeOrigin, probe: &Probe) -> Result<ProbeOutcome, NetnsError> {
    let _starts = hold_starts(probe).await;
    match probe.protocol {
        Protocol::Tcp | Protocol::Sctp => send_stream(origin, probe).await,
        Protocol::Udp => send_udp(origin, probe).await,
    }
}

/// Lets no program copy the socket of a probe from a port of its own: the next probe may come from the same port.
pub(super) async fn hold_starts(probe: &Probe) -> Option<NoStarts> {
    match probe.source_port {
        Some(_) => Some(namespace::hold_starts().await),
        None => None,
    }
}

/// Opens a connection; the inner error is a failed attempt.
pub(crate) async fn connect(
    origin: ProbeOrigin,
    probe: &Probe,
) -> Result<Result<ProbeConnection, ProbeOutcome>, NetnsError> {
    let socket = stream_socket(&origin, probe).await?;
    let (mut opened, start) = (None, Instant::now());
    let accepted = async {
        match socket.connect(probe.to).await {
            Ok(stream) => opened = Some(stream),
            Err(error) => return classify(&error),
        }
        ProbeAnswer::TimedOut
    };
    let answer = answer_within(&origin, probe.timeout, accepted).await?;
    let refused = |answer| ProbeOutcome { answer, client: None, took: start.elapsed() };
    let Some(stream) = opened else { return Ok(Err(refused(answer))) };
    Ok(match stream.local_addr() {
        Ok(client) => Ok(ProbeConnection { origin, stream: BufReader::new(stream), client, bytes: probe.bytes }),
        Err(error) => Err(refused(ProbeAnswer::Broken(error.to_string()))),
    })
}

async fn send_stream(origin: &ProbeOrigin, probe: &Probe) -> Result<ProbeOutcome, NetnsError> {
    let socket = stream_socket(origin, probe).await?;
    // A reset leaves no TIME_WAIT, so the source port is reusable at once.
    socket.set_zero_linger().map_err(NetnsError::io("setting SO_LINGER"))?;
    let (mut client, start) = (None, Instant::now());
    let exchange = async {
        let stream = match socket.connect(probe.to).await {
            Ok(stream) => stream,
            Err(error) => return classify(&error),
        };
        client = stream.local_addr().ok();
        question(&mut BufReader::new(stream), probe.bytes).await
    };
    let answer = answer_within(origin, probe.timeout, exchange).await?;
    Ok(ProbeOutcome { answer, client, took: start.elapsed() })
}

async fn question(stream: &mut BufReader<TcpStream>, bytes: usize) -> ProbeAnswer {
    let question = EchoRequest::new(WHO, bytes);
    if let Err(error) = stream.get_mut().write_all(&question.line()).await {
        return broken(&error);
    }
    let mut line = String::new();
    loop {
        line.clear();
        match stream.read_line(&mut line).await {
            Ok(0) => return ProbeAnswer::Broken("the server closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) => return broken(&error),
        }
        if let Some(answer) = question.answer(line.as_bytes()) {
            return answer;
        }
    }
}

fn broken(error: &io::Error) -> ProbeAnswer {
    let is_reset = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    ProbeAnswer::Broken(if is_reset { RESET.to_owned() } else { error.to_string() })
}

async fn send_udp(origin: &ProbeOrigin, probe: &Probe) -> Result<ProbeOutcome, NetnsError> {
    let socket = bound(origin, probe, sockets::bind_udp).await?;
    let socket = UdpSocket::from_std(socket).map_err(NetnsError::io("a UDP socket"))?;
    set_dscp(&socket, probe.to, probe.dscp).map_err(NetnsError::io("setting the DSCP"))?;
    let (mut client, start) = (None, Instant::now());
    let exchange = async {
        // Only a connected socket receives ICMP errors.
        if let Err(error) = socket.connect(probe.to).await {
            return classify(&error);
        }
        client = socket.local_addr().ok();
        let question = EchoRequest::new(WHO, probe.bytes);
        match socket.send(&question.line()).await {
            // Netfilter on this machine dropped or rejected the packet; after a reject an ICMP error follows.
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {}
            Err(error) => return classify(&error),
            Ok(_) => {}
        }
        let mut datagram = Vec::with_capacity(MAX_DATAGRAM);
        loop {
            datagram.clear();
            match socket.recv_buf(&mut datagram).await {
                Ok(_) => match question.answer(&datagram) {
                    Some(answer) => return answer,
                    // Ignores a reply to an earlier request from the same port.
                    None => continue,
                },
                Err(error) => return classify(&error),
            }
        }
    };
    let answer = answer_within(origin, probe.timeout, exchange).await?;
    Ok(ProbeOutcome { answer, client, took: start.elapsed() })
}

async fn stream_socket(origin: &ProbeOrigin, probe: &Probe) -> Result<TcpSocket, NetnsError> {
    let (protocol, to, dscp) = (probe.protocol, probe.to, probe.dscp);
    let bind = move |address| {
        let socket = if protocol == Protocol::Sctp { sockets::sctp(address) } else { sockets::tcp(address) }?;
        set_dscp(&socket, to, dscp)?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bound(origin, probe, bind).await
}

/// Binds a socket in the origin's namespace to the source of a probe; without a source port to the next one that is
/// free.
pub(super) async fn bound<T: Send + 'static>(
    origin: &ProbeOrigin,
    probe: &Probe,
    bind: impl Fn(SocketAddr) -> io::Result<T> + Send + 'static,
) -> Result<T, NetnsError> {
    let any = sockets::anywhere(probe.to);
    let source = SocketAddr::new(probe.source_address.unwrap_or(any.ip()), probe.source_port.unwrap_or(0));
    let attempt = format!("binding a {} socket to {source} in {}", probe.protocol, origin.namespace.name());
    let ports = origin.source_ports.clone();
    let made = origin.namespace.run(move || ports.bind(source, bind)).await?;
    made.map_err(NetnsError::io(attempt))
}

pub(super) fn classify(error: &io::Error) -> ProbeAnswer {
    match error.kind() {
        ErrorKind::ConnectionRefused => ProbeAnswer::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ProbeAnswer::Broken(error.to_string()),
        // The kernel's own timeout, or a drop on output.
        ErrorKind::TimedOut => ProbeAnswer::TimedOut,
        _ if error.raw_os_error() == Some(Errno::EPERM as i32) => ProbeAnswer::TimedOut,
        _ => ProbeAnswer::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_error_maps_to_the_networks_answer() {
        let of = |errno: Errno| classify(&io::Error::from(errno));
        assert_eq!(of(Errno::ECONNREFUSED), ProbeAnswer::Refused);
        assert_eq!(of(Errno::ETIMEDOUT), ProbeAnswer::TimedOut);
        assert_eq!(of(Errno::EPERM), ProbeAnswer::TimedOut);
        for errno in [Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EACCES, Errno::EINVAL] {
            assert!(matches!(of(errno), ProbeAnswer::Unreachable(_)), "{errno}");
        }
        assert!(matches!(of(Errno::ECONNRESET), ProbeAnswer::Broken(_)));
    }
}
