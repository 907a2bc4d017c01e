//! Answers that load balancers, TLS terminators, aggregated servers, restored databases or attackers may send.
//!
//! On such an answer a proxy keeps its rules, logs one line and reads a bounded number of bytes.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use hyper::StatusCode;

use crate::objects::ObjectKind;

/// Chunk size of an endless answer, in bytes.
const PIECE: usize = 64 << 10;

/// An answer. In its text `@list`, `@kind` and `@api` stand for the requested list kind, kind and API version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostileAnswer {
    /// Name in scenarios.
    pub name: &'static str,
    /// The requests that get the answer.
    pub to: HostileTarget,
    code: u16,
    retry_after: Option<u16>,
    body: HostileBody,
}

/// The requests that get a hostile answer; others get a correct one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostileTarget {
    /// Lists get the answer. Watches get 410 Gone, so that clients list again.
    Lists,
    /// Watches get the answer as their whole response.
    Watches,
    /// Watches get the answer as one line of their response, and then stay open.
    Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostileBody {
    Text(&'static str),
    Bytes(&'static [u8]),
    /// Sends the text, then breaks the connection.
    Broken(&'static str),
    /// Sends the text, then this byte forever.
    Endless(&'static str, u8),
    /// Sends nested JSON: this number of opening brackets.
    Deep(usize),
    /// Sends headers only; the body never begins.
    Silence,
}

const fn list(name: &'static str, body: HostileBody) -> HostileAnswer {
    HostileAnswer { name, to: HostileTarget::Lists, code: 200, retry_after: None, body }
}

const fn list_code(name: &'static str, code: u16, body: &'static str) -> HostileAnswer {
    HostileAnswer { name, to: HostileTarget::Lists, code, retry_after: None, body: HostileBody::Text(body) }
}

const fn watch(name: &'static str, code: u16, body: HostileBody) -> HostileAnswer {
    HostileAnswer { name, to: HostileTarget::Watches, code, retry_after: None, body }
}

const fn event(name: &'static str, body: HostileBody) -> HostileAnswer {
    HostileAnswer { name, to: HostileTarget::Events, code: 200, retry_after: None, body }
}

use HostileBody::{Broken, Bytes as Raw, Deep, Endless, Silence, Text};

/// All hostile answers.
pub const HOSTILE_ANSWERS: [HostileAnswer; 50] = [
    list(
        "status",
        Text(r#"{"kind":"Status","apiVersion":"v1","status":"Failure","metadata":{"resourceVersion":"7"}}"#),
    ),
    list("bare status", Text(r#"{"kind":"Status","status":"Failure","code":500,"message":"etcd is gone"}"#)),
    list("list of pods", Text(r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#)),
    list(
        "list of another group",
        Text(r#"{"kind":"@list","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},"items":[]}"#),
    ),
    list("list of no kind", Text(r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#)),
    list("items null", Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"},"items":null}"#)),
    list("items missing", Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"}}"#)),
    list("items a map", Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"},"items":{}}"#)),
    list(
        "items nonsense",
        Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"},"items":[5,null,"x",[]]}"#),
    ),
    list(
        "items without names",
        Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"},"items":[{},{"metadata":{}}]}"#),
    ),
    list("list without version", Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{},"items":[]}"#)),
    list("list of version null", Text(r#"{"kind":"@list","apiVersion":"@api","metadata":null,"items":[]}"#)),
    list("one object", Text(r#"{"kind":"@kind","apiVersion":"@api","metadata":{"name":"x","resourceVersion":"7"}}"#)),
    list("nothing", Text("")),
    list("null", Text("null")),
    list("array", Text("[]")),
    list("html", Text("<!DOCTYPE html><html><body>Please log in</body></html>")),
    list("half", Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"},"items":["#)),
    list("broken off", Broken(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"},"#)),
    list("two lists", Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7"},"items":[]}{}"#)),
    list("bytes", Raw(&[0x6b, 0x38, 0x73, 0x00, 0x0a, 0xff, 0xfe])),
    list("utf-16", Raw(b"\xff\xfe{\0}\0")),
    list("deep", Deep(100_000)),
    list("endless", Endless(r#"{"kind":"@list","apiVersion":"@api","#, b' ')),
    list(
        "endless pages",
        Text(r#"{"kind":"@list","apiVersion":"@api","metadata":{"resourceVersion":"7","continue":"x"},"items":[]}"#),
    ),
    list("silence", Silence),
    list_code("204", 204, ""),
    list_code("redirect", 302, ""),
    list_code("400", 400, "Client sent an HTTP request to an HTTPS server.\n"),
    list_code("401", 401, r#"{"kind":"Status","status":"Failure","code":401,"message":"Unauthorized"}"#),
    list_code("403", 403, r#"{"kind":"Status","status":"Failure","code":403,"message":"no"}"#),
    list_code("404", 404, "404 page not found\n"),
    list_code("410", 410, r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#),
    HostileAnswer { name: "429", to: HostileTarget::Lists, code: 429, retry_after: Some(1), body: Text("later") },
    list_code("500", 500, "<html>upstream connect error</html>"),
    HostileAnswer { name: "503", to: HostileTarget::Lists, code: 503, retry_after: Some(1), body: Text("") },
    HostileAnswer {
        name: "endless error",
        to: HostileTarget::Lists,
        code: 500,
        retry_after: None,
        body: Endless("", b'x'),
    },
    watch("watch 400", 400, Text("bad version")),
    watch("watch 410", 410, Text(r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#)),
    watch("watch 500", 500, Text("")),
    watch("watch html", 200, Text("<html></html>\n")),
    watch("watch ends", 200, Text("")),
    watch("watch breaks", 200, Broken("")),
    event(
        "error 500",
        Text(r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":500,"message":"etcd"}}"#),
    ),
    event("error 410", Text(r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}"#)),
    event("unknown event", Text(r#"{"type":"VANISHED","object":{"kind":"@kind","apiVersion":"@api"}}"#)),
    event("event of nothing", Text(r#"{"type":"ADDED","object":null}"#)),
    event(
        "deleted status",
        Text(
            r#"{"type":"DELETED","object":{"kind":"Status","apiVersion":"v1","metadata":{"name":"web","namespace":"default"}}}"#,
        ),
    ),
    event(
        "bookmark of pods",
        Text(r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}"#),
    ),
    event("endless event", Endless(r#"{"type":"ADDED","object":{"#, b' ')),
];

/// Finds an answer by its name.
pub fn named(name: &str) -> Option<&'static HostileAnswer> {
    HOSTILE_ANSWERS.iter().find(|answer| answer.name == name)
}

impl HostileAnswer {
    /// `None` for the normal reply.
    pub(super) fn reply(&self, watch: bool) -> Option<HostileReply> {
        match (self.to, watch) {
            (HostileTarget::Lists, false) | (HostileTarget::Watches | HostileTarget::Events, true) => {
                Some(HostileReply::This)
            }
            (HostileTarget::Lists, true) => Some(HostileReply::Gone),
            (HostileTarget::Watches | HostileTarget::Events, false) => None,
        }
    }

    pub(super) fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(super) fn retry_after(&self) -> Option<u16> {
        self.retry_after
    }

    /// Calls `sent` with the size of each chunk.
    pub(super) fn body<F: Fn(usize) + Send>(
        &self,
        kind: ObjectKind,
        sent: F,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + use<F> {
        let fill = |text: &str| {
            let api = if kind == ObjectKind::EndpointSlice { "discovery.k8s.io/v1" } else { "v1" };
            let list = format!("{}List", kind.name());
            Bytes::from(text.replace("@list", &list).replace("@kind", kind.name()).replace("@api", api))
        };
        let line_end = if self.to == HostileTarget::Events { "\n" } else { "" };
        let (first, last) = match self.body {
            Text(text) => (fill(&format!("{text}{line_end}")), BodyEnd::End),
            Raw(bytes) => (Bytes::from_static(bytes), BodyEnd::End),
            Broken(text) => (fill(text), BodyEnd::Break),
            Endless(text, byte) => (fill(text), BodyEnd::More(Bytes::from(vec![byte; PIECE]))),
            Deep(depth) => (Bytes::from("[".repeat(depth)), BodyEnd::End),
            Silence => (Bytes::new(), BodyEnd::Wait),
        };
        let last = if self.to == HostileTarget::Events && last == BodyEnd::End { BodyEnd::Wait } else { last };
        let rest = stream::unfold(last, |last| async move {
            match last {
                BodyEnd::End => None,
                BodyEnd::Break => Some((Err(io::Error::other("broken off")), BodyEnd::End)),
                BodyEnd::More(piece) => Some((Ok(piece.clone()), BodyEnd::More(piece))),
                BodyEnd::Wait => {
                    std::future::pending::<()>().await;
                    None
                }
            }
        });
        stream::iter([Ok(first)]).chain(rest).inspect(move |piece| {
            sent(piece.as_ref().map_or(0, Bytes::len));
        })
    }

    /// Whether the answer's body never begins, so that the client must time out.
    pub fn waits(&self) -> bool {
        self.body == Silence
    }

    /// The value of `Retry-After`.
    pub fn asks_for(&self) -> Duration {
        Duration::from_secs(self.retry_after.unwrap_or(0).into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostileReply {
    This,
    Gone,
}

#[derive(Clone, PartialEq, Eq)]
enum BodyEnd {
    End,
    Break,
    More(Bytes),
    Wait,
}
