//! The echo protocol: one line per request; the reply repeats the request.
//!
//! A unique number per request distinguishes late replies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::probe::ProbeAnswer;

/// The next request's number, printed with fixed width because deterministic runs compare byte counts.
static NEXT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EchoRequest(String);

impl EchoRequest {
    /// Creates a request whose line has `bytes` bytes, or as many as it needs.
    pub(super) fn new(what: &str, bytes: usize) -> EchoRequest {
        let question = format!("{what} {:08x}", NEXT.fetch_add(1, Ordering::Relaxed));
        let padding = bytes.saturating_sub(question.len() + 1);
        EchoRequest(question + &"x".repeat(padding))
    }

    pub(super) fn line(&self) -> Vec<u8> {
        format!("{}\n", self.0).into_bytes()
    }

    /// Parses a reply; `None` if it is to another request.
    pub(super) fn answer(&self, line: &[u8]) -> Option<ProbeAnswer> {
        #[derive(serde::Deserialize)]
        struct EchoReply {
            server: String,
            peer: SocketAddr,
            at: SocketAddr,
            question: String,
            dscp: Option<u8>,
        }
        match serde_json::from_slice::<EchoReply>(line) {
            Ok(reply) if reply.question != self.0 => None,
            Ok(EchoReply { server, peer, at, dscp, .. }) => {
                Some(ProbeAnswer::Replied { server, peer: canonical(peer), at: canonical(at), dscp })
            }
            Err(_) => {
                let line = String::from_utf8_lossy(line);
                Some(ProbeAnswer::Broken(format!("not an echo server's answer: {}", line.trim_end())))
            }
        }
    }
}

pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(question: &EchoRequest) -> String {
        let EchoRequest(question) = question;
        format!(
            r#"{{"server":"default/web","peer":"[::ffff:10.0.0.1]:4711","at":"[::ffff:10.0.0.2]:80","question":"{question}"}}"#
        )
    }

    #[test]
    fn a_mapped_address_becomes_ipv4() {
        let question = EchoRequest::new("who?", 0);
        let answer = question.answer(reply(&question).as_bytes());
        let Some(ProbeAnswer::Replied { peer, at, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!((peer, at), ("10.0.0.1:4711".parse().unwrap(), "10.0.0.2:80".parse().unwrap()));
    }

    #[test]
    fn a_request_has_the_size_that_is_asked_for() {
        for bytes in [0, 14, 15, 16, 1000] {
            let line = EchoRequest::new("who?", bytes).line();
            assert_eq!((line.len(), line.last()), (bytes.max(14), Some(&b'\n')), "{bytes}");
        }
    }

    #[test]
    fn a_late_reply_does_not_answer_the_next_request() {
        let (first, second) = (EchoRequest::new("who?", 0), EchoRequest::new("who?", 0));
        assert_eq!(second.answer(reply(&first).as_bytes()), None);
        assert!(first.answer(reply(&first).as_bytes()).is_some());
    }

    #[test]
    fn a_reply_of_another_program_is_broken() {
        let answer = EchoRequest::new("who?", 0).answer(b"HTTP/1.1 400 Bad Request\r\n");
        assert!(matches!(answer, Some(ProbeAnswer::Broken(_))), "{answer:?}");
    }
}
