//! Deletes entries during a dump. No deletion hides an entry: the dump continues at the last listed entry, or at the
//! start of its bucket (`ctnetlink_dump_table` in net/netfilter/nf_conntrack_netlink.c).

use std::io;

use netlink_sys::Socket;
use nf_tables::netlink::Attributes;
use nix::libc;

use super::{CT_DELETE, CT_GET, CTA_ID, CTA_TUPLE_ORIG, FlowFilter, connect, read_flow, receive, request};
use crate::kernel::netlink::NLM_F_DUMP;
use crate::model::{Family, Flow};

/// A step takes some 15 ms, for which a sync may wait.
pub const ENTRIES_PER_STEP: usize = 4096;
/// A failed deletion takes 0.8 KiB of the receive buffer's 208 (`net.core.rmem_default`).
pub const DELETIONS_PER_DATAGRAM: usize = 128;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanStep {
    pub seen: usize,
    pub deleted: usize,
    pub datagrams: usize,
    pub is_last: bool,
}

#[derive(Debug)]
pub(super) struct ConntrackScan {
    family: Family,
    rest: Vec<FlowFilter>,
    pub(super) is_dumping: bool,
}

impl ConntrackScan {
    pub(super) fn new(family: Family, filters: &[FlowFilter]) -> ConntrackScan {
        ConntrackScan { family, rest: filters.to_vec(), is_dumping: false }
    }

    /// `deletions` is a second socket, because refusals would mix with the dump's entries.
    pub(super) fn step(
        &mut self,
        dump: &Socket,
        deletions: &mut Option<Socket>,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> io::Result<ScanStep> {
        let mut step = ScanStep::default();
        while step.seen < ENTRIES_PER_STEP {
            if !self.is_dumping {
                let Some(filter) = self.rest.pop() else {
                    step.is_last = true;
                    break;
                };
                dump.send(&request(CT_GET, NLM_F_DUMP, self.family, |writer| filter.write(writer)), 0)?;
                self.is_dumping = true;
            }
            let mut batch = DeletionBatch::default();
            let is_over = receive(dump, 0, |entry| {
                step.seen += 1;
                // A kernel before 5.8 ignores the filter.
                if read_flow(entry).is_some_and(|flow| stale(&flow)) {
                    batch.add(self.family, entry);
                }
            })?;
            self.is_dumping = !is_over;
            batch.send(deletions, &mut step)?;
        }
        Ok(step)
    }
}

#[derive(Default)]
struct DeletionBatch {
    datagrams: Vec<Vec<u8>>,
    count: usize,
}

impl DeletionBatch {
    /// Adds an entry's deletion, by original tuple and ID.
    fn add(&mut self, family: Family, entry: Attributes<'_>) {
        let message = request(CT_DELETE, 0, family, |writer| {
            entry.get(CTA_TUPLE_ORIG).into_iter().for_each(|tuple| writer.put_nested(CTA_TUPLE_ORIG, tuple));
            entry.get(CTA_ID).into_iter().for_each(|id| writer.put(CTA_ID, id));
        });
        if self.count.is_multiple_of(DELETIONS_PER_DATAGRAM) {
            self.datagrams.push(Vec::with_capacity(message.len() * DELETIONS_PER_DATAGRAM));
        }
        if let Some(datagram) = self.datagrams.last_mut() {
            datagram.extend(message);
        }
        self.count += 1;
    }

    /// The kernel deletes before the send returns, and answers only failures.
    fn send(self, socket: &mut Option<Socket>, step: &mut ScanStep) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let socket = match socket {
            Some(socket) => socket,
            None => socket.insert(connect()?),
        };
        step.datagrams += self.datagrams.len();
        step.deleted += self.count;
        for datagram in &self.datagrams {
            socket.send(datagram, 0)?;
            step.deleted -= failures(socket)?;
        }
        Ok(())
    }
}

/// Returns the number of entries that expired before their deletion.
fn failures(socket: &Socket) -> io::Result<usize> {
    let mut failed = 0;
    loop {
        match receive(socket, libc::MSG_DONTWAIT, |_| {}) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(failed),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => failed += 1,
            // The buffer overflowed, and the kernel dropped some failures.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
}
