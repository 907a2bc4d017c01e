//! `struct nlmsghdr`.

use nix::libc;

use super::attributes::Attributes;

/// `include/uapi/linux/netlink.h`.
const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
const NLM_F_ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`.
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Length of `struct nlmsghdr`.
pub const HEADER_LENGTH: usize = 16;

/// Returns a header without a payload.
pub fn header(kind: u16, flags: u16, sequence: u32) -> [u8; HEADER_LENGTH] {
    let mut header = [0; HEADER_LENGTH];
    header[..4].copy_from_slice(&(HEADER_LENGTH as u32).to_ne_bytes());
    header[4..6].copy_from_slice(&kind.to_ne_bytes());
    header[6..8].copy_from_slice(&flags.to_ne_bytes());
    header[8..12].copy_from_slice(&sequence.to_ne_bytes());
    header
}

/// Sets the length of the message from `at` to the buffer's end.
pub fn patch_length(bytes: &mut [u8], at: usize) {
    let length = u32::try_from(bytes.len() - at).unwrap_or(u32::MAX);
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
}

/// One received message.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`.
    pub sequence: u32,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

/// A message's content, by type.
#[derive(Debug, Clone, Copy)]
pub enum MessageContent<'a> {
    /// `NLMSG_ERROR`; code 0 acknowledges.
    Answer {
        /// A positive error number, or 0.
        code: i32,
        /// Explanation (`NETLINK_EXT_ACK`).
        text: Option<&'a str>,
    },
    /// `NLMSG_DONE`: the end of a dump.
    Done {
        /// A positive error number, or 0.
        code: i32,
    },
    /// Protocol header and attributes.
    Payload(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Returns the content, by type.
    pub fn content(&self) -> MessageContent<'a> {
        let code = || self.payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code).wrapping_neg());
        match self.kind {
            NLMSG_ERROR => {
                let quoted = size_of::<i32>() + HEADER_LENGTH;
                let length = if self.flags & NLM_F_ACK_TLVS == 0 { usize::MAX } else { quoted };
                let text = Attributes::after_header(self.payload, length).text(NLMSGERR_ATTR_MSG);
                MessageContent::Answer { code: code(), text }
            }
            NLMSG_DONE => MessageContent::Done { code: code() },
            _ => MessageContent::Payload(self.payload),
        }
    }
}

/// Messages, of which the last may be truncated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Returns the messages in these bytes.
    pub fn new(bytes: &'a [u8]) -> Messages<'a> {
        Messages(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.first_chunk::<HEADER_LENGTH>()?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = usize::try_from(word(0)).ok()?;
        let payload = self.0.get(HEADER_LENGTH..length.min(self.0.len()));
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
    fn an_error_has_a_code_and_a_text() {
        let mut bytes = header(NLMSG_ERROR, NLM_F_ACK_TLVS, 9).to_vec();
        bytes.extend((-libc::ENOENT).to_ne_bytes());
        bytes.extend([0; HEADER_LENGTH]);
        bytes.extend([8, 0, 1, 0, b'w', b'h', b'y', 0]);
        patch_length(&mut bytes, 0);
        let message = Messages(&bytes).next().unwrap();
        assert_eq!(message.sequence, 9);
        assert!(matches!(message.content(), MessageContent::Answer { code: libc::ENOENT, text: Some("why") }));
    }

    #[test]
    fn a_datagram_is_split_into_messages_and_the_last_may_be_truncated() {
        let message = |length: u32| [&length.to_ne_bytes()[..], &[7; 12], &[1; 4]].concat();
        let datagram = [&message(18)[..18], &[0, 0], &message(20)[..], &message(400)[..]].concat();
        assert_eq!(Messages(&datagram).map(|message| message.payload.len()).collect::<Vec<_>>(), [2, 4, 4]);
        assert_eq!(Messages(&[3, 0, 0, 0, 9]).count(), 0);
        assert_eq!(Messages(&message(15)).count(), 0, "shorter than a header");
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(length in 0u32..60, rest in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&length.to_ne_bytes()[..], &rest].concat();
            for message in Messages(&bytes) {
                let _ = message.content();
            }
        }
    }
}
