//! Sockets made in a namespace, with queues that a burst of probes does not overflow.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

use super::NetnsError;
use super::namespace::Namespace;

/// Connections that may wait to be accepted; the kernel's default cap (`net.core.somaxconn`) since 5.4.
pub const BACKLOG: u32 = 4096;
/// `IPPROTO_SCTP` (linux/in.h).
const SCTP: i32 = 132;
/// Bytes of datagrams that may wait to be read.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The wildcard of the family of `address`, and port 0.
pub fn anywhere(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

/// An unbound TCP socket of the family of `address`; call on the namespace's thread.
pub fn tcp(address: SocketAddr) -> io::Result<TcpSocket> {
    match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
}

/// A TCP socket bound to `address`, to be listened on with [`BACKLOG`]; call on the namespace's thread.
pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = tcp(address)?;
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        // Or its wildcard would take the IPv4 one's port.
        SockRef::from(&socket).set_only_v6(true)?;
    }
    socket.bind(address)?;
    Ok(socket)
}

/// An unbound SCTP socket of the family of `address`. In the one-to-one style it is handled as a TCP one is, so it passes
/// for one; call on the namespace's thread.
pub fn sctp(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::from(SCTP)))?;
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Whether this kernel speaks SCTP.
pub fn has_sctp() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(socket2::Protocol::from(SCTP))).is_ok()
}

/// An SCTP socket bound to `address`, likewise; `None` if this kernel does not speak it.
pub fn bind_sctp(address: SocketAddr) -> io::Result<Option<TcpSocket>> {
    if !has_sctp() {
        return Ok(None);
    }
    let socket = sctp(address)?;
    socket.bind(address)?;
    Ok(Some(socket))
}

/// A UDP socket bound to `address`, to be given to the runtime; call on the namespace's thread.
pub fn bind_udp(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    // A smaller buffer does as well, until a burst.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER);
    Ok(socket)
}

/// Listens on `address` in `namespace`.
pub async fn listen(namespace: &Namespace, address: SocketAddr) -> Result<TcpListener, NetnsError> {
    let socket = namespace.run(move || bind_tcp(address)).await?;
    let listener = socket.and_then(|socket| socket.listen(BACKLOG));
    listener.map_err(NetnsError::io(format!("listening on {address} in {}", namespace.name())))
}

/// A UDP socket on `address` in `namespace`.
pub async fn udp(namespace: &Namespace, address: SocketAddr) -> Result<UdpSocket, NetnsError> {
    let socket = namespace.run(move || bind_udp(address)).await?;
    let socket = socket.and_then(UdpSocket::from_std);
    socket.map_err(NetnsError::io(format!("binding UDP {address} in {}", namespace.name())))
}
