//! Requests whose answers are of one generation.
//!
//! The kernel misses some changes during a dump (`NLM_F_DUMP_INTR`): changes during the last datagram, and uncommitted
//! insertions and deletions, because it stores its position as a number. So a request for the generation follows each
//! dump, and a dump of several datagrams counts once the next one lists the same objects. Rules report their
//! predecessor, too: this reveals a gap that two dumps share.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::{io, mem};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

use super::NfSocket;
use super::error::QueryError;
use crate::batch::{NFGENMSG, SUBSYSTEM, flag, header};
use crate::family::Family;
use crate::netlink::{AttributeWriter, Attributes, MessageContent, Messages, patch_length};

const GET_ELEMENTS: u16 = SUBSYSTEM << 8 | libc::NFT_MSG_GETSETELEM as u16;
const GET_RULES: u16 = SUBSYSTEM << 8 | libc::NFT_MSG_GETRULE as u16;
/// A shorter answer arrived in one datagram of at least 4 KiB less 320 bytes (`netlink_dump`).
const ONE_PIECE: usize = 2048;
/// The most dumps while the tables keep changing.
const DUMPS: usize = 100;

/// A request's type, flags besides `NLM_F_REQUEST`, and family.
pub(super) struct Request {
    pub(super) what: &'static str,
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) family: Family,
}

impl Request {
    pub(super) fn new(what: &'static str, kind: libc::c_int, flags: u16, family: Family) -> Request {
        Request { what, kind: SUBSYSTEM << 8 | u16::try_from(kind).unwrap_or_default(), flags, family }
    }
}

enum DumpOutcome {
    /// The whole answer, and the lower half of its generation.
    Whole(Option<u16>),
    Interrupted,
    /// An error number.
    Refused(i32),
}

/// Returns a hash of the first three attributes: names, handles and flags, but no counters.
fn identity<'a>(objects: impl Iterator<Item = Attributes<'a>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let names = objects.flatten().filter(|attribute| attribute.kind <= 3);
    names.for_each(|attribute| attribute.value.hash(&mut hasher));
    hasher.finish()
}

/// Whether each rule follows its committed predecessor (`NFTA_RULE_POSITION`, `nf_tables_dump_rules`), which old
/// kernels omit.
fn in_sequence<'a>(rules: impl Iterator<Item = Attributes<'a>> + Clone) -> bool {
    // `NFTA_RULE_CHAIN`, `NFTA_RULE_HANDLE`, `NFTA_RULE_POSITION`.
    let mut places = rules.map(|rule| (rule.get(2), rule.be64(3), rule.be64(6)));
    if places.clone().all(|(.., behind)| behind.is_none()) {
        return true;
    }
    let mut before = (None, None);
    places.all(|(chain, handle, behind)| {
        let first = chain != before.0;
        let expected = if first { None } else { before.1 };
        before = (chain, handle);
        behind == expected
    })
}

impl NfSocket {
    /// Repeats `read` until the generation is the same before and after.
    pub fn snapshot<T>(
        &mut self,
        mut read: impl FnMut(&mut NfSocket) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        for _ in 0..DUMPS {
            let before = self.generation()?;
            self.snapshot = Some(before);
            let result = read(self);
            self.snapshot = None;
            if self.generation()? == before {
                return result;
            }
        }
        Err(QueryError { what: "a snapshot", source: io::ErrorKind::ResourceBusy.into() })
    }

    /// `read`'s dumps must have this generation, else [`io::ErrorKind::ResourceBusy`]. The caller checks the generation
    /// afterwards, or commits for it.
    pub fn at_generation<T>(
        &mut self,
        generation: u32,
        read: impl FnOnce(&mut NfSocket) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let before = self.snapshot.replace(generation);
        let result = read(self);
        self.snapshot = before;
        result
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = Attributes<'_>> + Clone {
        Messages::new(&self.answer).filter_map(|message| match message.content() {
            MessageContent::Payload(payload) => Some(Attributes::after_header(payload, NFGENMSG)),
            MessageContent::Answer { .. } | MessageContent::Done { .. } => None,
        })
    }

    /// Returns false if the object does not exist.
    pub(super) fn ask_for(
        &mut self,
        request: &Request,
        fill: impl Fn(&mut AttributeWriter),
    ) -> Result<bool, QueryError> {
        match self.ask(request, fill) {
            Ok(()) => Ok(true),
            Err(error) if error.source.raw_os_error() == Some(libc::ENOENT) => {
                self.answer.clear();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Repeats the request until the answer is of one generation.
    pub(super) fn ask(&mut self, request: &Request, fill: impl Fn(&mut AttributeWriter)) -> Result<(), QueryError> {
        let failed = |source| QueryError { what: request.what, source };
        let dump = request.flags & flag::DUMP == flag::DUMP;
        let mut before = None;
        for _ in 0..DUMPS {
            match self.ask_once(request, &fill).map_err(failed)? {
                DumpOutcome::Whole(_) if request.kind == GET_RULES && !in_sequence(self.objects()) => {}
                DumpOutcome::Refused(code) => return Err(failed(io::Error::from_raw_os_error(code))),
                DumpOutcome::Whole(_) if !dump => return Ok(()),
                DumpOutcome::Whole(generation) => {
                    let now = match self.snapshot {
                        Some(generation) => generation,
                        None => self.generation_now().map_err(failed)?,
                    };
                    match generation {
                        Some(then) if then != now as u16 && self.snapshot.is_some() => break,
                        Some(then) if then != now as u16 => continue,
                        _ => {}
                    }
                    let in_pieces = self.answer.len() > ONE_PIECE && request.kind != GET_ELEMENTS;
                    let reported = in_pieces.then(|| (now, identity(self.objects())));
                    if reported == before || reported.is_none() {
                        self.read_at = Some(now);
                        return Ok(());
                    }
                    before = reported;
                }
                DumpOutcome::Interrupted => {}
            }
        }
        Err(failed(io::ErrorKind::ResourceBusy.into()))
    }

    fn generation_now(&mut self) -> io::Result<u32> {
        mem::swap(&mut self.answer, &mut self.spare);
        let generation = self.generation();
        mem::swap(&mut self.answer, &mut self.spare);
        generation.map_err(|error| error.source)
    }

    fn ask_once(&mut self, request: &Request, fill: impl Fn(&mut AttributeWriter)) -> io::Result<DumpOutcome> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let mut question = mem::take(&mut self.question);
        question.clear();
        let flags = flag::REQUEST | request.flags;
        question.bytes.extend_from_slice(&header(request.kind, flags, sequence, request.family.code(), 0));
        fill(&mut question);
        patch_length(&mut question.bytes, 0);
        let sent = match question.take_error() {
            Some(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error.to_string())),
            None => self.send([&question.bytes]).map_err(io::Error::from),
        };
        self.question = question;
        sent?;
        self.answer.clear();
        let (mut interrupted, mut generation) = (false, None);
        loop {
            let piece = match self.receive(MsgFlags::empty()) {
                Ok(piece) => piece,
                Err(Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error.into()),
            };
            let mut end = None;
            for message in Messages::new(piece).filter(|message| message.sequence == sequence) {
                interrupted |= message.flags & flag::DUMP_INTERRUPTED != 0;
                match message.content() {
                    MessageContent::Answer { code, .. } | MessageContent::Done { code } => end = Some(code),
                    MessageContent::Payload(payload) => {
                        // `res_id` is the generation's lower half.
                        let of = payload.get(2..NFGENMSG).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
                        interrupted |= *generation.get_or_insert(of) != of;
                        // A request without flags has one answer and no final message.
                        if request.flags == 0 {
                            end = Some(0);
                        }
                    }
                }
            }
            let length = piece.len();
            self.answer.extend_from_slice(self.piece.get(..length).unwrap_or_default());
            if let Some(code) = end {
                self.stale = false;
                return Ok(match code {
                    0 if interrupted => DumpOutcome::Interrupted,
                    // The tables changed.
                    libc::EINTR => DumpOutcome::Interrupted,
                    0 => DumpOutcome::Whole(generation),
                    code => DumpOutcome::Refused(code),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(of: &[(&str, u64, Option<u64>)]) -> bool {
        let dumped = of.iter().map(|(chain, handle, behind)| {
            let mut writer = AttributeWriter::default();
            writer.put(2, chain.as_bytes());
            writer.put(3, &handle.to_be_bytes());
            if let Some(behind) = behind {
                writer.put(6, &behind.to_be_bytes());
            }
            writer.bytes
        });
        let dumped: Vec<Vec<u8>> = dumped.collect();
        in_sequence(dumped.iter().map(|rule| Attributes::new(rule)))
    }

    #[test]
    fn a_gap_in_a_dump_and_a_rule_that_came_twice_are_seen() {
        assert!(rules(&[]));
        assert!(rules(&[("a", 7, None), ("a", 9, Some(7)), ("a", 8, Some(9)), ("b", 1, None), ("b", 2, Some(1))]));
        // Another program deleted rule 9 between two datagrams.
        assert!(!rules(&[("a", 7, None), ("a", 8, Some(9))]));
        assert!(!rules(&[("a", 8, Some(9))]));
        assert!(!rules(&[("a", 7, None), ("a", 9, Some(7)), ("a", 9, Some(7)), ("a", 8, Some(9))]));
        assert!(!rules(&[("a", 7, None), ("a", 9, Some(7)), ("a", 7, None), ("a", 9, Some(7))]));
        assert!(!rules(&[("a", 7, None), ("b", 2, Some(1))]));
        // An old kernel reports no positions.
        assert!(rules(&[("a", 7, None), ("a", 8, None)]));
    }
}
