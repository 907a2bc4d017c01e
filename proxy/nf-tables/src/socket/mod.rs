//! A socket to nf_tables of the network namespace that it was opened in.

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

use crate::writer::Writer;

pub use commit::Committed;
pub use error::{CommitError, ReadError, Refusal};

/// The kernel answers before a send returns; what takes longer was lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Send buffer to ask for. The kernel doubles it, and allocates only what a batch needs, which it copies as a whole.
const SEND_BUFFER: usize = 1 << 29;
/// Wanted for receiving: answers to some thousands of operations.
const RECEIVE_BUFFER: usize = 1 << 24;
/// What the kernel keeps of the send buffer for itself (`netlink_sendmsg` in `net/netlink/af_netlink.c`).
const RESERVED: usize = 32;
/// A dump comes in pieces of up to 32 KiB (`netlink(7)`).
const PIECE: usize = 1 << 16;

/// Sends batches and reads what is there.
///
/// It needs `CAP_NET_ADMIN` in the network namespace's user namespace. One thread uses it at a time.
#[derive(Debug)]
pub struct Socket {
    socket: netlink_sys::Socket,
    largest_batch: usize,
    sequence: u32,
    /// The generation that the last dump was of.
    read_at: Option<u32>,
    /// The generation that dumps have to be of, within [`Socket::snapshot`].
    snapshot: Option<u32>,
    /// Answers may still come of what went wrong before.
    stale: bool,
    piece: Vec<u8>,
    /// The last question, and the messages of its answer.
    question: Writer,
    answer: Vec<u8>,
    /// For a question between an answer and its reading.
    spare: Vec<u8>,
}

impl Socket {
    /// Opens a socket in this thread's network namespace, with buffers as large as the kernel allows: beyond the limit of
    /// `net.core.wmem_max` with `CAP_NET_ADMIN` in the first user namespace only.
    ///
    /// # Errors
    /// When the kernel has no socket for it.
    pub fn open() -> io::Result<Socket> {
        let mut socket = netlink_sys::Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Errors then quote the header alone, and explain themselves. Old kernels know neither.
        let _ = (socket.set_cap_ack(true), socket.set_ext_ack(true));
        if setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
            // The kernel takes what its limit allows.
            setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER)?;
        }
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        let patience = i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX);
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(patience, 0))?;
        let largest_batch = getsockopt(&socket, sockopt::SndBuf)?.saturating_sub(RESERVED);
        Ok(Socket {
            socket,
            largest_batch,
            sequence: 0,
            read_at: None,
            snapshot: None,
            stale: false,
            piece: vec![0; PIECE],
            question: Writer::default(),
            answer: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Bytes of the largest batch that can be sent; compare with [`Batch::len`](crate::Batch::len).
    pub fn largest_batch(&self) -> usize {
        self.largest_batch
    }

    /// Sends these pieces as one message to the kernel.
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

    /// The next piece of an answer.
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
