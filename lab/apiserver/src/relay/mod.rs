//! Relays requests to another API server and adds faults.
//!
//! The other server must know the lab's tokens and does the authorization. For faults of requests the relay answers
//! itself (503, 410, hostile answers); for faults of watches it withholds, ends or adds events.

mod frames;
mod stream;
mod upstream;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, TRANSFER_ENCODING};
use hyper::{Method, Request, Response, StatusCode};

use super::context::ServerContext;
use super::encoding::Encoding;
use super::error::ApiError;
use super::hostile_response::hostile_response;
use super::negotiate;
use super::query::{Query, VersionMatch};
use super::resources::{ApiRoute, ObjectPath, route};
use super::response::{ApiResponse, ResponseBody, collect, header, respond};
use crate::objects::ObjectKind;
pub use upstream::Upstream;

pub(super) async fn answer(
    context: &ServerContext,
    upstream: &Upstream,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let accepted = negotiate::accept(header(&request, ACCEPT), &Encoding::ALL);
    let encoding = accepted.map_or(Encoding::Json, |accepted| accepted.encoding);
    let answered = forward(context, upstream, request, encoding).await;
    answered.unwrap_or_else(|error| respond(Err(error), encoding, false))
}

async fn forward(
    context: &ServerContext,
    upstream: &Upstream,
    request: Request<Incoming>,
    encoding: Encoding,
) -> Result<Response<ResponseBody>, ApiError> {
    context.check_available()?;
    context.check_token(&request)?;
    let read = read_query(&request);
    if let Some((path, query)) = &read {
        if let Some(response) = hostile_response(&context.shared, path, query) {
            return Ok(respond(response, encoding, false));
        }
        context.check_watch_list(query)?;
        match check_version(context, path.resource.kind, query) {
            // Like kube-apiserver's watch cache, sends the error as the watch's last event.
            Err(error) if query.watch => {
                let event = encoding.watch_event("ERROR", encoding.encode(&error.status())).concat();
                let response = ApiResponse::bytes(StatusCode::OK, event.into());
                return Ok(respond(Ok(ApiResponse { media: encoding.watch_media(), ..response }), encoding, false));
            }
            checked => checked?,
        }
    }
    let closed = context.shared.inspect(|state| state.faults.closed.0);
    let (mut head, body) = request.into_parts();
    if read.as_ref().is_some_and(|(_, query)| query.watch) {
        // The relay cannot split the events of a compressed watch.
        head.headers.remove(ACCEPT_ENCODING);
    }
    head.headers.remove(CONNECTION);
    head.headers.remove(TRANSFER_ENCODING);
    let answered = upstream.send(Request::from_parts(head, collect(body).await?)).await;
    let answered = answered.map_err(|error| ApiError::new(503, "ServiceUnavailable", error.to_string()))?;
    let (mut head, body) = answered.into_parts();
    head.headers.remove(CONNECTION);
    head.headers.remove(TRANSFER_ENCODING);
    let body = match read.filter(|(_, query)| query.watch && head.status.is_success()) {
        None => stream::relay_body(body),
        Some((path, query)) => {
            let media = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let splitter = frames::EventSplitter::of(media.unwrap_or_default());
            let kind = path.resource.kind;
            stream::RelayedWatch::new(context.shared.clone(), kind, query.bookmarks, closed, splitter).body(body)
        }
    };
    Ok(Response::from_parts(head, body))
}

/// Parses a list or watch; `None` for other requests.
fn read_query(request: &Request<Incoming>) -> Option<(ObjectPath, Query)> {
    let Some(ApiRoute::Objects(path)) = route(request.uri().path()) else { return None };
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default()).ok()?;
    (request.method() == Method::GET && path.name.is_none()).then_some((path, query))
}

/// Fails with 410 if a fault has expired the requested version.
fn check_version(context: &ServerContext, kind: ObjectKind, query: &Query) -> Result<(), ApiError> {
    let version = match (&query.continued, query.version) {
        (None, VersionMatch::Exact(version)) => version,
        (None, VersionMatch::NotOlderThan(version)) if query.watch && query.initial_events.is_none() => version,
        _ => return Ok(()),
    };
    context.shared.update(|state| {
        let oldest = state.faults.oldest_versions.get(&kind).copied().unwrap_or(0);
        if state.faults.take_expiry() || version < oldest {
            return Err(ApiError::new(410, "Expired", format!("too old resource version: {version} ({oldest})")));
        }
        Ok(())
    })
}
