//! Splits the body of a watch into events.

use bytes::{Bytes, BytesMut};

use crate::encoding::Encoding;

#[derive(Debug)]
pub(super) struct EventSplitter {
    pub(super) encoding: Encoding,
    rest: BytesMut,
}

impl EventSplitter {
    pub(super) fn of(media: &str) -> Self {
        let encoding = if media.contains("protobuf") { Encoding::Protobuf } else { Encoding::Json };
        EventSplitter { encoding, rest: BytesMut::new() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The event includes its delimiter.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let length = match self.encoding {
            // One line per event.
            Encoding::Json => self.rest.iter().position(|byte| *byte == b'\n')? + 1,
            // Each event follows its length, four bytes in big-endian order.
            Encoding::Protobuf => {
                let length: [u8; 4] = self.rest.get(..4)?.try_into().ok()?;
                usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(4)?
            }
        };
        (self.rest.len() >= length).then(|| self.rest.split_to(length).freeze())
    }

    pub(super) fn take_rest(&mut self) -> Option<Bytes> {
        (!self.rest.is_empty()).then(|| self.rest.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete_for_every_chunk_size() {
        for (media, stream, events) in [
            ("application/json", &b"{}\n{\"a\":1}\n{"[..], vec![&b"{}\n"[..], b"{\"a\":1}\n"]),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                b"\0\0\0\x02\n\n\0\0\0\x01a\0\0\0\x09abc",
                vec![b"\0\0\0\x02\n\n", b"\0\0\0\x01a"],
            ),
        ] {
            for size in 1..=stream.len() {
                let (mut splitter, mut seen) = (EventSplitter::of(media), Vec::new());
                for piece in stream.chunks(size) {
                    splitter.push(piece);
                    seen.extend(std::iter::from_fn(|| splitter.next()));
                }
                assert_eq!(seen, events, "{media}, {size} at a time");
                assert!(splitter.take_rest().is_some(), "an event that broke off is passed on as it is");
            }
        }
    }
}
