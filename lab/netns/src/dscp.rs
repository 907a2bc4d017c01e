//! The DSCP of packets: the upper six bits of IPv4's type of service and of IPv6's traffic class (RFC 2474).

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

// The macros below name it.
use nix::libc;
use nix::sys::socket::sockopt::GetOsString;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, setsockopt, sockopt};

/// The largest value.
pub const MAX_DSCP: u8 = 63;
/// The lower bits of the type of service are for congestion notification.
const ECN_BITS: u32 = 2;
/// An IP header and a TCP header with all options are at most 120 bytes.
const SYN_HEADERS: usize = 256;

#[derive(Debug, Clone, Copy)]
struct SaveSyn;
nix::setsockopt_impl!(SaveSyn, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, bool, sockopt::SetBool);

#[derive(Debug, Clone, Copy)]
struct SavedSyn;
// The getter cuts the headers at the first zero byte.
nix::getsockopt_impl!(SavedSyn, libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, OsString, GetOsString<[u8; SYN_HEADERS]>);

/// Sets the DSCP of the packets that a socket sends to `to`.
pub fn set_dscp(socket: &impl AsFd, to: SocketAddr, dscp: u8) -> io::Result<()> {
    let class = libc::c_int::from(dscp) << ECN_BITS;
    match to {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4Tos, &class),
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6TClass, &class),
    }?;
    Ok(())
}

/// Makes a listening socket keep the header of each connection's first packet.
pub fn save_first_packets(listener: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(listener, SaveSyn, &true)?)
}

/// Returns the DSCP of a connection's first packet; `None` if the kernel has not kept it, or returned it before.
pub fn dscp_of_first_packet(connection: &impl AsFd) -> Option<u8> {
    let header = getsockopt(connection, SavedSyn).ok()?;
    let byte = |at: usize| header.as_bytes().get(at).copied();
    let (first, second) = (byte(0)?, byte(1).unwrap_or(0));
    let class = if first >> 4 == 6 { (first << 4) | (second >> 4) } else { second };
    Some(class >> ECN_BITS)
}

/// Makes a UDP socket report the DSCP of what it receives.
pub fn report_dscp(socket: &impl AsFd, own: SocketAddr) -> io::Result<()> {
    match own {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::IpRecvTos, &true),
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvTClass, &true),
    }?;
    Ok(())
}

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// The sender.
    pub peer: SocketAddr,
    /// Bytes of the buffer.
    pub length: usize,
    /// Known after [`report_dscp`].
    pub dscp: Option<u8>,
}

/// Receives a datagram from a non-blocking socket.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<Datagram> {
    let mut space = nix::cmsg_space!(libc::c_int);
    let mut slices = [IoSliceMut::new(buffer)];
    let descriptor = socket.as_fd().as_raw_fd();
    let received = recvmsg::<SockaddrStorage>(descriptor, &mut slices, Some(&mut space), MsgFlags::empty())?;
    let class = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4Tos(class) => Some(class),
        ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
        _ => None,
    });
    let from = received.address.as_ref();
    let ipv4 = from.and_then(|from| from.as_sockaddr_in()).map(|from| SocketAddr::V4((*from).into()));
    let ipv6 = || from.and_then(|from| from.as_sockaddr_in6()).map(|from| SocketAddr::V6((*from).into()));
    let peer = ipv4.or_else(ipv6).ok_or_else(|| io::Error::other("a datagram without a sender"))?;
    Ok(Datagram { peer, length: received.bytes, dscp: class.map(|class| class >> ECN_BITS) })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];
    const DSCPS: [u8; 4] = [0, 1, 46, MAX_DSCP];

    #[test]
    fn a_tcp_server_sees_the_clients_dscp() {
        for address in LOOPBACKS {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            save_first_packets(&listener).unwrap();
            let to = listener.local_addr().unwrap();
            for dscp in DSCPS {
                let domain = socket2::Domain::for_address(to);
                let client = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
                set_dscp(&client, to, dscp).unwrap();
                client.connect(&to.into()).unwrap();
                let (connection, _) = listener.accept().unwrap();
                assert_eq!(dscp_of_first_packet(&connection), Some(dscp), "{address}");
                assert_eq!(dscp_of_first_packet(&connection), None, "a second time");
            }
        }
    }

    #[test]
    fn a_connection_without_a_saved_packet_shows_no_dscp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (connection, _) = listener.accept().unwrap();
        assert_eq!(dscp_of_first_packet(&connection), None);
        drop(connection);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_udp_server_sees_the_clients_dscp() {
        for address in LOOPBACKS {
            let Ok(server) = UdpSocket::bind(address) else { continue };
            let to = server.local_addr().unwrap();
            report_dscp(&server, to).unwrap();
            for dscp in DSCPS {
                let client = UdpSocket::bind(address).unwrap();
                set_dscp(&client, to, dscp).unwrap();
                client.send_to(b"datagram", to).unwrap();
                let mut buffer = [0; 16];
                let datagram = receive(&server, &mut buffer).unwrap();
                let peer = client.local_addr().unwrap();
                assert_eq!(datagram, Datagram { peer, length: 8, dscp: Some(dscp) }, "{address}");
            }
        }
    }
}
