//! Sends a batch and interprets the answers.
//!
//! Their order (`nfnetlink_rcv_batch` in `net/netfilter/nfnetlink.c`): echoes; an error of the whole batch, with the
//! first operation's sequence number; errors and acknowledgements by operation. Only the absence of errors proves
//! success.

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

use super::NfSocket;
use super::error::{CommitError, OperationRefusal};
use crate::batch::{BEGIN_SEQUENCE, Batch, NFGENMSG, Operation, SUBSYSTEM};
use crate::netlink::{Attributes, Message, MessageContent, Messages};

/// Kernel-internal (`include/linux/errno.h`: 85 in `asm-generic`).
const RESTART: i32 = libc::ERESTART;

/// The result of an applied batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// `None`: nothing changed, or the first operation adds no table, chain, rule or set.
    pub generation: Option<u32>,
    /// Handles of the first addition, and of those with [`Batch::set_echo`].
    pub handles: Vec<(Operation, u64)>,
}

#[derive(Default)]
struct CommitAnswers {
    committed: Committed,
    errors: Vec<(u32, i32, Option<String>)>,
    error_first: bool,
    acknowledged: usize,
    ended: bool,
}

impl NfSocket {
    /// Sends the batch in one system call.
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
        match self.send([&parts.begin, &parts.first, parts.middle, last, parts.rest, &parts.end]) {
            Ok(()) => {}
            Err(Errno::EMSGSIZE) => return Err(too_large),
            Err(Errno::EPERM) => return Err(CommitError::NotPermitted),
            Err(error) => return Err(CommitError::Send(error.into())),
        }
        let answers = self.answers(batch.last_sequence())?;
        self.stale = false;
        answers.judge(batch)
    }

    fn answers(&mut self, last: u32) -> Result<CommitAnswers, CommitError> {
        let mut answers = CommitAnswers::default();
        loop {
            let flags = if answers.ended { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
            match self.receive(flags) {
                Ok(piece) => Messages::new(piece).for_each(|message| answers.read(&message, last)),
                Err(Errno::EAGAIN) if answers.ended => return Ok(answers),
                Err(Errno::EAGAIN) => return Err(CommitError::Unknown(io::ErrorKind::TimedOut.into())),
                // Answers were dropped; a received error still proves that nothing was applied.
                Err(Errno::ENOBUFS) => answers.ended = true,
                Err(error) => return Err(CommitError::Unknown(error.into())),
            }
        }
    }
}

impl CommitAnswers {
    fn read(&mut self, message: &Message<'_>, last: u32) {
        match message.content() {
            MessageContent::Answer { code, text } => {
                if code == 0 {
                    self.acknowledged += 1;
                } else {
                    self.error_first |= self.acknowledged == 0 && self.errors.is_empty();
                    self.errors.push((message.sequence, code, text.map(str::to_owned)));
                }
                self.ended |= message.sequence == last || message.sequence == BEGIN_SEQUENCE;
            }
            MessageContent::Payload(payload) if message.kind >> 8 == SUBSYSTEM => {
                let attributes = Attributes::after_header(payload, NFGENMSG);
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
            MessageContent::Payload(_) | MessageContent::Done { .. } => {}
        }
    }

    fn judge(self, batch: &Batch) -> Result<Committed, CommitError> {
        let CommitAnswers { committed, errors, error_first, acknowledged, .. } = self;
        let Some((sequence, code, _)) = errors.first() else {
            let lost = CommitError::Unknown(Errno::ENOBUFS.into());
            return if acknowledged > 0 { Ok(committed) } else { Err(lost) };
        };
        // The kernel acknowledges both operations even after an error.
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
            Some(OperationRefusal { operation, error: io::Error::from_raw_os_error(code), text })
        };
        Err(CommitError::Refused(errors.into_iter().filter_map(refusal).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{flag, header};
    use crate::family::{Family, Table};

    const FIRST: u32 = BEGIN_SEQUENCE + 1;

    /// `NLMSG_ERROR`: a code, and the quoted header.
    fn answer(sequence: u32, code: i32) -> Vec<u8> {
        let mut bytes = header(2, 0, sequence, 0, 0)[..16].to_vec();
        bytes.extend((-code).to_ne_bytes());
        bytes.extend([0; 16]);
        bytes[0] = 36;
        bytes
    }

    fn judged(operations: u32, answers: &[(u32, i32)]) -> Result<Committed, CommitError> {
        let mut batch = Batch::new();
        for _ in 0..operations {
            batch.add_table(Table::new(Family::Ipv4, "t")).unwrap();
        }
        let bytes: Vec<u8> = answers.iter().flat_map(|(sequence, code)| answer(*sequence, *code)).collect();
        let mut read = CommitAnswers::default();
        Messages::new(&bytes).for_each(|message| read.read(&message, batch.last_sequence()));
        read.judge(&batch)
    }

    #[test]
    fn only_the_absence_of_errors_says_that_a_batch_was_applied() {
        let last = FIRST + 2;
        assert_eq!(judged(3, &[(FIRST, 0), (last, 0)]).unwrap(), Committed::default());
        let error = judged(3, &[(FIRST, 0), (FIRST + 1, libc::ENOENT), (last, 0)]).unwrap_err();
        assert!(matches!(&error, CommitError::Refused(all) if all[0].operation == Operation(1)), "{error:?}");
        let error = judged(3, &[(FIRST, libc::ENOENT), (last, 0)]).unwrap_err();
        assert!(matches!(&error, CommitError::Refused(all) if all[0].operation == Operation(0)), "{error:?}");
        let error = judged(1, &[(FIRST, libc::ENOENT)]).unwrap_err();
        assert!(matches!(&error, CommitError::Refused(all) if all[0].operation == Operation(0)), "{error:?}");
        assert!(matches!(judged(3, &[]).unwrap_err(), CommitError::Unknown(_)));
    }

    #[test]
    fn an_error_of_the_whole_batch_comes_before_the_acknowledgement_of_its_first_operation() {
        for (operations, answers) in [
            (3, &[(FIRST, libc::ENOMEM), (FIRST, 0), (FIRST + 2, 0)][..]),
            (1, &[(FIRST, libc::ENOMEM), (FIRST, 0)]),
            (3, &[(BEGIN_SEQUENCE, libc::ENOMEM), (FIRST, 0), (FIRST + 2, 0)]),
        ] {
            let error = judged(operations, answers).unwrap_err();
            assert!(matches!(error, CommitError::Whole(_)), "{error:?}");
        }
        assert!(matches!(judged(3, &[(BEGIN_SEQUENCE, RESTART)]).unwrap_err(), CommitError::Restart));
        assert!(matches!(judged(3, &[(BEGIN_SEQUENCE, libc::EPERM)]).unwrap_err(), CommitError::NotPermitted));
    }

    #[test]
    fn first_and_last_operation_are_acknowledged() {
        let flags = |header: &[u8; 16]| u16::from_ne_bytes([header[6], header[7]]) & (flag::ACK | flag::ECHO);
        let mut batch = Batch::new();
        let table = Table::new(Family::Ipv4, "t");
        batch.add_table(table).unwrap();
        assert_eq!(flags(&batch.parts().first), flag::ACK | flag::ECHO);
        assert!(batch.parts().last.is_none());
        batch.delete_table(table).unwrap();
        batch.delete_table(table).unwrap();
        let parts = batch.parts();
        assert_eq!(parts.last.as_ref().map(flags), Some(flag::ACK));
        let sent = [&parts.begin, &parts.first[..], parts.middle, &parts.last.unwrap(), parts.rest, &parts.end];
        assert_eq!(sent.concat().len(), batch.len());
        let kinds: Vec<u16> = Messages::new(&sent.concat()).map(|message| message.kind).collect();
        assert_eq!(kinds, [16, 0xa00, 0xa02, 0xa02, 17]);
        batch.clear();
        batch.delete_table(table).unwrap();
        assert_eq!(flags(&batch.parts().first), flag::ACK, "each object of a deleted table would be echoed");
        batch.set_generation(Some(7));
        assert_eq!(batch.parts().begin[20..], [8, 0, 1, 0, 0, 0, 0, 7]);
        assert_eq!(batch.len(), 20 + 8 + 28 + 20);
    }
}
