use std::error::Error;
use std::time::Duration;

use futures_util::TryFutureExt;
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::header::RETRY_AFTER;
use hyper::{HeaderMap, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use tokio::time::timeout;

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
    client: &Client,
    request: Request<Vec<u8>>,
    patience: Duration,
) -> Result<Response<Body>, Failure> {
    let answered = timeout(patience, client.send(request.map(Body::from))).await;
    let response = answered.map_err(|_| Failure::Late(patience))??;
    match response.status() {
        StatusCode::OK => Ok(response),
        code if code.is_client_error() || code.is_server_error() => {
            let after = retry_after(response.headers());
            let text = timeout(patience, body(response, LARGEST_ERROR)).await;
            let text = text.unwrap_or(Err(Failure::Late(patience))).unwrap_or_default();
            Err(Failure::Refused { status: Box::new(status(code, &text)), after })
        }
        code => Err(Failure::Nonsense(format!("HTTP status {code}"))),
    }
}

pub(super) async fn body(response: Response<Body>, limit: usize) -> Result<Bytes, Failure> {
    let whole = Limited::new(response.into_body(), limit).collect().map_ok(|body| body.to_bytes());
    whole.await.map_err(|error| broken(error, limit))
}

fn broken(error: Box<dyn Error + Send + Sync>, limit: usize) -> Failure {
    if error.is::<http_body_util::LengthLimitError>() {
        Failure::TooLarge(format!("an answer of more than {limit} bytes"))
    } else {
        Failure::Broken(innermost(&*error))
    }
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.last().unwrap_or(error).to_string()
}

fn status(code: StatusCode, text: &[u8]) -> Status {
    let status: Option<Status> = serde_json::from_slice(text).ok();
    let said = || String::from_utf8_lossy(text).trim().to_owned();
    status.unwrap_or_else(|| Status::failure(&said(), "")).with_code(code.as_u16())
}

/// Parses seconds; API servers do not send dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

pub(super) struct WatchLines {
    body: Body,
    buffer: Vec<u8>,
    /// Length of the prefix that has no line break.
    searched: usize,
}

impl WatchLines {
    pub(super) fn new(response: Response<Body>) -> WatchLines {
        WatchLines { body: response.into_body(), buffer: Vec::new(), searched: 0 }
    }

    /// Returns the next non-empty line. Discards an incomplete last line: the next watch repeats the event.
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            if self.buffer.len() > LARGEST_EVENT {
                return Err(Failure::TooLarge(format!("an event of more than {LARGEST_EVENT} bytes")));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(error)) => return Err(Failure::Broken(innermost(&error))),
            }
        }
    }

    fn buffered(&mut self) -> Option<Vec<u8>> {
        loop {
            let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let rest = self.buffer.split_off(self.searched + at + 1);
            let line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(line);
            }
        }
    }
}
