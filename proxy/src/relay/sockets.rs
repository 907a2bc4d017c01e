//! The sockets of relays: listening on every address, and for datagrams knowing which one they came to.
//!
//! A reply must come from the address that the rules led the datagram to, or conntrack does not know it for one; and a socket
//! that is bound to every address would take the one that the route back prefers.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType, SockaddrStorage, bind,
    recvmsg, send, sendmsg, setsockopt, shutdown, socket, sockopt,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use crate::model::Family;

/// Connections that may wait to be accepted; the kernel allows `net.core.somaxconn` at most.
const BACKLOG: u32 = 4096;
/// The most that UDP over IP can carry, and more.
pub const LARGEST_DATAGRAM: usize = 65_536;

fn any(family: Family, port: u16) -> SocketAddr {
    SocketAddr::new(family.unspecified(), port)
}

/// Listens on a port of an address, or of every address of its family. Connections that are accepted there are as [`prepare`] makes
/// them: they inherit it (tcp(7), socket(7)), which is two calls less for each.
///
/// # Errors
/// When the port is taken, or there are no descriptors.
pub fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for the connections of the process before.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    socket.bind(address)?;
    prepare(&socket);
    socket.listen(BACKLOG)
}

/// Ends listening at once, while a task may still hold the socket: another one may listen on the port from here on.
pub fn stop_listening(listener: &TcpListener) {
    // The kernel resets the connections that were not accepted (`inet_shutdown` in net/ipv4/af_inet.c).
    let _ = shutdown(listener.as_raw_fd(), Shutdown::Read);
}

/// Takes datagrams on a port of every address of one family.
///
/// # Errors
/// When the port is taken, or there are no descriptors.
pub fn bind_udp(family: Family, port: u16) -> io::Result<UdpSocket> {
    let address_family = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    let fd = socket(address_family, SockType::Datagram, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    match family {
        Family::V4 => setsockopt(&fd, sockopt::Ipv4PacketInfo, &true)?,
        Family::V6 => {
            setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
            setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)?;
        }
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(any(family, port)))?;
    UdpSocket::from_std(fd.into())
}

/// A socket of one client's for one backend.
///
/// # Errors
/// When there is no way to the backend, or there are no descriptors.
pub fn connect_udp(backend: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(any(Family::of(&backend.ip()), 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(backend)?;
    UdpSocket::from_std(socket)
}

/// Sends to the backend of a connected socket without waiting. Not by way of the runtime, which does not know yet that a new
/// socket has room.
///
/// # Errors
/// When the kernel has no room, or the backend has refused an earlier datagram.
pub fn send_to_backend(socket: &UdpSocket, payload: &[u8]) -> io::Result<usize> {
    Ok(send(socket.as_raw_fd(), payload, MsgFlags::MSG_DONTWAIT)?)
}

/// A datagram that came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its bytes.
    pub length: usize,
    /// Who sent it.
    pub client: SocketAddr,
    /// The address of this node that it came to.
    pub local: IpAddr,
}

/// Receives without waiting.
///
/// # Errors
/// When there is nothing, or the kernel does not say where it came from.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = nix::cmsg_space!(libc::in6_pktinfo);
    let mut slices = [IoSliceMut::new(buffer)];
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let local = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::from(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr))),
        _ => None,
    });
    let client = message.address.as_ref().and_then(address);
    let (client, local) =
        client.zip(local).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a datagram without addresses"))?;
    Ok(Received { length: message.bytes, client, local })
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|address| SocketAddr::new(address.ip().into(), address.port()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|address| SocketAddr::V6((*address).into())))
}

/// Sends without waiting, from this address of the node.
///
/// # Errors
/// When the kernel has no room, or no way to the client.
pub fn send_from(socket: &UdpSocket, payload: &[u8], client: SocketAddr, local: IpAddr) -> io::Result<usize> {
    let (fd, slices, flags) = (socket.as_raw_fd(), [IoSlice::new(payload)], MsgFlags::MSG_DONTWAIT);
    let to = SockaddrStorage::from(client);
    let sent = match local {
        IpAddr::V4(ip) => {
            let address = libc::in_addr { s_addr: u32::from(ip).to_be() };
            let info =
                libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: libc::in_addr { s_addr: 0 } };
            sendmsg(fd, &slices, &[ControlMessage::Ipv4PacketInfo(&info)], flags, Some(&to))
        }
        IpAddr::V6(ip) => {
            let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: 0 };
            sendmsg(fd, &slices, &[ControlMessage::Ipv6PacketInfo(&info)], flags, Some(&to))
        }
    };
    Ok(sent?)
}

/// Small writes go on at once, and a peer that is gone without a word is noticed some day.
pub fn prepare(socket: &impl AsFd) {
    // What the kernel refuses here costs speed at most.
    let _ = setsockopt(socket, sockopt::TcpNoDelay, &true);
    let _ = setsockopt(socket, sockopt::KeepAlive, &true);
}

/// Lets a connection end with a reset when it is dropped.
pub fn reset(stream: &TcpStream) {
    let _ = setsockopt(stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 });
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_are_prepared_by_their_listener() {
        for family in Family::ALL {
            let listener = listen_tcp(SocketAddr::new(family.unspecified(), 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let to = SocketAddr::new(family.localhost(), port);
            let (client, accepted) = tokio::join!(TcpStream::connect(to), listener.accept());
            let (accepted, _) = accepted.unwrap();
            assert!(getsockopt(&accepted, sockopt::TcpNoDelay).unwrap(), "{family}");
            assert!(getsockopt(&accepted, sockopt::KeepAlive).unwrap(), "{family}");
            assert!(!getsockopt(&client.unwrap(), sockopt::TcpNoDelay).unwrap(), "{family}: the default");
        }
    }
}
