//! In front of another API server: its answers pass as they are, except where a [`Fault`](super::Fault) says otherwise.
//!
//! Clients are told apart by the lab's tokens, which the other server must know as well: who may do what is its decision.
//! Faults of the connection (resets, cut-off nodes) need nothing here. Those of requests (503, 410, hostile answers) are
//! answered in its place, and those of watches hold back, end or add to what it sends.

mod frames;
mod stream;
mod upstream;

use bytes::Bytes;
use hyper::body::Body as HttpBody;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_TYPE, TRANSFER_ENCODING};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::error::ApiError;
use super::faults::Refusal;
use super::query::{Query, Wanted};
use super::request::{Answer, Body, Context, collect, header, hostile, respond};
use super::resources::{Path, Route, route};
pub use upstream::Upstream;

/// Answers `request` with what `upstream` answers.
pub(super) async fn answer<B>(context: &Context, upstream: &Upstream, request: Request<B>) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send,
{
    match forward(context, upstream, request).await {
        Ok(response) => response,
        Err(error) => respond(Err(error)),
    }
}

async fn forward<B>(context: &Context, upstream: &Upstream, request: Request<B>) -> Result<Response<Body>, ApiError>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send,
{
    if context.shared.look(|state| state.faults.refusal) == Some(Refusal::Unavailable) {
        return Err(ApiError::unavailable());
    }
    if let Some(tokens) = &context.tokens
        && !tokens.allow(header(&request, AUTHORIZATION))
    {
        return Err(ApiError::unauthorized());
    }
    let asked = asked(&request);
    if let Some((path, query)) = &asked {
        if let Some(answer) = hostile(context, path, query) {
            return Ok(respond(answer));
        }
        match forgotten(context, query) {
            // As upstream's watch cache has it: an event, which ends the watch.
            Err(error) if query.watch => {
                let event = json!({ "type": "ERROR", "object": error.status() });
                return Ok(respond(Ok(Answer::bytes(StatusCode::OK, format!("{event}\n").into()))));
            }
            checked => checked?,
        }
    }
    let closed = context.shared.look(|state| state.faults.closed.0);
    let (mut head, body) = request.into_parts();
    // Events of a compressed watch could not be told apart.
    head.headers.remove(ACCEPT_ENCODING);
    head.headers.remove(CONNECTION);
    head.headers.remove(TRANSFER_ENCODING);
    let answered = upstream.send(Request::from_parts(head, collect(body).await?)).await;
    let answered = answered.map_err(|error| ApiError::new(503, "ServiceUnavailable", error.to_string()))?;
    let (mut head, body) = answered.into_parts();
    head.headers.remove(CONNECTION);
    head.headers.remove(TRANSFER_ENCODING);
    let body = match asked.filter(|(_, query)| query.watch && head.status.is_success()) {
        None => stream::whole(body),
        Some((path, query)) => {
            let media = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let splitter = frames::Splitter::of(media.unwrap_or_default());
            stream::Watch::new(context.shared.clone(), path.resource.kind, query.bookmarks, closed, splitter).body(body)
        }
    };
    Ok(Response::from_parts(head, body))
}

/// Which objects a request reads, if it is one that faults are about.
fn asked<B>(request: &Request<B>) -> Option<(Path, Query)> {
    let Some(Route::Objects(path)) = route(request.uri().path()) else { return None };
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default()).ok()?;
    (request.method() == Method::GET && path.name.is_none()).then_some((path, query))
}

/// Whether the version that a request names is to be called gone.
fn forgotten(context: &Context, query: &Query) -> Result<(), ApiError> {
    let version = match (&query.continued, query.version) {
        (None, Wanted::Exact(version)) => version,
        // A list that is not older than a version can always be answered.
        (None, Wanted::NotOlderThan(version)) if query.watch && query.initial_events.is_none() => version,
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
