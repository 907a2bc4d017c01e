//! Sockets with queues for bursts of probes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

use super::NetnsError;
use super::namespace::Namespace;

/// `net.core.somaxconn` since Linux 5.4.
pub const BACKLOG: u32 = 4096;
/// linux/in.h.
const SCTP: i32 = 132;
const RECEIVE_BUFFER: usize = 4 << 20;

/// Returns the wildcard address with port 0.
pub fn anywhere(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

/// Creates an unbound socket; call on the namespace's thread.
pub fn tcp(address: SocketAddr) -> io::Result<TcpSocket> {
    match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
}

/// Binds a socket; call on the namespace's thread.
pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = tcp(address)?;
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        // Otherwise the IPv6 wildcard address also takes the IPv4 port.
        SockRef::from(&socket).set_only_v6(true)?;
    }
    socket.bind(address)?;
    Ok(socket)
}

/// Creates an unbound socket, one-to-one like TCP; call on the namespace's thread.
pub fn sctp(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::from(SCTP)))?;
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Whether the kernel has SCTP.
pub fn has_sctp() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(socket2::Protocol::from(SCTP))).is_ok()
}

/// Binds an SCTP socket, `None` if the kernel lacks SCTP.
pub fn bind_sctp(address: SocketAddr) -> io::Result<Option<TcpSocket>> {
    if !has_sctp() {
        return Ok(None);
    }
    let socket = sctp(address)?;
    socket.bind(address)?;
    Ok(Some(socket))
}

/// Binds a non-blocking socket; call on the namespace's thread.
pub fn bind_udp(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    // Without the privilege the buffer has the default size.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER);
    Ok(socket)
}

/// Listens in `namespace`.
pub async fn listen(namespace: &Namespace, address: SocketAddr) -> Result<TcpListener, NetnsError> {
    let socket = namespace.run(move || bind_tcp(address)).await?;
    let listener = socket.and_then(|socket| socket.listen(BACKLOG));
    listener.map_err(NetnsError::io(format!("listening on {address} in {}", namespace.name())))
}

/// Binds in `namespace`.
pub async fn udp(namespace: &Namespace, address: SocketAddr) -> Result<UdpSocket, NetnsError> {
    let socket = namespace.run(move || bind_udp(address)).await?;
    let socket = socket.and_then(UdpSocket::from_std);
    socket.map_err(NetnsError::io(format!("binding UDP {address} in {}", namespace.name())))
}
