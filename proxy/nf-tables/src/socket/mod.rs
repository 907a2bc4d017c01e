//! A socket in one network namespace.

mod ask;
mod commit;
mod error;
mod read;

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use netlink_sys::SocketAddr;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, getsockopt, recv, sendmsg, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::netlink::AttributeWriter;

pub use commit::Committed;
pub use error::{CommitError, OperationRefusal, QueryError};

/// The kernel normally answers before a send returns.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kernel doubles this size, and allocates only what a batch needs.
const SEND_BUFFER: usize = 1 << 29;
/// In bytes: some thousands of answers.
const RECEIVE_BUFFER: usize = 1 << 24;
/// The bytes that the kernel reserves (`netlink_sendmsg`).
const RESERVED: usize = 32;
/// A dump's datagrams have up to 32 KiB (`netlink(7)`).
const PIECE: usize = 1 << 16;

/// Needs `CAP_NET_ADMIN` in the namespace's user namespace.
#[derive(Debug)]
pub struct NfSocket {
    socket: netlink_sys::Socket,
    largest_batch: usize,
    sequence: u32,
    /// The generation of the last dump.
    read_at: Option<u32>,
    /// The generation of all dumps in [`NfSocket::snapshot`].
    snapshot: Option<u32>,
    stale: bool,
    piece: Vec<u8>,
    question: AttributeWriter,
    answer: Vec<u8>,
    /// A buffer for another answer.
    spare: Vec<u8>,
}

impl NfSocket {
    /// Opens a socket in this thread's network namespace. Buffers exceed `net.core.wmem_max` only with `CAP_NET_ADMIN`
    /// in the initial user namespace.
    pub fn open() -> io::Result<NfSocket> {
        let mut socket = netlink_sys::Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Old kernels support neither option.
        let _ = (socket.set_cap_ack(true), socket.set_ext_ack(true));
        if setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
            // The kernel caps the value.
            setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER)?;
        }
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        let patience = i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX);
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(patience, 0))?;
        let largest_batch = getsockopt(&socket, sockopt::SndBuf)?.saturating_sub(RESERVED);
        Ok(NfSocket {
            socket,
            largest_batch,
            sequence: 0,
            read_at: None,
            snapshot: None,
            stale: false,
            piece: vec![0; PIECE],
            question: AttributeWriter::default(),
            answer: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Returns the limit of [`Batch::len`](crate::Batch::len).
    pub fn largest_batch(&self) -> usize {
        self.largest_batch
    }

    fn send<const N: usize>(&mut self, pieces: [&[u8]; N]) -> nix::Result<()> {
        if self.stale {
            while matches!(self.receive(MsgFlags::MSG_DONTWAIT), Ok(_) | Err(Errno::ENOBUFS | Errno::EMSGSIZE)) {}
        }
        self.stale = true;
        let pieces = pieces.map(IoSlice::new);
        loop {
            let sent = sendmsg::<()>(self.socket.as_raw_fd(), &pieces, &[], MsgFlags::empty(), None);
            match sent {
                Err(Errno::EINTR) => {}
                other => return other.map(drop),
            }
        }
    }

    fn receive(&mut self, flags: MsgFlags) -> nix::Result<&[u8]> {
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.piece, flags | MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
                Ok(length) => return self.piece.get(..length).ok_or(Errno::EMSGSIZE),
            }
        }
    }
}
