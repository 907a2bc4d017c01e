//! The echo protocol: a line each way, of which the second repeats the first.
//!
//! Each request has a number of its own, so that a late answer is never taken for that to the next one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::probe::ProbeAnswer;

/// The number of the next request. Their length stays the same, for the sake of runs that are compared byte by byte.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// One request's line, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EchoRequest(String);

impl EchoRequest {
    /// A request for `what`, which no other request is.
    pub(super) fn new(what: &str) -> EchoRequest {
        EchoRequest(format!("{what} {:08x}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// As it is sent.
    pub(super) fn line(&self) -> Vec<u8> {
        format!("{}\n", self.0).into_bytes()
    }

    /// The answer to this request that `line` is; `None` if it is one to another request.
    pub(super) fn answer(&self, line: &[u8]) -> Option<ProbeAnswer> {
        #[derive(serde::Deserialize)]
        struct EchoReply {
            server: String,
            peer: SocketAddr,
            at: SocketAddr,
            question: String,
        }
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        match serde_json::from_slice::<EchoReply>(line) {
            Ok(reply) if reply.question != self.0 => None,
            Ok(EchoReply { server, peer, at, .. }) => {
                Some(ProbeAnswer::Replied { server, peer: canonical(peer), at: canonical(at) })
            }
            Err(_) => {
                let line = String::from_utf8_lossy(line);
                Some(ProbeAnswer::Broken(format!("not an echo server's answer: {}", line.trim_end())))
            }
        }
    }
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
    fn mapped_addresses_become_ipv4() {
        let question = EchoRequest::new("who?");
        let answer = question.answer(reply(&question).as_bytes());
        let Some(ProbeAnswer::Replied { peer, at, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!((peer, at), ("10.0.0.1:4711".parse().unwrap(), "10.0.0.2:80".parse().unwrap()));
    }

    #[test]
    fn a_late_answer_is_not_that_to_the_next_request() {
        let (first, second) = (EchoRequest::new("who?"), EchoRequest::new("who?"));
        assert_eq!(second.answer(reply(&first).as_bytes()), None);
        assert!(first.answer(reply(&first).as_bytes()).is_some());
    }

    #[test]
    fn another_program_is_no_echo_server() {
        let answer = EchoRequest::new("who?").answer(b"HTTP/1.1 400 Bad Request\r\n");
        assert!(matches!(answer, Some(ProbeAnswer::Broken(_))), "{answer:?}");
    }
}
