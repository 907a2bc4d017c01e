//! Requests over the codec [`nf_tables::netlink`].

mod ipset_error;
mod route;

use std::io;
use std::net::IpAddr;

use netlink_sys::{Socket, SocketAddr};
use nf_tables::netlink::{AttributeWriter, HEADER_LENGTH, Message, MessageContent, Messages, header, patch_length};
use nix::libc;

use ipset_error::IpsetError;
pub(in crate::kernel) use route::{LINK_HEADER, NEIGHBOUR_HEADER, ROUTE_HEADER};
pub(in crate::kernel) use route::{address_header, link_header, neighbour_header, own_address, route_header};

pub(super) const NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
pub(super) const NLM_F_DUMP: u16 = libc::NLM_F_DUMP as u16;
pub(super) const NLM_F_CREATE: u16 = libc::NLM_F_CREATE as u16;
pub(super) const NLM_F_EXCL: u16 = libc::NLM_F_EXCL as u16;
pub(super) const NLM_F_REPLACE: u16 = libc::NLM_F_REPLACE as u16;
const NLM_F_ACK: u16 = libc::NLM_F_ACK as u16;
const NLM_F_DUMP_INTR: u16 = libc::NLM_F_DUMP_INTR as u16;

const DATAGRAM: usize = 1 << 16;
/// Fits into a usual socket buffer of 212,992 bytes.
const BATCH_BYTES: usize = 48 * 1024;
/// The most requests: if all are refused, the receive buffer must hold the answers.
const BATCH_REQUESTS: usize = 64;
/// The most dumps while the listed objects keep changing.
const DUMPS: usize = 100;

#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}: {source}")]
pub struct NetlinkError {
    pub operation: String,
    pub source: io::Error,
}

impl NetlinkError {
    pub fn new(operation: impl Into<String>, source: io::Error) -> NetlinkError {
        NetlinkError { operation: operation.into(), source }
    }

    pub fn code(&self) -> Option<i32> {
        let ipset = || Some(self.source.get_ref()?.downcast_ref::<IpsetError>()?.0);
        self.source.raw_os_error().or_else(ipset)
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    pub kind: u16,
    /// The flags besides `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub flags: u16,
    /// The protocol's header and the attributes.
    pub body: AttributeWriter,
    pub operation: String,
    /// Error numbers that count as success.
    pub harmless: &'static [i32],
}

impl Request {
    /// The caller adds attributes to `body`.
    pub fn new(kind: u16, header: &[u8], operation: impl Into<String>) -> Request {
        let body = AttributeWriter::after_header(header);
        Request { kind, flags: 0, body, operation: operation.into(), harmless: &[] }
    }

    fn append_to(&self, buffer: &mut Vec<u8>, sequence: u32, flags: u16) {
        let begin = buffer.len();
        buffer.extend(header(self.kind, NLM_F_REQUEST | self.flags | flags, sequence));
        buffer.extend(self.body.bytes());
        patch_length(buffer, begin);
    }

    fn encoding_error(&self) -> Option<NetlinkError> {
        let error = io::Error::new(io::ErrorKind::InvalidInput, self.body.error()?.to_string());
        Some(NetlinkError::new(&self.operation, error))
    }
}

pub struct NetlinkSocket {
    socket: Socket,
    sequence: u32,
}

impl NetlinkSocket {
    pub fn open(protocol: isize) -> io::Result<NetlinkSocket> {
        Ok(NetlinkSocket { socket: connect(protocol)?, sequence: 0 })
    }

    pub fn ask(&mut self, request: &Request, each: impl FnMut(&[u8])) -> Result<(), NetlinkError> {
        self.ask_once(request, NLM_F_ACK, each).map(drop)
    }

    /// Repeats a dump if the list changes meanwhile (`NLM_F_DUMP_INTR`).
    pub fn dump(&mut self, request: &Request, mut each: impl FnMut(&[u8])) -> Result<(), NetlinkError> {
        let payloads = until_consistent(&request.operation, || {
            let mut payloads = Vec::new();
            let consistent = self.ask_once(request, NLM_F_DUMP, |payload| payloads.push(payload.to_vec()))?;
            Ok(consistent.then_some(payloads))
        })?;
        payloads.iter().for_each(|payload| each(payload));
        Ok(())
    }

    /// Returns false after an interrupted dump.
    fn ask_once(&mut self, request: &Request, flags: u16, mut each: impl FnMut(&[u8])) -> Result<bool, NetlinkError> {
        if let Some(error) = request.encoding_error() {
            return Err(error);
        }
        let failed = |source| NetlinkError::new(&request.operation, source);
        self.sequence = self.sequence.wrapping_add(1);
        let (sequence, mut message) = (self.sequence, Vec::new());
        request.append_to(&mut message, sequence, flags);
        self.socket.send(&message, 0).map_err(failed)?;
        let (mut end, mut consistent) = (None, true);
        while end.is_none() {
            receive(&self.socket, 0, |message| {
                if message.sequence != sequence || end.is_some() {
                    return;
                }
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.content() {
                    MessageContent::Done { .. } => end = Some(0),
                    MessageContent::Answer { code, .. } => end = Some(code),
                    MessageContent::Payload(payload) => each(payload),
                }
            })
            .map_err(failed)?;
        }
        match end {
            Some(code) if code != 0 && !request.harmless.contains(&code) => Err(failed(error_of(code))),
            _ => Ok(consistent),
        }
    }

    /// Sends in few system calls. The kernel tries all; returns the first refusal.
    pub fn send(&mut self, requests: &[Request]) -> Result<(), NetlinkError> {
        let mut first = requests.iter().find_map(Request::encoding_error);
        if first.is_some() {
            return first.map_or(Ok(()), Err);
        }
        let mut rest = requests;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |request: &Request| {
                bytes += HEADER_LENGTH + request.body.bytes().len();
                bytes <= BATCH_BYTES
            };
            let count = rest.iter().take(BATCH_REQUESTS).map(fits).take_while(|fits| *fits).count().max(1);
            let (batch, after) = rest.split_at(count);
            rest = after;
            if let Err(error) = self.send_batch(batch) {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Requests an acknowledgement of the last request only.
    fn send_batch(&mut self, requests: &[Request]) -> Result<(), NetlinkError> {
        let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return Ok(()) };
        let failed = |source| NetlinkError::new(format!("{} and what follows", first.operation), source);
        let begin = self.sequence.wrapping_add(1);
        let mut buffer = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let is_last = index + 1 == requests.len();
            request.append_to(&mut buffer, self.sequence, if is_last { NLM_F_ACK } else { 0 });
        }
        let end = self.sequence;
        self.socket.send(&buffer, 0).map_err(failed)?;
        let (mut refused, mut is_over) = (None, false);
        while !is_over {
            receive(&self.socket, 0, |message| {
                let MessageContent::Answer { code, .. } = message.content() else { return };
                let index = usize::try_from(message.sequence.wrapping_sub(begin)).unwrap_or(usize::MAX);
                let request = requests.get(index).unwrap_or(last);
                if code != 0 && !request.harmless.contains(&code) {
                    refused.get_or_insert_with(|| NetlinkError::new(&request.operation, error_of(code)));
                }
                is_over |= message.sequence == end;
            })
            .map_err(failed)?;
        }
        refused.map_or(Ok(()), Err)
    }
}

pub(super) fn connect(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

pub(super) fn receive(socket: &Socket, flags: i32, each: impl FnMut(Message<'_>)) -> io::Result<()> {
    // Does not zero the buffer, because answers are short.
    let mut buffer = Vec::with_capacity(DATAGRAM);
    socket.recv(&mut buffer, flags)?;
    Messages::new(&buffer).for_each(each);
    Ok(())
}

pub(super) fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

pub(crate) fn fuzz(bytes: &[u8], payload: impl Fn(&[u8])) {
    for message in Messages::new(bytes) {
        if let MessageContent::Answer { code, .. } = message.content() {
            let _ = error_of(code);
        }
        payload(message.payload);
    }
}

fn until_consistent<T>(
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

fn error_of(code: i32) -> io::Error {
    match IpsetError::of(code) {
        Some(error) => io::Error::other(error),
        None => io::Error::from_raw_os_error(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_dump_is_repeated() {
        let mut reads = 0;
        let third = until_consistent("list it", || {
            reads += 1;
            Ok((reads == 3).then_some(reads))
        });
        assert_eq!(third.unwrap(), 3);
        let never = until_consistent("list it", || Ok(None::<()>)).unwrap_err().to_string();
        assert_eq!(never, "cannot list it: it changed while it was read, 100 times in a row");
        let refused = || Err(NetlinkError::new("list it", io::Error::from_raw_os_error(1)));
        assert_eq!(until_consistent::<()>("list it", refused).unwrap_err().code(), Some(1), "a refusal is final");
    }
}
