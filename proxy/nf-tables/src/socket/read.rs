//! What is there: tables, chains, rules, sets and elements.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::{io, mem};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

use super::Socket;
use super::error::ReadError;
use crate::attributes::Attributes;
use crate::batch::{SUBSYSTEM, flag, header, patch_length};
use crate::family::{Family, Table};
use crate::message::{Content, Messages};
use crate::objects::{ChainInfo, ElementInfo, RuleInfo, SetInfo, TableInfo};
use crate::writer::Writer;

/// The message type that asks for elements.
const GET_ELEMENTS: u16 = SUBSYSTEM << 8 | libc::NFT_MSG_GETSETELEM as u16;
/// How often a dump is asked for anew because what it tells of changed meanwhile.
const DUMPS: usize = 100;
/// `NFNL_SUBSYS_IPSET`, `IPSET_CMD_GET_BYNAME`, `IPSET_PROTOCOL` (`include/uapi/linux/netfilter/ipset/ip_set.h`).
const IP_SET_BY_NAME: u16 = 6 << 8 | 14;
const IP_SET_PROTOCOL: u8 = 7;
/// `IPSET_ATTR_PROTOCOL`, `IPSET_ATTR_SETNAME`, `IPSET_ATTR_INDEX`.
const IP_SET_ATTR_PROTOCOL: u16 = 1;
const IP_SET_ATTR_NAME: u16 = 2;
const IP_SET_ATTR_INDEX: u16 = 11;

/// A request: its message type, flags besides `NLM_F_REQUEST`, and whose tables.
struct Request {
    what: &'static str,
    kind: u16,
    flags: u16,
    family: Family,
}

impl Request {
    fn new(what: &'static str, kind: libc::c_int, flags: u16, family: Family) -> Request {
        Request { what, kind: SUBSYSTEM << 8 | u16::try_from(kind).unwrap_or_default(), flags, family }
    }
}

/// What a question came to.
enum Outcome {
    /// Everything was told, in so many pieces; if it was anything, while the generation had this lower half.
    Whole { generation: Option<u16>, pieces: usize },
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

/// Dumps are of one moment: where the tables change meanwhile they are asked for anew. The kernel does not notice all of it
/// itself (`NLM_F_DUMP_INTR`): not a change during the last piece of a dump; and between two pieces it remembers a number, and
/// counts what others have inserted and not committed, or deleted and not yet unlinked. So the generation is asked for behind
/// each dump, and one that came in several pieces is believed when the next one tells of the same objects.
///
/// What is returned reads the answer where it stands.
impl Socket {
    /// The generation of the tables in this network namespace: every commit of anyone's that changes something makes a new
    /// one.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn generation(&mut self) -> Result<u32, ReadError> {
        // `NFTA_GEN_ID`.
        let request = Request::new("the generation", libc::NFT_MSG_GETGEN, 0, Family::Inet);
        self.ask(&request, |_| {})?;
        let generation = self.objects().find_map(|attributes| attributes.be32(1));
        generation.ok_or(ReadError { what: "the generation", source: io::ErrorKind::InvalidData.into() })
    }

    /// Reads several things of one moment: `read` is called until the generation is the same before and after. Within it
    /// dumps are not checked one by one, which makes small ones a third cheaper.
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

    /// The generation that the last dump was of. Several dumps are of one moment if they are of the same generation.
    pub fn read_at(&self) -> Option<u32> {
        self.read_at
    }

    /// The tables of a family.
    ///
    /// # Errors
    /// When the kernel refuses, or the tables do not hold still.
    pub fn tables(&mut self, family: Family) -> Result<impl Iterator<Item = TableInfo<'_>>, ReadError> {
        let request = Request::new("tables", libc::NFT_MSG_GETTABLE, flag::DUMP, family);
        self.ask(&request, |_| {})?;
        Ok(self.objects().filter_map(TableInfo::read))
    }

    /// The chains of all tables of a family.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn chains(&mut self, family: Family) -> Result<impl Iterator<Item = ChainInfo<'_>>, ReadError> {
        let request = Request::new("chains", libc::NFT_MSG_GETCHAIN, flag::DUMP, family);
        self.ask(&request, |_| {})?;
        Ok(self.objects().filter_map(ChainInfo::read))
    }

    /// One chain; `None` where there is no such chain, or no such table.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn chain(&mut self, table: Table<'_>, chain: &str) -> Result<Option<ChainInfo<'_>>, ReadError> {
        // `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`.
        let request = Request::new("a chain", libc::NFT_MSG_GETCHAIN, flag::ACK, table.family);
        let there = self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(3, "chain", chain);
        })?;
        Ok(if there { self.objects().find_map(ChainInfo::read) } else { None })
    }

    /// The rules of one chain in their order; none where there is no such chain. This costs the kernel the chain's rules; a
    /// dump of a whole table would cost it the square.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn rules(&mut self, table: Table<'_>, chain: &str) -> Result<impl Iterator<Item = RuleInfo<'_>>, ReadError> {
        // `NFTA_RULE_TABLE`, `NFTA_RULE_CHAIN`.
        let request = Request::new("the rules of a chain", libc::NFT_MSG_GETRULE, flag::DUMP, table.family);
        self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(2, "chain", chain);
        })?;
        Ok(self.objects().filter_map(RuleInfo::read))
    }

    /// The sets and maps of a table; none where there is no such table.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn sets(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = SetInfo<'_>>, ReadError> {
        // `NFTA_SET_TABLE`.
        let request = Request::new("sets", libc::NFT_MSG_GETSET, flag::DUMP, table.family);
        self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(self.objects().filter_map(SetInfo::read))
    }

    /// The elements of a set or map; none where there is no such set. Packets and time change sets without a new generation,
    /// so a large set is not asked for twice: while another's batch for it is being applied, elements can be missing.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn elements(
        &mut self,
        table: Table<'_>,
        set: &str,
    ) -> Result<impl Iterator<Item = ElementInfo<'_>>, ReadError> {
        // `NFTA_SET_ELEM_LIST_TABLE`, `NFTA_SET_ELEM_LIST_SET`, `NFTA_SET_ELEM_LIST_ELEMENTS`.
        let request = Request::new("the elements of a set", libc::NFT_MSG_GETSETELEM, flag::DUMP, table.family);
        self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(2, "set", set);
        })?;
        let lists = self.objects().map(|attributes| attributes.nested(3));
        Ok(lists.flatten().filter_map(|element| ElementInfo::read(Attributes::new(element.value))))
    }

    /// The number by which the kernel knows an IP set (ipset), as [`xt::set`](crate::xt::set) needs it; `None` where there
    /// is no such set. It changes when sets are swapped or made anew.
    ///
    /// # Errors
    /// When the kernel refuses, or has no ipset.
    pub fn ip_set(&mut self, name: &str) -> Result<Option<u16>, ReadError> {
        let request = Request { what: "an IP set", kind: IP_SET_BY_NAME, flags: flag::ACK, family: Family::Ipv4 };
        let there = self.ask_for(&request, |writer| {
            writer.put(IP_SET_ATTR_PROTOCOL, &[IP_SET_PROTOCOL]);
            writer.name(IP_SET_ATTR_NAME, "IP set", name);
        })?;
        let index =
            |attributes: Attributes<'_>| Some(u16::from_be_bytes(attributes.get(IP_SET_ATTR_INDEX)?.try_into().ok()?));
        Ok(if there { self.objects().find_map(index) } else { None })
    }

    /// What was answered last.
    fn objects(&self) -> impl Iterator<Item = Attributes<'_>> {
        Messages(&self.answer).filter_map(|message| match message.content() {
            Content::Object { attributes, .. } => Some(attributes),
            Content::Answer { .. } | Content::Done { .. } => None,
        })
    }

    /// As [`Socket::ask`]; false, and no objects, where what is asked for is not there.
    fn ask_for(&mut self, request: &Request, fill: impl Fn(&mut Writer)) -> Result<bool, ReadError> {
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
    fn ask(&mut self, request: &Request, fill: impl Fn(&mut Writer)) -> Result<(), ReadError> {
        let failed = |source| ReadError { what: request.what, source };
        let dump = request.flags & flag::DUMP == flag::DUMP;
        let mut before = None;
        for _ in 0..DUMPS {
            match self.ask_once(request, &fill).map_err(failed)? {
                Outcome::Refused(code) => return Err(failed(io::Error::from_raw_os_error(code))),
                Outcome::Whole { .. } if !dump => return Ok(()),
                Outcome::Whole { generation, pieces } => {
                    let now = match self.snapshot {
                        Some(generation) => generation,
                        None => self.generation_now().map_err(failed)?,
                    };
                    match generation {
                        Some(then) if then != now as u16 && self.snapshot.is_some() => break,
                        Some(then) if then != now as u16 => continue,
                        _ => {}
                    }
                    let told = (pieces > 1 && request.kind != GET_ELEMENTS).then(|| (now, identity(self.objects())));
                    if told == before || told.is_none() {
                        self.read_at = Some(now);
                        return Ok(());
                    }
                    before = told;
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
        let (mut interrupted, mut generation, mut pieces) = (false, None, 0);
        loop {
            let piece = match self.receive(MsgFlags::empty()) {
                Ok(piece) => piece,
                Err(Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error.into()),
            };
            let mut end = None;
            pieces += 1;
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
                    0 => Outcome::Whole { generation, pieces },
                    code => Outcome::Refused(code),
                });
            }
        }
    }
}
