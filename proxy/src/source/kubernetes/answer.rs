use std::error::Error;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use hyper::{HeaderMap, Request, Response, StatusCode};
use kube::client::Body;
use kube::core::Status;
use prost::bytes::{Buf, Bytes, BytesMut};
use tokio::time::{Instant, timeout};

use super::connector::ApiConnection;
use super::media_type::Encoding;
use super::protobuf;
use super::reflect::Failure;

/// In bytes. A Service or Node takes 2 to 20 KB, a slice of 100 endpoints about 35 KB, the largest object 3 MB.
pub(super) const LARGEST_PAGE: usize = 64 << 20;
/// In bytes.
pub(super) const LARGEST_EVENT: usize = 16 << 20;
/// In bytes.
const LARGEST_ERROR: usize = 64 << 10;
/// The longest accepted wait; an overloaded server requests seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Sends a request; returns a failure unless the status is 200.
pub(super) async fn ask(
    connection: &ApiConnection,
    mut request: Request<Vec<u8>>,
    patience: Duration,
) -> Result<Response<Body>, Failure> {
    request.headers_mut().insert(ACCEPT, connection.accepted.header());
    let answered = timeout(patience, connection.send(request.map(Body::from))).await;
    let response = answered.map_err(|_| Failure::Late(patience))??;
    match response.status() {
        StatusCode::OK => Ok(response),
        code if code.is_client_error() || code.is_server_error() => {
            let after = retry_after(response.headers());
            let text = AnswerBody::new(response, LARGEST_ERROR, Some(patience)).whole().await.unwrap_or_default();
            Err(Failure::Refused { status: Box::new(status(code, text)), after })
        }
        code => Err(Failure::Nonsense(format!("HTTP status {code}"))),
    }
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.last().unwrap_or(error).to_string()
}

fn status(code: StatusCode, text: Bytes) -> Status {
    let status = serde_json::from_slice(&text).ok().or_else(|| protobuf::status(text.clone()));
    let said = || String::from_utf8_lossy(&text).trim().to_owned();
    status.unwrap_or_else(|| Status::failure(&said(), "")).with_code(code.as_u16())
}

/// Parses seconds; API servers do not send dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// The bytes of an answer, unpacked, as they arrive.
pub(super) struct AnswerBody {
    body: Limited<Body>,
    limit: usize,
    /// The time that is left to wait for bytes, if it is limited.
    patience: Option<Duration>,
    buffer: BytesMut,
    taken: u64,
}

impl AnswerBody {
    /// `limit` is the most bytes of the answer.
    pub(super) fn new(response: Response<Body>, limit: usize, patience: Option<Duration>) -> AnswerBody {
        let body = Limited::new(response.into_body(), limit);
        AnswerBody { body, limit, patience, buffer: BytesMut::new(), taken: 0 }
    }

    /// Reads on; returns whether there was more. Cancel-safe.
    async fn more(&mut self) -> Result<bool, Failure> {
        let frame = match &mut self.patience {
            None => self.body.frame().await,
            Some(patience) => {
                let begun = Instant::now();
                let frame = timeout(*patience, self.body.frame()).await.map_err(|_| Failure::Late(*patience))?;
                *patience = patience.saturating_sub(begun.elapsed());
                frame
            }
        };
        match frame {
            None => Ok(false),
            Some(Ok(frame)) => {
                self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                Ok(true)
            }
            Some(Err(error)) if error.is::<LengthLimitError>() => {
                Err(Failure::TooLarge(format!("an answer of more than {} bytes", self.limit)))
            }
            Some(Err(error)) => Err(Failure::Broken(innermost(&*error))),
        }
    }

    async fn needs_more(&mut self) -> Result<(), Failure> {
        if self.more().await? { Ok(()) } else { Err(Failure::Broken("it ends too early".to_owned())) }
    }

    pub(super) async fn whole(mut self) -> Result<Bytes, Failure> {
        while self.more().await? {}
        Ok(self.buffer.freeze())
    }

    /// The number of bytes that were taken or skipped.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) async fn byte(&mut self) -> Result<u8, Failure> {
        while self.buffer.is_empty() {
            self.needs_more().await?;
        }
        self.taken += 1;
        Ok(self.buffer.get_u8())
    }

    pub(super) async fn take(&mut self, length: u64) -> Result<Bytes, Failure> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        while self.buffer.len() < length {
            self.needs_more().await?;
        }
        self.taken += length as u64;
        Ok(self.buffer.split_to(length).freeze())
    }

    pub(super) async fn skip(&mut self, mut length: u64) -> Result<(), Failure> {
        while length > 0 {
            if self.buffer.is_empty() {
                self.needs_more().await?;
            }
            let skipped = self.buffer.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            self.buffer.advance(skipped);
            self.taken += skipped as u64;
            length -= skipped as u64;
        }
        Ok(())
    }

    /// Reads to the end: only then it is known that nothing broke off, and the connection serves the next request.
    pub(super) async fn drain(&mut self) -> Result<(), Failure> {
        while self.more().await? {
            self.buffer.clear();
        }
        Ok(())
    }
}

/// The events of a watch: lines of JSON, or messages of protobuf, each after its length in four bytes
/// (`k8s.io/apimachinery/pkg/util/framer`).
pub(super) struct WatchFrames {
    body: AnswerBody,
    encoding: Encoding,
    /// Length of the prefix that has no line break.
    searched: usize,
}

impl WatchFrames {
    pub(super) fn new(response: Response<Body>) -> WatchFrames {
        let encoding = Encoding::of(response.headers());
        WatchFrames { body: AnswerBody::new(response, usize::MAX, None), encoding, searched: 0 }
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the next event. Discards an incomplete last one: the next watch repeats it. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let too_large = || Failure::TooLarge(format!("an event of more than {LARGEST_EVENT} bytes"));
        loop {
            let buffered = match self.encoding {
                Encoding::Json => self.line(),
                Encoding::Protobuf => self.message().map_err(|()| too_large())?,
            };
            if buffered.is_some() {
                return Ok(buffered);
            }
            if self.body.buffer.len() > LARGEST_EVENT {
                return Err(too_large());
            }
            if !self.body.more().await? {
                return Ok(None);
            }
        }
    }

    fn line(&mut self) -> Option<Bytes> {
        let buffer = &mut self.body.buffer;
        loop {
            let Some(at) = buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = buffer.len();
                return None;
            };
            let line = buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(line.freeze());
            }
        }
    }

    fn message(&mut self) -> Result<Option<Bytes>, ()> {
        let buffer = &mut self.body.buffer;
        let Some(length) = buffer.first_chunk().map(|length| u32::from_be_bytes(*length) as usize) else {
            return Ok(None);
        };
        if length > LARGEST_EVENT {
            return Err(());
        }
        if buffer.len() - 4 < length {
            return Ok(None);
        }
        buffer.advance(4);
        Ok(Some(buffer.split_to(length).freeze()))
    }
}

/// Returns an answer for fuzzing.
pub(super) fn fuzz(encoding: Encoding, bytes: &[u8]) -> Response<Body> {
    let mut answer = Response::new(Body::from(bytes.to_vec()));
    answer.headers_mut().insert(CONTENT_TYPE, encoding.media_type());
    answer
}
