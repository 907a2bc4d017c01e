//! A command in the guest with this machine's terminal, or with its standard streams: over a serial line of its own, on which the
//! kernel says nothing. [`outside`] is this machine's end and [`inside`] the guest's; between them go [`Frame`]s.
//!
//! A serial line has no flow control here, and what its reader does not take in time is lost: at most [`WINDOW`] bytes of input are
//! on their way.

pub mod inside;
pub mod outside;

use std::io;

use serde::{Deserialize, Serialize};

/// Bytes of input that the guest has not taken yet, at most: far less than what its kernel keeps of a serial line (64 KiB).
pub(super) const WINDOW: usize = 16 * 1024;
/// Bytes in a frame, at most.
pub(super) const LONGEST: usize = 4096;
/// A frame's kind and the length of what follows.
const HEAD: usize = 3;

/// How large a terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// What goes over the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// To the guest: input of the command.
    Input(Vec<u8>),
    /// To the guest: there is no more input.
    EndOfInput,
    /// To the guest: the terminal has another size now.
    Size(Size),
    /// From the guest: it takes input from now on.
    Started,
    /// From the guest: so many bytes of input have been taken.
    Taken(u16),
    /// From the guest: standard output, or the terminal's.
    Output(Vec<u8>),
    /// From the guest: standard error.
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
        // Callers cut what they send into pieces of LONGEST bytes.
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        [&[kind], &length.to_be_bytes()[..], &payload[..usize::from(length)]].concat()
    }

    fn decode(kind: u8, payload: &[u8]) -> io::Result<Frame> {
        let frame = match (kind, payload) {
            (b'i', bytes) => Frame::Input(bytes.to_vec()),
            (b'e', []) => Frame::EndOfInput,
            (b's', &[a, b, c, d]) => {
                Frame::Size(Size { rows: u16::from_be_bytes([a, b]), columns: u16::from_be_bytes([c, d]) })
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

/// Puts frames together from what comes, in whatever pieces.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    rest: Vec<u8>,
}

impl Decoder {
    /// The frames that are complete with `bytes`.
    ///
    /// # Errors
    /// When it is no frame that comes.
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
            Frame::Size(Size { rows: 24, columns: 300 }),
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
