//! Operations that the kernel applies together or not.

mod chains;
mod counters;
mod elements;
mod flowtables;
mod rules;
mod sets;

use nix::libc;

use crate::error::EncodeError;
use crate::family::Family;
use crate::netlink::{self, AttributeWriter, HEADER_LENGTH, patch_length};

pub use chains::{BaseChain, ChainPolicy, NfHook};
pub(crate) use counters::NFT_OBJECT_COUNTER;
pub(crate) use elements::NFT_SET_ELEM_INTERVAL_END;
pub use elements::{Element, ElementValue};
pub use rules::RulePosition;
pub use sets::{MapData, SetFlags, SetSpec};

/// `NFNL_SUBSYS_NFTABLES`, a message type's upper byte.
pub(crate) const SUBSYSTEM: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFNL_BATCH_GENID: u16 = 1;
/// `struct nfgenmsg`, after `struct nlmsghdr`.
pub(crate) const NFGENMSG: usize = 4;
const MESSAGE_HEADER: usize = HEADER_LENGTH + NFGENMSG;
/// The offset of the type's lower byte in `struct nlmsghdr`.
const KIND: usize = if cfg!(target_endian = "little") { 4 } else { 5 };
const FLAGS: usize = 6;
/// Types of additions, which the kernel echoes.
const ADDITIONS: [libc::c_int; 6] = [
    libc::NFT_MSG_NEWTABLE,
    libc::NFT_MSG_NEWCHAIN,
    libc::NFT_MSG_NEWRULE,
    libc::NFT_MSG_NEWSET,
    libc::NFT_MSG_NEWOBJ,
    flowtables::NFT_MSG_NEWFLOWTABLE,
];
/// The sequence number before those of operations.
pub(crate) const BEGIN_SEQUENCE: u32 = 1;
const FIRST_SEQUENCE: u32 = 2;

/// `include/uapi/linux/netlink.h`.
pub(crate) mod flag {
    use nix::libc;

    pub(crate) const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
    pub(crate) const ACK: u16 = libc::NLM_F_ACK as u16;
    pub(crate) const ECHO: u16 = libc::NLM_F_ECHO as u16;
    pub(crate) const CREATE: u16 = libc::NLM_F_CREATE as u16;
    pub(crate) const APPEND: u16 = libc::NLM_F_APPEND as u16;
    pub(crate) const REPLACE: u16 = libc::NLM_F_REPLACE as u16;
    pub(crate) const DUMP: u16 = libc::NLM_F_DUMP as u16;
    pub(crate) const DUMP_INTERRUPTED: u16 = libc::NLM_F_DUMP_INTR as u16;
}

/// Index in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(pub u32);

impl Operation {
    pub(crate) fn of_sequence(sequence: u32) -> Option<Operation> {
        sequence.checked_sub(FIRST_SEQUENCE).map(Operation)
    }

    fn sequence(self) -> u32 {
        self.0 + FIRST_SEQUENCE
    }
}

/// A position for [`Batch::rollback`].
#[derive(Debug, Clone, Copy)]
pub struct BatchCheckpoint {
    bytes: usize,
    last: usize,
    operations: u32,
    messages: usize,
}

impl BatchCheckpoint {
    /// The number of earlier operations.
    pub fn operations(&self) -> u32 {
        self.operations
    }
}

/// Operations, encoded in one buffer for [`NfSocket::commit`](crate::NfSocket::commit). A method that fails to encode an
/// operation leaves the batch unchanged.
///
/// ```
/// use nf_tables::{Batch, Family, NfVerdict, Rule, Table};
///
/// let table = Table::new(Family::Inet, "example");
/// let mut batch = Batch::new();
/// batch.add_table(table)?;
/// batch.add_chain(table, "web")?;
/// let mut rule = Rule::new();
/// let operation = batch.add_rule(table, "web", rule.counter().verdict(NfVerdict::Accept))?;
/// assert_eq!((operation.0, batch.operations()), (2, 3));
/// # Ok::<(), nf_tables::EncodeError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch {
    writer: AttributeWriter,
    last: usize,
    operations: u32,
    messages: usize,
    generation: Option<u32>,
    echo: bool,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Removes all operations; keeps the allocation.
    pub fn clear(&mut self) {
        self.writer.clear();
        (self.last, self.operations, self.messages) = (0, 0, 0);
        (self.generation, self.echo) = (None, false);
    }

    /// Makes the commit conditional on the generation of this network namespace
    /// ([`NfSocket::generation`](crate::NfSocket::generation)): after another change it fails with
    /// [`CommitError::Restart`](crate::CommitError::Restart).
    pub fn set_generation(&mut self, generation: Option<u32>) {
        self.generation = generation;
    }

    /// Requests handles of later additions ([`Committed::handles`](crate::Committed::handles)).
    pub fn set_echo(&mut self, echo: bool) {
        self.echo = echo;
    }

    /// Number of operations.
    pub fn operations(&self) -> u32 {
        self.operations
    }

    /// Number of netlink messages, several per large operation.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// In bytes; at most [`NfSocket::largest_batch`](crate::NfSocket::largest_batch).
    pub fn len(&self) -> usize {
        let generation = if self.generation.is_some() { 8 } else { 0 };
        self.writer.bytes.len() + 2 * MESSAGE_HEADER + generation
    }

    /// The size of the allocation, in bytes.
    pub fn capacity(&self) -> usize {
        self.writer.bytes.capacity()
    }

    /// Returns the current end, for [`Batch::rollback`].
    pub fn checkpoint(&self) -> BatchCheckpoint {
        let Batch { last, operations, messages, .. } = *self;
        BatchCheckpoint { bytes: self.writer.bytes.len(), last, operations, messages }
    }

    /// Removes the operations after the checkpoint.
    pub fn rollback(&mut self, to: BatchCheckpoint) {
        self.writer.bytes.truncate(to.bytes);
        (self.last, self.operations, self.messages) = (to.last, to.operations, to.messages);
    }

    fn operation(
        &mut self,
        kind: libc::c_int,
        flags: u16,
        family: Family,
        fill: impl FnOnce(&mut AttributeWriter),
    ) -> Result<Operation, EncodeError> {
        self.operation_of(|batch| {
            batch.message(kind, flags, family, fill);
        })
    }

    fn operation_of(&mut self, messages: impl FnOnce(&mut Batch)) -> Result<Operation, EncodeError> {
        if self.operations >= u32::MAX - FIRST_SEQUENCE {
            return Err(EncodeError::TooManyOperations);
        }
        let before = self.checkpoint();
        messages(self);
        match self.writer.take_error() {
            None => {
                let operation = Operation(self.operations);
                self.operations += 1;
                Ok(operation)
            }
            Some(error) => {
                self.rollback(before);
                Err(error)
            }
        }
    }

    fn message(&mut self, kind: libc::c_int, flags: u16, family: Family, fill: impl FnOnce(&mut AttributeWriter)) {
        self.last = self.writer.bytes.len();
        self.messages += 1;
        let echo = if self.echo { flag::ECHO } else { 0 };
        // nf_tables' types are below 256.
        let kind = SUBSYSTEM << 8 | u16::try_from(kind).unwrap_or_default();
        let sequence = Operation(self.operations).sequence();
        let bytes = &mut self.writer.bytes;
        bytes.extend_from_slice(&header(kind, flag::REQUEST | flags | echo, sequence, family.code(), 0));
        fill(&mut self.writer);
        patch_length(&mut self.writer.bytes, self.last);
    }

    /// Requests an acknowledgement of the last operation, since kernels before 6.10 do not acknowledge a batch's end,
    /// and of the first, to distinguish its error from the batch's. The kernel echoes a first addition with the new
    /// generation.
    pub(crate) fn parts(&self) -> BatchParts<'_> {
        let body = &self.writer.bytes[..];
        let mut begin = header(NFNL_MSG_BATCH_BEGIN, flag::REQUEST, BEGIN_SEQUENCE, 0, SUBSYSTEM).to_vec();
        if let Some(generation) = self.generation {
            let mut attributes = AttributeWriter::default();
            attributes.be32(NFNL_BATCH_GENID, generation);
            begin.extend_from_slice(&attributes.bytes);
            patch_length(&mut begin, 0);
        }
        let end = header(NFNL_MSG_BATCH_END, flag::REQUEST, Operation(self.operations).sequence(), 0, SUBSYSTEM);
        let (first, rest) = body.split_first_chunk().map_or(([0; HEADER_LENGTH], body), |(first, rest)| (*first, rest));
        let adds = ADDITIONS.iter().any(|kind| *kind == libc::c_int::from(first[KIND]));
        let first = with_flags(first, if adds { flag::ACK | flag::ECHO } else { flag::ACK });
        let middle = self.last.saturating_sub(HEADER_LENGTH);
        match rest.split_at_checked(middle).and_then(|(middle, rest)| Some((middle, rest.split_first_chunk()?))) {
            Some((middle, (last, rest))) if self.last > 0 => {
                BatchParts { begin, first, middle, last: Some(with_flags(*last, flag::ACK)), rest, end }
            }
            _ => BatchParts { begin, first, middle: rest, last: None, rest: &[], end },
        }
    }

    pub(crate) fn last_sequence(&self) -> u32 {
        Operation(self.operations.saturating_sub(1)).sequence()
    }
}

pub(crate) struct BatchParts<'a> {
    pub(crate) begin: Vec<u8>,
    pub(crate) first: [u8; HEADER_LENGTH],
    pub(crate) middle: &'a [u8],
    pub(crate) last: Option<[u8; HEADER_LENGTH]>,
    pub(crate) rest: &'a [u8],
    pub(crate) end: [u8; MESSAGE_HEADER],
}

pub(crate) fn header(kind: u16, flags: u16, sequence: u32, family: u8, resource: u16) -> [u8; MESSAGE_HEADER] {
    let mut header = [0; MESSAGE_HEADER];
    header[..HEADER_LENGTH].copy_from_slice(&netlink::header(kind, flags, sequence));
    header[HEADER_LENGTH] = family;
    header[HEADER_LENGTH + 2..].copy_from_slice(&resource.to_be_bytes());
    patch_length(&mut header, 0);
    header
}

fn with_flags(mut header: [u8; HEADER_LENGTH], flags: u16) -> [u8; HEADER_LENGTH] {
    let flags = u16::from_ne_bytes([header[FLAGS], header[FLAGS + 1]]) | flags;
    header[FLAGS..FLAGS + 2].copy_from_slice(&flags.to_ne_bytes());
    header
}
