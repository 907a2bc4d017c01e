//! A batch on its way, and what its answers mean.
//!
//! Answers come in this order (`nfnetlink_rcv_batch` in `net/netfilter/nfnetlink.c`): echoes; an error of the whole batch,
//! which has the sequence number of its first operation; then errors and acknowledgements in the order of the operations.
//! A batch with an error has acknowledgements all the same: only the absence of errors says that it was applied.

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

use super::Socket;
use super::error::{CommitError, Refusal};
use crate::batch::{BEGIN_SEQUENCE, Batch, Operation, SUBSYSTEM};
use crate::message::{Content, Message, Messages};

/// `ERESTART`, which user space otherwise never sees (`include/linux/errno.h`: 85 in `asm-generic`).
const RESTART: i32 = libc::ERESTART;

/// A batch that was applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// The generation that it made. `None` where it did not begin with adding a table, a chain, a rule or a set; and where
    /// it changed nothing, as a table that is there already. (A chain that is there already makes a new generation.)
    pub generation: Option<u32>,
    /// Handles of what was added while [`Batch::set_echo`] was on, and of the first operation.
    pub handles: Vec<(Operation, u64)>,
}

/// What was read of a batch's answers.
#[derive(Default)]
struct Answers {
    committed: Committed,
    errors: Vec<(u32, i32, Option<String>)>,
    /// The first answer was an error.
    error_first: bool,
    acknowledged: usize,
    ended: bool,
}

impl Socket {
    /// Sends a batch, in one system call, and reads every answer. An empty batch is not sent.
    ///
    /// # Errors
    /// When it was not applied; the error says why, and which operations were refused.
    pub fn commit(&mut self, batch: &Batch) -> Result<Committed, CommitError> {
        if batch.is_empty() {
            return Ok(Committed::default());
        }
        let too_large = CommitError::TooLarge { bytes: batch.len(), limit: self.largest_batch };
        if batch.len() > self.largest_batch {
            return Err(too_large);
        }
        let parts = batch.parts();
        let last: &[u8] = parts.last.as_ref().map_or(&[], |last| last);
        match self.send(&[&parts.begin, &parts.first, parts.middle, last, parts.rest, &parts.end]) {
            Ok(()) => {}
            Err(Errno::EMSGSIZE) => return Err(too_large),
            Err(Errno::EPERM) => return Err(CommitError::NotPermitted),
            Err(error) => return Err(CommitError::Send(error.into())),
        }
        let answers = self.answers(batch.last_sequence())?;
        self.stale = false;
        answers.judge(batch)
    }

    /// Reads on after the last answer, without waiting, as there can be several under its number.
    fn answers(&mut self, last: u32) -> Result<Answers, CommitError> {
        let mut answers = Answers::default();
        loop {
            let flags = if answers.ended { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
            match self.receive(flags) {
                Ok(piece) => Messages(piece).for_each(|message| answers.read(&message, last)),
                Err(Errno::EAGAIN) if answers.ended => return Ok(answers),
                Err(Errno::EAGAIN) => return Err(CommitError::Unknown(io::ErrorKind::TimedOut.into())),
                // Some were lost. Errors that were not are enough to know that nothing was applied.
                Err(Errno::ENOBUFS) => answers.ended = true,
                Err(error) => return Err(CommitError::Unknown(error.into())),
            }
        }
    }
}

impl Answers {
    fn read(&mut self, message: &Message<'_>, last: u32) {
        match message.content() {
            Content::Answer { code, text } => {
                if code == 0 {
                    self.acknowledged += 1;
                } else {
                    self.error_first |= self.acknowledged == 0 && self.errors.is_empty();
                    self.errors.push((message.sequence, code, text.map(str::to_owned)));
                }
                self.ended |= message.sequence == last || message.sequence == BEGIN_SEQUENCE;
            }
            Content::Object { attributes, .. } if message.kind >> 8 == SUBSYSTEM => {
                let kind = libc::c_int::from(message.kind & 0xff);
                // `NFTA_GEN_ID`; `NFTA_TABLE_HANDLE`, `NFTA_CHAIN_HANDLE`, `NFTA_RULE_HANDLE`, `NFTA_SET_HANDLE`.
                let handle = match kind {
                    libc::NFT_MSG_NEWGEN => {
                        self.committed.generation = attributes.be32(1);
                        return;
                    }
                    libc::NFT_MSG_NEWTABLE => 4,
                    libc::NFT_MSG_NEWCHAIN => 2,
                    libc::NFT_MSG_NEWRULE => 3,
                    libc::NFT_MSG_NEWSET => 16,
                    _ => return,
                };
                let made = Operation::of_sequence(message.sequence).zip(attributes.be64(handle));
                self.committed.handles.extend(made);
            }
            Content::Object { .. } | Content::Done { .. } => {}
        }
    }

    fn judge(self, batch: &Batch) -> Result<Committed, CommitError> {
        let Answers { committed, errors, error_first, acknowledged, .. } = self;
        let Some((sequence, code, _)) = errors.first() else {
            // The last operation was acknowledged, or answers were lost.
            let lost = CommitError::Unknown(Errno::ENOBUFS.into());
            return if acknowledged > 0 { Ok(committed) } else { Err(lost) };
        };
        // Everything was acknowledged that was to be, first and last operation, and there is an error in front.
        let asked_for = batch.messages().min(2);
        let whole = error_first && errors.len() == 1 && acknowledged == asked_for;
        match (*sequence, *code) {
            (BEGIN_SEQUENCE, RESTART) => return Err(CommitError::Restart),
            (BEGIN_SEQUENCE, libc::EPERM) => return Err(CommitError::NotPermitted),
            (BEGIN_SEQUENCE, code) => return Err(CommitError::Whole(io::Error::from_raw_os_error(code))),
            (_, code) if whole => return Err(CommitError::Whole(io::Error::from_raw_os_error(code))),
            _ => {}
        }
        let refusal = |(sequence, code, text)| {
            let operation = Operation::of_sequence(sequence)?;
            Some(Refusal { operation, error: io::Error::from_raw_os_error(code), text })
        };
        Err(CommitError::Refused(errors.into_iter().filter_map(refusal).collect()))
    }
}
