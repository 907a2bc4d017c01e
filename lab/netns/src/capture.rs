//! What passes all interfaces of a namespace, by a packet socket (packet(7)).
//!
//! The kernel queues packets with the time at which they passed, so nobody need read while they do. When the queue is full, later
//! ones are lost: the first are the ones that matter.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
    socket, sockopt,
};

/// Bytes of packets, with the kernel's own of each, that may wait to be read.
const QUEUE: usize = 8 << 20;
/// Bytes of a packet that are read: more than any snap length of interest.
pub const LONGEST: usize = 2048;

/// A packet as it passed an interface, without the link's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Since 1970.
    pub at: Duration,
    /// The interface's number.
    pub interface: u32,
    /// The protocol's number in Ethernet's header.
    pub protocol: u16,
    /// The kind of link (`ARPHRD_…`).
    pub hardware: u16,
    /// In or out (`PACKET_…`).
    pub direction: u8,
    /// The sender's address on the link.
    pub address: [u8; 8],
    /// Bytes of it.
    pub address_length: u8,
    /// Bytes that the packet had.
    pub length: usize,
    /// The first of them.
    pub bytes: Vec<u8>,
}

/// A socket that gets a copy of every packet.
#[derive(Debug)]
pub struct Capture(OwnedFd);

impl Capture {
    /// Begins; call on the namespace's thread. A packet socket that is bound to nothing hears every interface.
    ///
    /// # Errors
    /// When the kernel does not allow it.
    pub fn open() -> io::Result<Capture> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // A smaller queue does as well, unless there is other traffic.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &QUEUE);
        Ok(Capture(socket))
    }

    /// The first packets so far, at most so many, that are `wanted`; those after them are lost.
    ///
    /// # Errors
    /// When the socket cannot be read.
    pub fn packets(&self, most: usize, wanted: impl Fn(&CapturedPacket) -> bool) -> io::Result<Vec<CapturedPacket>> {
        let mut packets = Vec::new();
        while packets.len() < most {
            match self.next() {
                Ok(Some(packet)) if wanted(&packet) => packets.push(packet),
                Ok(_) => {}
                Err(Errno::EAGAIN) => break,
                // An interface went down; the others are still heard.
                Err(Errno::ENETDOWN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(packets)
    }

    /// The packets that have passed since the last time, for who reads while they do.
    ///
    /// # Errors
    /// When the socket cannot be read.
    pub fn waiting(&self) -> io::Result<Vec<CapturedPacket>> {
        self.packets(usize::MAX, |_| true)
    }

    /// The next in the queue; `None`: the kernel did not say where it passed, or when.
    fn next(&self) -> nix::Result<Option<CapturedPacket>> {
        let mut buffer = vec![0; LONGEST];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        // With MSG_TRUNC the length is that of the whole packet.
        let got = recvmsg::<LinkAddr>(self.0.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_TRUNC)?;
        let at = got.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
            _ => None,
        });
        let (length, address) = (got.bytes, got.address);
        buffer.truncate(length);
        let (Some(at), Some(from)) = (at, address) else { return Ok(None) };
        let mut address = [0; 8];
        address[..6].copy_from_slice(&from.addr().unwrap_or_default());
        Ok(Some(CapturedPacket {
            at,
            interface: u32::try_from(from.ifindex()).unwrap_or_default(),
            protocol: u16::from_be(from.protocol()),
            hardware: from.hatype(),
            direction: from.pkttype(),
            address,
            address_length: u8::try_from(from.halen().min(6)).unwrap_or_default(),
            length,
            bytes: buffer,
        }))
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
