//! Requests to the API server, and bounds on what comes back: nothing of an answer is kept before it is known to be small
//! enough and to be an answer.

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

/// Largest page of a list, in bytes. A Service or a Node takes 2 to 20 KB, a slice of 100 endpoints some 35 KB, the largest
/// object 3 MB (the API server's limit of a request).
pub(super) const LARGEST_PAGE: usize = 64 << 20;
/// Largest line of a watch, in bytes.
pub(super) const LARGEST_EVENT: usize = 16 << 20;
/// As much of an error's text is read, in bytes.
const LARGEST_ERROR: usize = 64 << 10;
/// The longest wait that a server may ask for. A server that is overloaded asks for seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Sends a request. Anything but 200 is a failure.
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

/// The whole body.
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

/// What went wrong; the HTTP status decides, for a body may say anything.
fn status(code: StatusCode, text: &[u8]) -> Status {
    let status: Option<Status> = serde_json::from_slice(text).ok();
    let said = || String::from_utf8_lossy(text).trim().to_owned();
    status.unwrap_or_else(|| Status::failure(&said(), "")).with_code(code.as_u16())
}

/// Seconds; the other form, a date, is not one that API servers use.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// The lines of a watch.
pub(super) struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// So much of the buffer holds no end of a line.
    searched: usize,
}

impl Lines {
    pub(super) fn new(response: Response<Body>) -> Lines {
        Lines { body: response.into_body(), buffer: Vec::new(), searched: 0 }
    }

    /// The next line that is not empty; `None` when the watch has ended. A line that breaks off in the middle is no event: the
    /// next watch brings it again. Dropping the future loses nothing.
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
