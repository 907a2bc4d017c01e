use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::future::ready;
use futures_util::{Stream, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, VARY, WARNING,
};
use hyper::{Request, Response, StatusCode};
use serde_json::Value;

use super::compress;
use super::encoding::Encoding;
use super::error::ApiError;

/// Maximum size of a body in bytes, as in kube-apiserver.
const LARGEST: usize = 3 << 20;

pub(super) type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

pub(super) enum AnswerBody {
    Whole(Bytes),
    Stream(ResponseBody),
}

pub(super) struct ApiResponse {
    pub(super) code: StatusCode,
    pub(super) media: &'static str,
    pub(super) body: AnswerBody,
    pub(super) retry_after: Option<u16>,
    pub(super) warnings: Vec<String>,
}

impl ApiResponse {
    /// A body that is not negotiated is JSON.
    fn new(code: StatusCode, body: AnswerBody) -> Self {
        ApiResponse { code, media: Encoding::Json.media(), body, retry_after: None, warnings: Vec::new() }
    }

    pub(super) fn bytes(code: StatusCode, body: Bytes) -> Self {
        ApiResponse::new(code, AnswerBody::Whole(body))
    }

    /// A body in `encoding`.
    pub(super) fn encoded(code: StatusCode, encoding: Encoding, body: Bytes) -> Self {
        ApiResponse { media: encoding.media(), ..ApiResponse::bytes(code, body) }
    }

    pub(super) fn object(encoding: Encoding, object: &Value) -> Self {
        ApiResponse::encoded(StatusCode::OK, encoding, encoding.encode(object))
    }

    pub(super) fn stream(code: StatusCode, body: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        ApiResponse::new(code, AnswerBody::Stream(stream_body(body)))
    }
}

fn whole_body(body: Bytes) -> ResponseBody {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Leaves out empty pieces: clients of HTTP/2 close a connection after a hundred empty frames.
pub(super) fn stream_body(body: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> ResponseBody {
    let pieces = body.try_filter(|piece| ready(!piece.is_empty()));
    StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()
}

/// Makes the response; an error is a `Status` in `encoding`. `gzip`: the client accepts it.
pub(super) fn respond(
    answered: Result<ApiResponse, ApiError>,
    encoding: Encoding,
    gzip: bool,
) -> Response<ResponseBody> {
    let (retry_after, answer) = match answered {
        Ok(answer) => (answer.retry_after.map(u32::from), answer),
        Err(error) => {
            let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (error.retry_after, ApiResponse::encoded(code, encoding, encoding.encode(&error.status())))
        }
    };
    let (body, compressed) = match answer.body {
        AnswerBody::Stream(body) => (body, false),
        AnswerBody::Whole(body) => match gzip.then(|| compress::gzip(&body)).flatten() {
            Some(compressed) => (whole_body(compressed), true),
            None => (whole_body(body), false),
        },
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    for warning in answer.warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(WARNING, value);
        }
    }
    response
}

pub(super) fn header<B>(request: &Request<B>, name: HeaderName) -> Option<&str> {
    request.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Reads a body; fails with 413 if it is too large.
pub(super) async fn collect(body: Incoming) -> Result<Bytes, ApiError> {
    let collected = Limited::new(body, LARGEST).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("Request entity too large: limit is {LARGEST}");
            ApiError::new(413, "RequestEntityTooLarge", message)
        } else {
            ApiError::bad_request(format!("the body broke off: {error}"))
        }
    })
}
