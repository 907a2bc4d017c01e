//! One request from its headers to its answer.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::auth::Tokens;
use super::error::ApiError;
use super::faults::Refusal;
use super::hostile::Given;
use super::negotiate::{self, Form};
use super::patch::Patch;
use super::query::{Query, Wanted};
use super::relay::{self, Upstream};
use super::resources::{Path, Route, route};
use super::shared::SharedStore;
use super::view::View;
use super::watch::WatchTimes;
use super::write::{self, DeleteOptions, Written};
use super::{kubectl, list, scale, watch};
use crate::objects::Kind;

/// The largest body that is read (upstream's limit).
const LARGEST: usize = 3 << 20;

/// An answer's body: whole, or the stream of a watch.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What every request needs.
pub(super) struct Context {
    pub(super) shared: SharedStore,
    pub(super) tokens: Option<Tokens>,
    pub(super) times: WatchTimes,
    /// The server whose answers are passed on, if it is not this one.
    pub(super) upstream: Option<Upstream>,
}

/// What a handler makes: status, body, warnings.
pub(super) struct Answer {
    code: StatusCode,
    body: Body,
    retry_after: Option<u16>,
    warnings: Vec<String>,
}

impl Answer {
    pub(super) fn bytes(code: StatusCode, body: Bytes) -> Self {
        let body = Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync();
        Answer { code, body, retry_after: None, warnings: Vec::new() }
    }

    fn json(body: &Value) -> Self {
        Answer::bytes(StatusCode::OK, body.to_string().into())
    }
}

/// Answers `request`, whatever is wrong with it.
pub(super) async fn answer<B>(context: Arc<Context>, request: Request<B>) -> Result<Response<Body>, Infallible>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send,
{
    Ok(match &context.upstream {
        None => respond(handle(&context, request).await),
        Some(upstream) => relay::answer(&context, upstream, request).await,
    })
}

/// The response that says it.
pub(super) fn respond(answered: Result<Answer, ApiError>) -> Response<Body> {
    let (retry_after, answer) = match answered {
        Ok(answer) => (answer.retry_after.map(u32::from), answer),
        Err(error) => {
            let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (error.retry_after, Answer::bytes(code, error.status().to_string().into()))
        }
    };
    let mut response = Response::new(answer.body);
    *response.status_mut() = answer.code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
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

pub(super) fn header<B>(request: &Request<B>, name: hyper::header::HeaderName) -> Option<&str> {
    request.headers().get(name).and_then(|value| value.to_str().ok())
}

async fn handle<B>(context: &Context, request: Request<B>) -> Result<Answer, ApiError>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send,
{
    if context.shared.look(|state| state.faults.refusal) == Some(Refusal::Unavailable) {
        return Err(ApiError::unavailable());
    }
    let path = request.uri().path().to_owned();
    let found = route(&path);
    // Upstream tells these two to everybody as well.
    let public = matches!(found, Some(Route::Health | Route::Version));
    if let Some(tokens) = context.tokens.as_ref().filter(|_| !public)
        && !tokens.allow(header(&request, AUTHORIZATION))
    {
        return Err(ApiError::unauthorized());
    }
    let found = found.ok_or_else(ApiError::no_route)?;
    let form = negotiate::accept(header(&request, ACCEPT))?;
    let path = match found {
        Route::Objects(path) => path,
        Route::Scale(path) => return scale(context, &path, request).await,
        Route::Kubelet { pod, asked } => return Err(ApiError::no_kubelet(&pod, asked)),
        _ if request.method() != Method::GET => return Err(ApiError::method_not_allowed()),
        Route::Health => return Ok(Answer::bytes(StatusCode::OK, Bytes::from_static(b"ok"))),
        about => return kubectl::about(&about).map(|value| Answer::json(&value)).ok_or_else(ApiError::no_route),
    };
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default())?;
    let view = View { resource: path.resource, form, include_object: query.include_object.clone() };
    if request.method() == Method::GET {
        read(context, &path, query, view).await
    } else {
        change(context, &path, &query, &view, request).await
    }
}

/// How many pods an object asks for, or is to ask for.
async fn scale<B>(context: &Context, path: &Path, request: Request<B>) -> Result<Answer, ApiError>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send,
{
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default())?;
    let name = path.name.clone().unwrap_or_default();
    let (head, body) = request.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let shared = &context.shared;
    let shown = match head.method {
        Method::GET => shared.look(|state| scale::of(state, path, &name))?,
        Method::PUT => {
            negotiate::content(content_type)?;
            let value = parse(&collect(body).await?)?;
            shared.with(|state| scale::update(state, path, &query, &name, &value))?
        }
        Method::PATCH => {
            let patch = Patch::parse(content_type, &collect(body).await?)?;
            shared.with(|state| scale::patch(state, path, &query, &name, &patch))?
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    Ok(Answer::json(&shown))
}

async fn read(context: &Context, path: &Path, query: Query, view: View) -> Result<Answer, ApiError> {
    let shared = &context.shared;
    if let Some(answer) = hostile(context, path, &query) {
        return answer;
    }
    let Some(name) = &path.name else {
        if query.watch {
            let events = watch::watch(shared, view, path.namespace.clone(), query, context.times).await?;
            let body = StreamBody::new(events.map_ok(Frame::data)).boxed_unsync();
            return Ok(Answer { code: StatusCode::OK, body, retry_after: None, warnings: Vec::new() });
        }
        let body = list::list(shared, &view, path.namespace.as_deref(), &query).await?;
        return Ok(Answer::bytes(StatusCode::OK, body));
    };
    if let Wanted::NotOlderThan(version) | Wanted::Exact(version) = query.version {
        list::reach(shared, version).await?;
    }
    let key = crate::objects::ObjectKey { namespace: path.namespace.clone().unwrap_or_default(), name: name.clone() };
    let record = shared.read(|store| store.record(path.resource.kind, &key).cloned());
    let record = record.ok_or_else(|| ApiError::not_found(path.resource, name))?;
    Ok(Answer::bytes(StatusCode::OK, view.single(&record, true)))
}

/// The answer of a server that is to misbehave so.
pub(super) fn hostile(context: &Context, path: &Path, query: &Query) -> Option<Result<Answer, ApiError>> {
    let kind = path.resource.kind;
    if path.name.is_some() || !matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::Node) {
        return None;
    }
    let hostile = context.shared.look(|state| state.faults.hostile)?;
    if hostile.to(query.watch)? == Given::Gone {
        // A server without streaming lists (KEP-3157) says so, and clients list as ever.
        let streamed = query.initial_events.is_some();
        let (code, reason, said) = match streamed {
            true => (422, "Invalid", "sendInitialEvents is forbidden: the feature WatchList is off"),
            false => (410, "Expired", "too old resource version"),
        };
        return Some(Err(ApiError::new(code, reason, said.to_owned())));
    }
    context.shared.with(|state| state.faults.hostile_answers += 1);
    let shared = context.shared.clone();
    let body = hostile.body(kind, move |bytes| shared.with(|state| state.faults.hostile_bytes += bytes));
    let body = StreamBody::new(body.map_ok(Frame::data)).boxed_unsync();
    let retry_after = hostile.retry_after();
    Some(Ok(Answer { code: hostile.code(), body, retry_after, warnings: Vec::new() }))
}

async fn change<B>(
    context: &Context,
    path: &Path,
    query: &Query,
    view: &View,
    request: Request<B>,
) -> Result<Answer, ApiError>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send,
{
    let (head, body) = request.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let body = collect(body).await?;
    let shared = &context.shared;
    let written = match (&head.method, &path.name, path.status) {
        (&Method::POST, None, false) => {
            if path.namespace.is_none() && path.resource.kind.namespaced() {
                return Err(ApiError::method_not_allowed());
            }
            negotiate::content(content_type)?;
            let value = parse(&body)?;
            let written = shared.with(|state| write::create(state, path, query, value))?;
            return Ok(answer_with(view, StatusCode::CREATED, written));
        }
        (&Method::PUT, Some(name), _) => {
            negotiate::content(content_type)?;
            let value = parse(&body)?;
            shared.with(|state| write::update(state, path, query, name, value))?
        }
        (&Method::PATCH, Some(name), _) => {
            let patch = Patch::parse(content_type, &body)?;
            shared.with(|state| write::patch(state, path, query, name, &patch))?
        }
        (&Method::DELETE, Some(name), false) => {
            negotiate::content(content_type)?;
            let options = DeleteOptions::parse(&body)?;
            let written = shared.with(|state| write::delete(state, path, query, name, &options))?;
            let answer = Answer::json(&write::deleted(path, &written.record));
            return Ok(Answer { warnings: written.warnings, ..answer });
        }
        (&Method::DELETE, None, false) => {
            let deleted = shared.with(|state| write::delete_collection(state, path, query))?;
            let metadata = json!({"resourceVersion": shared.version().to_string()});
            let body = view.list(deleted.iter().map(Arc::as_ref), metadata);
            return Ok(Answer::bytes(StatusCode::OK, body));
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(answer_with(view, code, written))
}

fn answer_with(view: &View, code: StatusCode, written: Written) -> Answer {
    // People's tables are for reading; what was written comes back as itself unless only metadata was asked for.
    let answer = Answer::bytes(code, view.single(&written.record, view.form == Form::Table));
    Answer { warnings: written.warnings, ..answer }
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("the body is no JSON object: {error}")))
}

pub(super) async fn collect<B>(body: B) -> Result<Bytes, ApiError>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send,
{
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
