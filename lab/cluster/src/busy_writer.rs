//! Rewrites its own nft table repeatedly, like reloads with `nft -f`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike};

const TABLE: &str = "svclab-busy";
const CHAIN: &str = "rules";
/// Time limit of a reply, in seconds.
const PATIENCE: i64 = 10;

// linux/netfilter/nfnetlink.h and nf_tables.h.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = SUBSYSTEM << 8 | 2;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
/// `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`.
const TABLE_NAME: u16 = 1;
/// `NFTA_CHAIN_NAME`.
const CHAIN_NAME: u16 = 3;
const HEADER: usize = 16;

/// A thread that rewrites the table; it stops when this is dropped.
pub struct BusyWriter {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    since: Instant,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl BusyWriter {
    /// Opens a netlink socket; call on the node's thread.
    pub(super) fn open() -> io::Result<OwnedFd> {
        let raw = SockType::Raw;
        let opened = socket(AddressFamily::Netlink, raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter)?;
        setsockopt(&opened, ReceiveTimeout, &TimeVal::seconds(PATIENCE))?;
        Ok(opened)
    }

    /// Starts the thread; the first write has succeeded when this returns.
    pub(super) fn start(socket: OwnedFd, per_second: u32) -> io::Result<BusyWriter> {
        rewrite(&socket)?;
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let pause = Duration::from_secs(1) / per_second.max(1);
        let work = move || {
            let mut next = Instant::now() + pause;
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                rewrite(&socket)?;
                count.fetch_add(1, Ordering::Relaxed);
                // Does not catch up on missed writes.
                next = (next + pause).max(Instant::now());
            }
            transact(&socket, &[message(DELETE_TABLE, libc::NLM_F_ACK, &[(TABLE_NAME, TABLE)])])
        };
        let thread = thread::Builder::new().name("busy-writer".to_owned()).spawn(work)?;
        Ok(BusyWriter { stop, written, since: Instant::now(), thread: Some(thread) })
    }

    /// Stops the thread and deletes the table; returns the number of writes and their time span.
    ///
    /// # Errors
    /// The kernel rejected a write.
    pub fn end(mut self) -> io::Result<(u64, Duration)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(result)) => result?,
            _ => return Err(io::Error::other("the writing thread has panicked")),
        }
        Ok((self.written.load(Ordering::Relaxed), self.since.elapsed()))
    }
}

impl Drop for BusyWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Replaces the table in one transaction.
fn rewrite(socket: &OwnedFd) -> io::Result<()> {
    let create = libc::NLM_F_CREATE;
    let table = || message(NEW_TABLE, create, &[(TABLE_NAME, TABLE)]);
    let chain = message(NEW_CHAIN, create | libc::NLM_F_ACK, &[(TABLE_NAME, TABLE), (CHAIN_NAME, CHAIN)]);
    transact(socket, &[table(), message(DELETE_TABLE, 0, &[(TABLE_NAME, TABLE)]), table(), chain])
}

/// Sends a transaction, whose last message must request an acknowledgement.
fn transact(socket: &OwnedFd, messages: &[Vec<u8>]) -> io::Result<()> {
    let frame = |kind| packet(kind, 0, [libc::AF_UNSPEC as u8, 0, 0, SUBSYSTEM as u8], &[]);
    let batch = [&[frame(BATCH_BEGIN)], messages, &[frame(BATCH_END)]].concat().concat();
    send(socket.as_raw_fd(), &batch, MsgFlags::empty())?;
    let mut answer = vec![0; 1 << 15];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let mut rest = &answer[..length];
    // `struct nlmsgerr` begins with the error code; a rejected transaction returns one per rejected message.
    while let Some(own) = rest.get(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes) {
        let code = rest.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
        match code {
            Some(0) | None => {}
            Some(code) => return Err(io::Error::from_raw_os_error(-code)),
        }
        let own = usize::try_from(own).unwrap_or(usize::MAX).max(HEADER);
        rest = rest.get(own.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(())
}

fn message(kind: u16, flags: i32, texts: &[(u16, &str)]) -> Vec<u8> {
    packet(kind, flags, [libc::AF_INET as u8, 0, 0, 0], texts)
}

/// Returns a message: `struct nlmsghdr`, `struct nfgenmsg` (family, version, resource), string attributes.
fn packet(kind: u16, flags: i32, header: [u8; 4], texts: &[(u16, &str)]) -> Vec<u8> {
    let mut body = header.to_vec();
    for (attribute, text) in texts {
        let length = 4 + text.len() + 1;
        body.extend((length as u16).to_ne_bytes());
        body.extend(attribute.to_ne_bytes());
        body.extend(text.as_bytes());
        body.resize((body.len() + 1).next_multiple_of(4), 0);
    }
    let flags = (flags | libc::NLM_F_REQUEST) as u16;
    let mut all = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    all.extend(kind.to_ne_bytes());
    all.extend(flags.to_ne_bytes());
    all.extend([0; 8]);
    all.extend(body);
    all
}
