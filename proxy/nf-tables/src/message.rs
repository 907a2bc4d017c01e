//! Netlink messages in what the kernel answered. Nothing here panics, whatever the bytes.

use nix::libc;

use crate::attributes::Attributes;
use crate::batch::NLMSG_HEADER;

/// `NLMSG_ERROR`, `NLMSG_DONE` (`include/uapi/linux/netlink.h`).
const ERROR: u16 = libc::NLMSG_ERROR as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;
/// `NLM_F_ACK_TLVS`: attributes follow what an error quotes. `NETLINK_CAP_ACK` makes that the header alone.
const ACK_ATTRIBUTES: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`.
const ERROR_TEXT: u16 = 1;
/// Length of `struct nfgenmsg`, before the attributes.
const NFGENMSG: usize = 4;

/// One message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    payload: &'a [u8],
}

/// What a message is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    /// An error, with the kernel's explanation where it has one; or with code 0 an acknowledgement.
    Answer { code: i32, text: Option<&'a str> },
    /// The end of a dump, with code 0 or an error.
    Done { code: i32 },
    /// Something of a subsystem: the lower half of the generation when it was reported (`res_id` of `struct nfgenmsg`, in
    /// nf_tables), and attributes.
    Object { generation: u16, attributes: Attributes<'a> },
}

impl<'a> Message<'a> {
    pub(crate) fn content(&self) -> Content<'a> {
        let code = || self.payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code).wrapping_neg());
        match self.kind {
            ERROR => {
                let quoted = size_of::<i32>() + NLMSG_HEADER;
                let attributes = (self.flags & ACK_ATTRIBUTES != 0).then(|| self.payload.get(quoted..)).flatten();
                Answer { code: code(), text: Attributes::new(attributes.unwrap_or_default()).text(ERROR_TEXT) }
            }
            DONE => Done { code: code() },
            _ => Object {
                generation: self.payload.get(2..NFGENMSG).map_or(0, |id| u16::from_be_bytes([id[0], id[1]])),
                attributes: Attributes::new(self.payload.get(NFGENMSG..).unwrap_or_default()),
            },
        }
    }
}

use Content::{Answer, Done, Object};

/// Messages one behind the other. What is cut off ends them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.first_chunk::<NLMSG_HEADER>()?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = usize::try_from(word(0)).ok()?;
        let payload = self.0.get(NLMSG_HEADER..length);
        self.0 = payload.and_then(|_| self.0.get(length.next_multiple_of(4)..)).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: word(8),
            payload: payload?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_has_a_code_and_a_text() {
        let mut bytes = vec![0; 16];
        bytes.extend((-libc::ENOENT).to_ne_bytes());
        bytes.extend([0; 16]);
        bytes.extend([8, 0, 1, 0, b'w', b'h', b'y', 0]);
        bytes[0] = u8::try_from(bytes.len()).unwrap();
        bytes[4] = 2;
        bytes[7] = 2;
        bytes[8] = 9;
        let message = Messages(&bytes).next().unwrap();
        assert_eq!(message.sequence, 9);
        assert!(matches!(message.content(), Answer { code: libc::ENOENT, text: Some("why") }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(length in 0u32..60, rest in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&length.to_ne_bytes()[..], &rest].concat();
            for message in Messages(&bytes) {
                let _ = message.content();
            }
        }
    }
}
