//! Captures packets on all interfaces of a namespace (packet(7)).
//!
//! The kernel timestamps and queues packets, so reading can wait. It drops packets while the queue is full.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
    socket, sockopt,
};

/// Queue size in bytes, including the kernel's overhead.
const QUEUE: usize = 8 << 20;
/// Bytes read per packet, above useful snap lengths.
pub const LONGEST: usize = 2048;

/// A captured packet without link header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Time since the Unix epoch.
    pub at: Duration,
    /// Interface index.
    pub interface: u32,
    /// EtherType.
    pub protocol: u16,
    /// Link type (`ARPHRD_…`).
    pub hardware: u16,
    /// Direction (`PACKET_…`).
    pub direction: u8,
    /// Sender's link address.
    pub address: [u8; 8],
    /// Length of the address.
    pub address_length: u8,
    /// Original length.
    pub length: usize,
    /// The first [`LONGEST`] bytes.
    pub bytes: Vec<u8>,
}

/// A socket that receives a copy of every packet.
#[derive(Debug)]
pub struct Capture(OwnedFd);

impl Capture {
    /// Opens a capture; call on the namespace's thread.
    pub fn open() -> io::Result<Capture> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // Without the privilege the queue has the default size.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &QUEUE);
        Ok(Capture(socket))
    }

    /// Returns the first `most` wanted packets and discards all others.
    pub fn packets(&self, most: usize, wanted: impl Fn(&CapturedPacket) -> bool) -> io::Result<Vec<CapturedPacket>> {
        let mut packets = Vec::new();
        while packets.len() < most {
            match self.next() {
                Ok(Some(packet)) if wanted(&packet) => packets.push(packet),
                Ok(_) => {}
                Err(Errno::EAGAIN) => break,
                // An interface went down; capture continues on others.
                Err(Errno::ENETDOWN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(packets)
    }

    /// Returns packets received since the last call.
    pub fn waiting(&self) -> io::Result<Vec<CapturedPacket>> {
        self.packets(usize::MAX, |_| true)
    }

    /// Returns a packet, `None` without interface or timestamp.
    fn next(&self) -> nix::Result<Option<CapturedPacket>> {
        let mut buffer = vec![0; LONGEST];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        // With MSG_TRUNC `got.bytes` is the original length.
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
