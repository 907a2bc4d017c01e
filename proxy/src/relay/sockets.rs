//! A UDP reply's source must be the address to which rules translated the datagram, or conntrack does not match it. A
//! socket on every address would use the return route's source, so sockets learn each datagram's destination.

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

/// The kernel limits this to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// In bytes: more than UDP over IP can carry.
pub const LARGEST_DATAGRAM: usize = 65_536;

fn any(family: Family, port: u16) -> SocketAddr {
    SocketAddr::new(family.unspecified(), port)
}

/// Opens a listener. Connections inherit its options ([`prepare`], tcp(7), socket(7)), which saves calls.
pub fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Lets a restarted proxy bind the port while earlier connections exist.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    socket.bind(address)?;
    prepare(&socket);
    socket.listen(BACKLOG)
}

/// Stops listening at once, even while a task holds the socket.
pub fn stop_listening(listener: &TcpListener) {
    // The kernel resets waiting connections (`inet_shutdown` in net/ipv4/af_inet.c).
    let _ = shutdown(listener.as_raw_fd(), Shutdown::Read);
}

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

pub fn connect_udp(backend: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(any(Family::of(&backend.ip()), 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(backend)?;
    UdpSocket::from_std(socket)
}

/// Sends at once: the runtime does not know yet that a new socket is writable.
pub fn send_to_backend(socket: &UdpSocket, payload: &[u8]) -> io::Result<usize> {
    Ok(send(socket.as_raw_fd(), payload, MsgFlags::MSG_DONTWAIT)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedDatagram {
    pub length: usize,
    pub client: SocketAddr,
    /// The datagram's destination on this node.
    pub local: IpAddr,
}

pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<ReceivedDatagram> {
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
    Ok(ReceivedDatagram { length: message.bytes, client, local })
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|address| SocketAddr::new(address.ip().into(), address.port()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|address| SocketAddr::V6((*address).into())))
}

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

/// Sets TCP options; keepalives detect a vanished peer.
pub fn prepare(socket: &impl AsFd) {
    let _ = setsockopt(socket, sockopt::TcpNoDelay, &true);
    let _ = setsockopt(socket, sockopt::KeepAlive, &true);
}

pub fn reset(stream: &TcpStream) {
    let _ = setsockopt(stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 });
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_inherit_the_options_of_their_listener() {
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
