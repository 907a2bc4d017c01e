//! A question and its answer, of one moment.
//!
//! The kernel does not notice all that happens to a dump (`NLM_F_DUMP_INTR`): not a change during its last piece; and between
//! two pieces it remembers a number, and counts what others have inserted and not committed, or deleted and not yet unlinked.
//! So the generation is asked for behind each dump, and one that can have come in several pieces is believed when the next one
//! reports the same objects. Rules say behind which rule they stand as well: a gap among them is seen in the dump itself, also
//! where others write in such a rhythm that two dumps have the same one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::{io, mem};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

use super::Socket;
use super::error::ReadError;
use crate::attributes::Attributes;
use crate::batch::{SUBSYSTEM, flag, header, patch_length};
use crate::family::Family;
use crate::message::{Content, Messages};
use crate::writer::Writer;

/// The message type that asks for elements.
const GET_ELEMENTS: u16 = SUBSYSTEM << 8 | libc::NFT_MSG_GETSETELEM as u16;
/// The message type that asks for rules.
const GET_RULES: u16 = SUBSYSTEM << 8 | libc::NFT_MSG_GETRULE as u16;
/// An answer of up to so many bytes came in one piece, and there was nothing more to report: the kernel has at least a page of
/// 4 KiB, less 320 bytes, for a piece (`netlink_dump`), and rules of over 1.5 KiB are rare. The end is a piece of its own.
const ONE_PIECE: usize = 2048;
/// How often a dump is asked for anew because what it reports changed meanwhile.
const DUMPS: usize = 100;

/// A request: its message type, flags besides `NLM_F_REQUEST`, and whose tables.
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

/// What a question came to.
enum Outcome {
    /// Everything was reported; if it was anything, while the generation had this lower half.
    Whole(Option<u16>),
    /// A dump that is not of one moment.
    Interrupted,
    /// An error number.
    Refused(i32),
}

/// Which objects these are, whatever they counted meanwhile: the first three attributes of a table, a chain, a rule and a set
/// are names, handles and flags.
fn identity<'a>(objects: impl Iterator<Item = Attributes<'a>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let names = objects.flatten().filter(|attribute| attribute.kind <= 3);
    names.for_each(|attribute| attribute.value.hash(&mut hasher));
    hasher.finish()
}

/// Whether each rule stands behind the one that was reported before it in its chain: `nf_tables_dump_rules` reports which one
/// that is (`NFTA_RULE_POSITION`), counted from what is committed, not from what it reported. Old kernels do not say so of any.
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

impl Socket {
    /// Reads several things of one moment: `read` is called until the generation is the same before and after. Within it
    /// dumps are not checked one by one, which saves a question for each.
    ///
    /// # Errors
    /// Those of `read`, and where the tables do not hold still.
    pub fn snapshot<T>(&mut self, mut read: impl FnMut(&mut Socket) -> Result<T, ReadError>) -> Result<T, ReadError> {
        for _ in 0..DUMPS {
            let before = self.generation()?;
            self.snapshot = Some(before);
            let result = read(self);
            self.snapshot = None;
            if self.generation()? == before {
                return result;
            }
        }
        Err(ReadError { what: "a snapshot", source: io::ErrorKind::ResourceBusy.into() })
    }

    /// Reads something of the moment at which the tables had this generation: dumps in `read` are not checked one by one, which
    /// saves a question for each. The caller asks for the generation when it has read everything, or commits for it.
    ///
    /// # Errors
    /// Those of `read`, and [`io::ErrorKind::ResourceBusy`] where the tables have another generation.
    pub fn at_generation<T>(
        &mut self,
        generation: u32,
        read: impl FnOnce(&mut Socket) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let before = self.snapshot.replace(generation);
        let result = read(self);
        self.snapshot = before;
        result
    }

    /// What was answered last.
    pub(super) fn objects(&self) -> impl Iterator<Item = Attributes<'_>> + Clone {
        Messages(&self.answer).filter_map(|message| match message.content() {
            Content::Object { attributes, .. } => Some(attributes),
            Content::Answer { .. } | Content::Done { .. } => None,
        })
    }

    /// As [`Socket::ask`]; false, and no objects, where what is asked for is not there.
    pub(super) fn ask_for(&mut self, request: &Request, fill: impl Fn(&mut Writer)) -> Result<bool, ReadError> {
        match self.ask(request, fill) {
            Ok(()) => Ok(true),
            Err(error) if error.source.raw_os_error() == Some(libc::ENOENT) => {
                self.answer.clear();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks until the answer is of one moment, and keeps it.
    pub(super) fn ask(&mut self, request: &Request, fill: impl Fn(&mut Writer)) -> Result<(), ReadError> {
        let failed = |source| ReadError { what: request.what, source };
        let dump = request.flags & flag::DUMP == flag::DUMP;
        let mut before = None;
        for _ in 0..DUMPS {
            match self.ask_once(request, &fill).map_err(failed)? {
                Outcome::Whole(_) if request.kind == GET_RULES && !in_sequence(self.objects()) => {}
                Outcome::Refused(code) => return Err(failed(io::Error::from_raw_os_error(code))),
                Outcome::Whole(_) if !dump => return Ok(()),
                Outcome::Whole(generation) => {
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
                Outcome::Interrupted => {}
            }
        }
        Err(failed(io::ErrorKind::ResourceBusy.into()))
    }

    /// The generation, without a change to the answer that is kept.
    fn generation_now(&mut self) -> io::Result<u32> {
        mem::swap(&mut self.answer, &mut self.spare);
        let generation = self.generation();
        mem::swap(&mut self.answer, &mut self.spare);
        generation.map_err(|error| error.source)
    }

    fn ask_once(&mut self, request: &Request, fill: impl Fn(&mut Writer)) -> io::Result<Outcome> {
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
            for message in Messages(piece).filter(|message| message.sequence == sequence) {
                interrupted |= message.flags & flag::DUMP_INTERRUPTED != 0;
                match message.content() {
                    Content::Answer { code, .. } | Content::Done { code } => end = Some(code),
                    Content::Object { generation: of, .. } => {
                        interrupted |= *generation.get_or_insert(of) != of;
                        // Neither an acknowledgement nor the end of a dump is to come.
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
                    0 if interrupted => Outcome::Interrupted,
                    // The kernel's own name for a dump that it gave up because the tables changed.
                    libc::EINTR => Outcome::Interrupted,
                    0 => Outcome::Whole(generation),
                    code => Outcome::Refused(code),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chain, handle and position of each rule of a dump.
    fn rules(of: &[(&str, u64, Option<u64>)]) -> bool {
        let dumped = of.iter().map(|(chain, handle, behind)| {
            let mut writer = Writer::default();
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
        // The first piece ended behind 7, and 9 is gone.
        assert!(!rules(&[("a", 7, None), ("a", 8, Some(9))]));
        assert!(!rules(&[("a", 8, Some(9))]));
        assert!(!rules(&[("a", 7, None), ("a", 9, Some(7)), ("a", 9, Some(7)), ("a", 8, Some(9))]));
        assert!(!rules(&[("a", 7, None), ("a", 9, Some(7)), ("a", 7, None), ("a", 9, Some(7))]));
        assert!(!rules(&[("a", 7, None), ("b", 2, Some(1))]));
        // An old kernel says nothing of places.
        assert!(rules(&[("a", 7, None), ("a", 8, None)]));
    }
}
