//! Deletes entries while a dump shows them: nothing of the table is kept but the tuples of one answer, some hundred, however many are stale.
//! The dump goes on from the last entry that it has shown, or from the beginning of that entry's bucket where it was deleted
//! (`ctnetlink_dump_table` in net/netfilter/nf_conntrack_netlink.c), so deletions hide no entry from it.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_netfilter::conntrack::{ConntrackAttribute, ConntrackMessage};
use netlink_packet_netfilter::{NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::Socket;
use nix::libc;

use super::{Filter, Flow, names_entry, read};
use crate::kernel::netfilter;

/// A piece ends with the answer that has shown so many entries: some 15 ms, which a change of rules may have to wait.
pub const PIECE: usize = 4096;
/// Deletions in one datagram. Each that fails is answered by 0.8 KiB of the socket's receive buffer, which has room for 208 KiB
/// (`net.core.rmem_default`).
pub const BATCH: usize = 128;

/// What a piece of the work has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Piece {
    /// Entries that were looked at.
    pub seen: usize,
    /// Those of them that were deleted.
    pub deleted: usize,
    /// Datagrams with deletions that were sent.
    pub datagrams: usize,
    /// There is nothing more to look at.
    pub is_last: bool,
}

/// A look through the table that may be under way.
#[derive(Debug)]
pub(super) struct Scan {
    family: NetfilterProtoFamily,
    /// Dumps that have not begun.
    rest: Vec<Filter>,
    /// One has begun and is not over: the socket can be asked for nothing else.
    pub(super) is_dumping: bool,
}

impl Scan {
    pub(super) fn new(family: NetfilterProtoFamily, filters: &[Filter]) -> Scan {
        Scan { family, rest: filters.to_vec(), is_dumping: false }
    }

    /// Goes on. Deletions go by a socket of their own, `deletions`, because what fails is answered between the entries of a dump.
    pub(super) fn go_on(
        &mut self,
        dump: &Socket,
        deletions: &mut Option<Socket>,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> io::Result<Piece> {
        let mut piece = Piece::default();
        while piece.seen < PIECE {
            if !self.is_dumping {
                let Some(filter) = self.rest.pop() else {
                    piece.is_last = true;
                    break;
                };
                let request = netfilter::encode(self.family, NLM_F_REQUEST | NLM_F_DUMP, filter.request());
                dump.send(&request, 0)?;
                self.is_dumping = true;
            }
            let mut batch = Batch::new(self.family);
            let is_over = netfilter::receive(dump, 0, |answer| {
                if let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = answer {
                    piece.seen += 1;
                    // A kernel before 5.8 does not filter.
                    if read(&attributes).is_some_and(|flow| stale(&flow)) {
                        batch.add(attributes);
                    }
                }
            })?;
            self.is_dumping = !is_over;
            batch.send(deletions, &mut piece)?;
        }
        Ok(piece)
    }
}

/// Deletions, each as the message that asks for it.
struct Batch {
    family: NetfilterProtoFamily,
    datagrams: Vec<Vec<u8>>,
    /// Messages in the last one.
    last: usize,
    count: usize,
}

impl Batch {
    fn new(family: NetfilterProtoFamily) -> Batch {
        Batch { family, datagrams: Vec::new(), last: BATCH, count: 0 }
    }

    fn add(&mut self, mut attributes: Vec<ConntrackAttribute>) {
        attributes.retain(names_entry);
        let message = netfilter::encode(self.family, NLM_F_REQUEST, ConntrackMessage::Delete(attributes));
        if self.last == BATCH {
            self.datagrams.push(Vec::with_capacity(message.len() * BATCH));
            self.last = 0;
        }
        if let Some(datagram) = self.datagrams.last_mut() {
            datagram.extend(message);
        }
        self.last += 1;
        self.count += 1;
    }

    /// The kernel works while it is being sent to. Without an acknowledgement it answers what has failed alone.
    fn send(self, socket: &mut Option<Socket>, piece: &mut Piece) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let socket = match socket {
            Some(socket) => socket,
            None => socket.insert(netfilter::connect()?),
        };
        piece.datagrams += self.datagrams.len();
        piece.deleted += self.count;
        for datagram in &self.datagrams {
            socket.send(datagram, 0)?;
            piece.deleted -= failures(socket)?;
        }
        Ok(())
    }
}

/// How many entries had ended by themselves before they could be deleted.
fn failures(socket: &Socket) -> io::Result<usize> {
    let mut failed = 0;
    loop {
        match netfilter::receive(socket, libc::MSG_DONTWAIT, |_| {}) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(failed),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => failed += 1,
            // With a smaller buffer: more have failed than were answered.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
}
