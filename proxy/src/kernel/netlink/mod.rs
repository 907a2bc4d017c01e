//! Netlink as far as IPVS and ipset need it: attributes written and read, many requests in one system call.
//!
//! Neither has a crate that speaks it in process, and both are little more than attributes (`Documentation/userspace-api/
//! netlink/intro.rst`); sockets and the walk over attributes are crates' all the same. What is asked at every look – links,
//! addresses, the canary chains of nf_tables – is asked by it, too; connections, whose attributes are many, are a crate's.

mod address;
mod attributes;

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr};

pub use address::address_of;
pub use attributes::{Attributes, Parsed};

/// `NLMSG_ERROR`, `NLMSG_DONE` (`include/uapi/linux/netlink.h`).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Length of a netlink header (`struct nlmsghdr`).
const HEADER: usize = 16;
/// A dump comes in messages of up to 32 KiB (`netlink(7)`).
const RECEIVE: usize = 1 << 16;
/// Bytes of requests in one system call: well below the usual socket buffer of 212,992 bytes.
const BATCH_BYTES: usize = 48 * 1024;
/// Requests in one system call: were each refused, the answers must fit into the socket's buffer.
const BATCH_REQUESTS: usize = 64;

/// How often a dump is asked for anew because what it tells of changed meanwhile.
const DUMPS: usize = 100;

/// A request that the kernel refused, or that could not be sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}: {source}")]
pub struct NetlinkError {
    /// What was attempted, on what.
    pub operation: String,
    /// What the kernel said.
    pub source: io::Error,
}

impl NetlinkError {
    /// An error of this operation.
    pub fn new(operation: impl Into<String>, source: io::Error) -> NetlinkError {
        NetlinkError { operation: operation.into(), source }
    }

    /// The kernel's error number.
    pub fn code(&self) -> Option<i32> {
        let ipset = || Some(self.source.get_ref()?.downcast_ref::<IpsetError>()?.0);
        self.source.raw_os_error().or_else(ipset)
    }
}

/// One request: the message's type, its own header, its attributes.
#[derive(Debug, Clone)]
pub struct Request {
    /// `nlmsg_type`.
    pub kind: u16,
    /// Flags besides `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub flags: u16,
    /// What follows the netlink header, before the attributes.
    pub header: Vec<u8>,
    /// The attributes.
    pub attributes: Attributes,
    /// What is attempted, in words for an error message.
    pub operation: String,
    /// Error numbers that mean that there is nothing to do.
    pub harmless: &'static [i32],
}

impl Request {
    fn message(&self, sequence: u32, flags: u16) -> Vec<u8> {
        let length = HEADER + self.header.len() + self.attributes.len();
        let mut message = Vec::with_capacity(length);
        message.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        message.extend(self.kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | self.flags | flags).to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(&self.header);
        self.attributes.append_to(&mut message);
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }
}

/// A socket of one netlink protocol.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    /// System calls that sent something, for figures.
    pub sent: usize,
}

/// An answer of the kernel's, without its netlink header.
struct Answer<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

impl Netlink {
    /// Opens a socket of this protocol.
    ///
    /// # Errors
    /// When the kernel has none for us.
    pub fn open(protocol: isize) -> io::Result<Netlink> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0, sent: 0 })
    }

    /// Asks, and hands on the payload of every answer.
    ///
    /// A dump comes in pieces, and between two of them the list may change. Then entries that were there all the time can be
    /// missing; the kernel says so (`NLM_F_DUMP_INTR`), and the dump is asked for anew.
    ///
    /// # Errors
    /// When the kernel refuses, or a list does not hold still.
    pub fn ask(&mut self, request: &Request, dump: bool, mut answer: impl FnMut(&[u8])) -> Result<(), NetlinkError> {
        if !dump {
            return self.ask_once(request, NLM_F_ACK, answer).map(drop);
        }
        let payloads = of_one_moment(&request.operation, || {
            let mut payloads = Vec::new();
            let whole = self.ask_once(request, NLM_F_DUMP, |payload| payloads.push(payload.to_vec()))?;
            Ok(whole.then_some(payloads))
        })?;
        payloads.iter().for_each(|payload| answer(payload));
        Ok(())
    }

    /// Whether all answers are of one moment.
    fn ask_once(&mut self, request: &Request, flags: u16, mut answer: impl FnMut(&[u8])) -> Result<bool, NetlinkError> {
        let failed = |source| NetlinkError::new(&request.operation, source);
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        self.socket.send(&request.message(sequence, flags), 0).map_err(failed)?;
        self.sent += 1;
        let (mut outcome, mut consistent) = (Ok(()), true);
        self.answers(|one| {
            if one.sequence != sequence {
                return false;
            }
            consistent &= one.flags & NLM_F_DUMP_INTR == 0;
            match one.kind {
                NLMSG_DONE => true,
                NLMSG_ERROR => {
                    outcome = code(one.payload).map_or(Ok(()), Err);
                    true
                }
                _ => {
                    answer(one.payload);
                    false
                }
            }
        })
        .map_err(failed)?;
        match outcome {
            Err(code) if !request.harmless.contains(&code) => Err(failed(error_of(code))),
            _ => Ok(consistent),
        }
    }

    /// Sends many requests, in order and in few system calls. All are tried; the first refusal is the error.
    ///
    /// # Errors
    /// When the kernel refuses one, but for what is harmless.
    pub fn send(&mut self, requests: &[Request]) -> Result<(), NetlinkError> {
        let mut first = None;
        let mut rest = requests;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |request: &Request| {
                bytes += HEADER + request.header.len() + request.attributes.len() + 4;
                bytes <= BATCH_BYTES
            };
            let count = rest.iter().take(BATCH_REQUESTS).map(fits).take_while(|fits| *fits).count().max(1);
            let (batch, after) = rest.split_at(count);
            rest = after;
            if let Err(error) = self.batch(batch) {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Every request may be refused; only the last one is confirmed.
    fn batch(&mut self, requests: &[Request]) -> Result<(), NetlinkError> {
        let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return Ok(()) };
        let failed = |source| NetlinkError::new(format!("{} and what follows", first.operation), source);
        let begin = self.sequence.wrapping_add(1);
        let mut buffer = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let is_last = index + 1 == requests.len();
            buffer.extend(request.message(self.sequence, if is_last { NLM_F_ACK } else { 0 }));
        }
        let end = self.sequence;
        self.socket.send(&buffer, 0).map_err(failed)?;
        self.sent += 1;
        let mut refused = None;
        self.answers(|one| {
            if one.kind == NLMSG_ERROR
                && let Some(code) = code(one.payload)
            {
                let index = usize::try_from(one.sequence.wrapping_sub(begin)).unwrap_or(usize::MAX);
                let request = requests.get(index).unwrap_or(last);
                if !request.harmless.contains(&code) {
                    refused.get_or_insert_with(|| NetlinkError::new(&request.operation, error_of(code)));
                }
            }
            one.kind == NLMSG_ERROR && one.sequence == end
        })
        .map_err(failed)?;
        refused.map_or(Ok(()), Err)
    }

    /// Hands on answers until one was the last.
    fn answers(&self, mut last: impl FnMut(Answer<'_>) -> bool) -> io::Result<()> {
        // Not zeroed: the most of it is never used.
        let mut buffer = Vec::with_capacity(RECEIVE);
        loop {
            buffer.clear();
            self.socket.recv(&mut buffer, 0)?;
            if cut(&buffer).any(&mut last) {
                return Ok(());
            }
        }
    }
}

/// The answers in what was received; what is cut off ends them.
fn cut(received: &[u8]) -> impl Iterator<Item = Answer<'_>> {
    let mut rest = received;
    std::iter::from_fn(move || {
        let word = |at: usize| Some(u32::from_ne_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(rest.get(at..at + 2)?.try_into().ok()?));
        let length = usize::try_from(word(0)?).unwrap_or(rest.len()).max(HEADER).min(rest.len());
        let payload = rest.get(HEADER..length)?;
        let answer = Answer { kind: half(4)?, flags: half(6)?, sequence: word(8)?, payload };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(answer)
    })
}

/// Reads these bytes as an answer of the kernel, for [`crate::fuzzing`].
pub(crate) fn fuzz(bytes: &[u8], payload: impl Fn(&[u8])) {
    for answer in cut(bytes) {
        let _ = code(answer.payload).map(error_of);
        payload(answer.payload);
    }
}

/// What `read` has found as soon as nothing changed meanwhile, which is when it finds something.
fn of_one_moment<T>(
    operation: &str,
    mut read: impl FnMut() -> Result<Option<T>, NetlinkError>,
) -> Result<T, NetlinkError> {
    for _ in 0..DUMPS {
        if let Some(found) = read()? {
            return Ok(found);
        }
    }
    let changing = io::Error::other(format!("it changed while it was read, {DUMPS} times in a row"));
    Err(NetlinkError::new(operation, changing))
}

/// The error number in an `NLMSG_ERROR`; `None`: success.
fn code(payload: &[u8]) -> Option<i32> {
    let number = payload.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes)?;
    (number != 0).then_some(number.wrapping_neg())
}

/// ipset has numbers of its own (`include/uapi/linux/netfilter/ipset/ip_set.h`).
#[derive(Debug, thiserror::Error)]
#[error("{}", ipset_words(*.0).unwrap_or("an error of ipset"))]
struct IpsetError(i32);

fn ipset_words(code: i32) -> Option<&'static str> {
    Some(match code {
        4096 => "ipset: a private error",
        4097 => "ipset: the kernel speaks another version of its protocol",
        4098 => "the kernel has no such set type",
        4099 => "there is no room for another set",
        4100 => "the set is in use",
        4101 => "there is a set of that name already",
        4102 => "the sets are of different types",
        4103 => "the member is there already, or is not",
        4108 => "the set is referred to",
        4352 => "the set is full",
        _ => return None,
    })
}

fn error_of(code: i32) -> io::Error {
    match ipset_words(code) {
        Some(_) => io::Error::other(IpsetError(code)),
        None => io::Error::from_raw_os_error(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_changes_have_cut_short_is_asked_for_anew() {
        let mut looks = 0;
        let third = of_one_moment("list it", || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(third.unwrap(), 3);
        let never = of_one_moment("list it", || Ok(None::<()>)).unwrap_err().to_string();
        assert_eq!(never, "cannot list it: it changed while it was read, 100 times in a row");
        let refused = || Err(NetlinkError::new("list it", io::Error::from_raw_os_error(1)));
        assert_eq!(of_one_moment::<()>("list it", refused).unwrap_err().code(), Some(1), "a refusal is no change");
    }
}
