//! Relays requests to another API server and adds the lab's faults.
//!
//! Clients authenticate with the lab's tokens; the other server must know these tokens and decides what each client may
//! do. Faults of the connection (resets, cut-off nodes) work as without a relay. The relay itself answers the faults of
//! requests (503, 410, hostile answers); the faults of watches withhold, end or add events.

mod frames;
mod stream;
mod upstream;

use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, TRANSFER_ENCODING};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::context::ServerContext;
use super::error::ApiError;
use super::hostile_response::hostile_response;
use super::query::{Query, VersionMatch};
use super::resources::{ApiRoute, ObjectPath, route};
use super::response::{ApiResponse, ResponseBody, collect, respond};
pub use upstream::Upstream;

/// Sends `request` to `upstream` and returns the response.
pub(super) async fn answer(
    context: &ServerContext,
    upstream: &Upstream,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    forward(context, upstream, request).await.unwrap_or_else(|error| respond(Err(error)))
}

async fn forward(
    context: &ServerContext,
    upstream: &Upstream,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ApiError> {
    context.check_available()?;
    context.check_token(&request)?;
    let read = read_query(&request);
    if let Some((path, query)) = &read {
        if let Some(response) = hostile_response(&context.shared, path, query) {
            return Ok(respond(response));
        }
        match check_version(context, query) {
            // The watch cache of kube-apiserver reports an expired version as an event and ends the watch.
            Err(error) if query.watch => {
                let event = json!({ "type": "ERROR", "object": error.status() });
                return Ok(respond(Ok(ApiResponse::bytes(StatusCode::OK, format!("{event}\n").into()))));
            }
            checked => checked?,
        }
    }
    let closed = context.shared.look(|state| state.faults.closed.0);
    let (mut head, body) = request.into_parts();
    // The relay cannot split the events of a compressed watch.
    head.headers.remove(ACCEPT_ENCODING);
    head.headers.remove(CONNECTION);
    head.headers.remove(TRANSFER_ENCODING);
    let answered = upstream.send(Request::from_parts(head, collect(body).await?)).await;
    let answered = answered.map_err(|error| ApiError::new(503, "ServiceUnavailable", error.to_string()))?;
    let (mut head, body) = answered.into_parts();
    head.headers.remove(CONNECTION);
    head.headers.remove(TRANSFER_ENCODING);
    let body = match read.filter(|(_, query)| query.watch && head.status.is_success()) {
        None => stream::whole(body),
        Some((path, query)) => {
            let media = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let splitter = frames::EventSplitter::of(media.unwrap_or_default());
            let kind = path.resource.kind;
            stream::RelayedWatch::new(context.shared.clone(), kind, query.bookmarks, closed, splitter).body(body)
        }
    };
    Ok(Response::from_parts(head, body))
}

/// Path and query of a list or watch; `None` for any other request, which faults do not concern.
fn read_query(request: &Request<Incoming>) -> Option<(ObjectPath, Query)> {
    let Some(ApiRoute::Objects(path)) = route(request.uri().path()) else { return None };
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default()).ok()?;
    (request.method() == Method::GET && path.name.is_none()).then_some((path, query))
}

/// Answers 410 if the request names a version that a fault has expired.
fn check_version(context: &ServerContext, query: &Query) -> Result<(), ApiError> {
    let version = match (&query.continued, query.version) {
        (None, VersionMatch::Exact(version)) => version,
        // The newest version always satisfies a list that must not be older than a version.
        (None, VersionMatch::NotOlderThan(version)) if query.watch && query.initial_events.is_none() => version,
        _ => return Ok(()),
    };
    context.shared.with(|state| {
        let oldest = state.faults.forgotten;
        if state.faults.expires() || version < oldest {
            return Err(ApiError::new(410, "Expired", format!("too old resource version: {version} ({oldest})")));
        }
        Ok(())
    })
}
