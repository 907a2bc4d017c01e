//! A guest's command with the host's terminal or standard streams, over its own serial line. [`outside`] is the host's
//! end, [`inside`] the guest's; they exchange [`Frame`]s.
//!
//! The line has no flow control and loses bytes, so at most [`WINDOW`] bytes of input are unacknowledged.

pub mod inside;
pub mod outside;

use std::io;

use serde::{Deserialize, Serialize};

/// In bytes, far below the kernel's 64 KiB buffer.
pub(super) const WINDOW: usize = 16 * 1024;
/// The most payload bytes of a frame.
pub(super) const LONGEST: usize = 4096;
const HEAD: usize = 3;

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters per line.
    pub columns: u16,
}

/// Messages: variants up to `Size` for the guest, others for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    Input(Vec<u8>),
    EndOfInput,
    Size(TerminalSize),
    /// The guest accepts input.
    Started,
    /// Acknowledges bytes of input.
    Taken(u16),
    /// Standard output, or the terminal's.
    Output(Vec<u8>),
    Errors(Vec<u8>),
}

impl Frame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers;
        let (kind, payload): (u8, &[u8]) = match self {
            Frame::Input(bytes) => (b'i', bytes),
            Frame::EndOfInput => (b'e', &[]),
            Frame::Size(size) => {
                numbers = [size.rows.to_be_bytes(), size.columns.to_be_bytes()].concat();
                (b's', &numbers)
            }
            Frame::Started => (b'r', &[]),
            Frame::Taken(bytes) => {
                numbers = bytes.to_be_bytes().to_vec();
                (b't', &numbers)
            }
            Frame::Output(bytes) => (b'o', bytes),
            Frame::Errors(bytes) => (b'x', bytes),
        };
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        [&[kind], &length.to_be_bytes()[..], &payload[..usize::from(length)]].concat()
    }

    fn decode(kind: u8, payload: &[u8]) -> io::Result<Frame> {
        let frame = match (kind, payload) {
            (b'i', bytes) => Frame::Input(bytes.to_vec()),
            (b'e', []) => Frame::EndOfInput,
            (b's', &[a, b, c, d]) => {
                Frame::Size(TerminalSize { rows: u16::from_be_bytes([a, b]), columns: u16::from_be_bytes([c, d]) })
            }
            (b'r', []) => Frame::Started,
            (b't', &[a, b]) => Frame::Taken(u16::from_be_bytes([a, b])),
            (b'o', bytes) => Frame::Output(bytes.to_vec()),
            (b'x', bytes) => Frame::Errors(bytes.to_vec()),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the serial line has lost or changed bytes")),
        };
        Ok(frame)
    }
}

/// Decodes frames from pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    rest: Vec<u8>,
}

impl Decoder {
    /// Returns frames that `bytes` completes. Fails on invalid ones.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> io::Result<Vec<Frame>> {
        self.rest.extend(bytes);
        let mut frames = Vec::new();
        while let &[kind, a, b, ..] = self.rest.as_slice() {
            let end = HEAD + usize::from(u16::from_be_bytes([a, b]));
            let Some(payload) = self.rest.get(HEAD..end) else { break };
            frames.push(Frame::decode(kind, payload)?);
            self.rest.drain(..end);
        }
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_whatever_pieces() {
        let frames = [
            Frame::Started,
            Frame::Input(b"svclab ps\n\0\xff".to_vec()),
            Frame::EndOfInput,
            Frame::Size(TerminalSize { rows: 24, columns: 300 }),
            Frame::Taken(4096),
            Frame::Output(vec![7; LONGEST]),
            Frame::Errors(Vec::new()),
        ];
        let line: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for piece in [1, 2, 5, 1000, line.len()] {
            let mut decoder = Decoder::default();
            let came: Vec<Frame> = line.chunks(piece).flat_map(|bytes| decoder.feed(bytes).unwrap()).collect();
            assert_eq!(came, frames, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for line in [&b"z\0\0"[..], b"s\0\x01a", b"r\0\x01a"] {
            assert!(Decoder::default().feed(line).is_err(), "{line:?}");
        }
    }
}
