//! Answers one request with the lab's own objects.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode, Version};
use serde_json::json;

use super::compress::accepts_gzip;
use super::context::ServerContext;
use super::encoding::Encoding;
use super::error::ApiError;
use super::hostile_response::hostile_response;
use super::negotiate::{self, Accepted, ResponseForm};
use super::patch::ObjectPatch;
use super::query::{Query, VersionMatch};
use super::resources::{ApiRoute, ObjectPath, route};
use super::response::{ApiResponse, ResponseBody, collect, header, respond};
use super::view::ResponseView;
use super::write::{self, DeleteOptions, WriteRequest, WriteResult};
use super::{kubectl, list, scale, watch};
use crate::objects::{ObjectKind, Store};

const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

pub(super) async fn answer(context: &ServerContext, request: Request<Incoming>) -> Response<ResponseBody> {
    let path = request.uri().path().to_owned();
    let found = route(&path);
    // The messages of discovery have no tables.
    let offered = match &found {
        Some(ApiRoute::Objects(_) | ApiRoute::Scale(_) | ApiRoute::Eviction(_)) => &Encoding::ALL[..],
        _ => &[Encoding::Json],
    };
    let accepted = negotiate::accept(header(&request, ACCEPT), offered);
    let encoding = accepted.as_ref().map_or(Encoding::Json, |accepted| accepted.encoding);
    let gzip = accepts_gzip(header(&request, ACCEPT_ENCODING));
    respond(handle(context, found, accepted, request).await, encoding, gzip)
}

async fn handle(
    context: &ServerContext,
    found: Option<ApiRoute<'_>>,
    accepted: Result<Accepted, ApiError>,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiError> {
    // As Go's server does (RFC 9112, 3.2); HTTP/2 has `:authority`.
    if request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST) {
        return Err(ApiError::bad_request("missing required Host header"));
    }
    context.check_available()?;
    // kube-apiserver serves health and version without authentication.
    if !matches!(found, Some(ApiRoute::Health | ApiRoute::Version)) {
        context.check_token(&request)?;
    }
    let found = found.ok_or_else(ApiError::unknown_path)?;
    if found == ApiRoute::OpenApiV2 && request.method() == Method::GET {
        // No bytes are a document without schemas.
        return Ok(ApiResponse { media: OPENAPI_V2, ..ApiResponse::bytes(StatusCode::OK, Bytes::new()) });
    }
    let Accepted { form, encoding } = accepted?;
    let path = match found {
        ApiRoute::Objects(path) => path,
        ApiRoute::Scale(path) => return scale(context, &path, encoding, request).await,
        ApiRoute::Eviction(path) => return evict(context, &path, encoding, request).await,
        ApiRoute::Kubelet { pod, asked } => return Err(ApiError::no_kubelet(&pod, asked)),
        _ if request.method() != Method::GET => return Err(ApiError::method_not_allowed()),
        ApiRoute::Health => return Ok(ApiResponse::bytes(StatusCode::OK, Bytes::from_static(b"ok"))),
        about => {
            return kubectl::api_document(&about)
                .map(|value| ApiResponse::object(Encoding::Json, &value))
                .ok_or_else(ApiError::unknown_path);
        }
    };
    if let Some(why) = path.resource.read_only.filter(|_| request.method() != Method::GET) {
        return Err(ApiError::read_only(why));
    }
    if path.resource.kind == ObjectKind::Endpoints {
        context.shared.write(Store::serve_endpoints);
    }
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default())?;
    let view = ResponseView { resource: path.resource, form, encoding, include_object: query.include_object.clone() };
    if request.method() == Method::GET {
        read(context, &path, query, view).await
    } else {
        change(context, &path, &query, &view, request).await
    }
}

async fn scale(
    context: &ServerContext,
    path: &ObjectPath,
    encoding: Encoding,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiError> {
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default())?;
    let (head, body) = request.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let shared = &context.shared;
    let shown = match head.method {
        Method::GET => shared.inspect(|state| scale::of(state, path))?,
        Method::PUT => {
            let value =
                negotiate::content(content_type)?.decode(&collect(body).await?).map_err(ApiError::bad_request)?;
            shared.update(|state| WriteRequest { state, path, query: &query }.update_scale(&value))?
        }
        Method::PATCH => {
            let patch = ObjectPatch::parse(content_type, &collect(body).await?)?;
            shared.update(|state| WriteRequest { state, path, query: &query }.patch_scale(&patch))?
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    Ok(ApiResponse::object(encoding, &shown))
}

async fn evict(
    context: &ServerContext,
    path: &ObjectPath,
    encoding: Encoding,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiError> {
    if request.method() != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let query = Query::parse(path.resource.kind, request.uri().query().unwrap_or_default())?;
    let sent = negotiate::content(header(&request, CONTENT_TYPE))?;
    let eviction = sent.decode(&collect(request.into_body()).await?).map_err(ApiError::bad_request)?;
    let status = context.shared.update(|state| WriteRequest { state, path, query: &query }.evict(&eviction))?;
    Ok(ApiResponse::encoded(StatusCode::CREATED, encoding, encoding.encode(&status)))
}

async fn read(
    context: &ServerContext,
    path: &ObjectPath,
    query: Query,
    view: ResponseView,
) -> Result<ApiResponse, ApiError> {
    let shared = &context.shared;
    if let Some(response) = hostile_response(shared, path, &query) {
        return response;
    }
    if path.name.is_none() {
        if query.watch {
            context.check_watch_list(&query)?;
            let media = view.encoding.watch_media();
            let events = watch::watch(shared, view, path.namespace.clone(), query, context.times).await?;
            return Ok(ApiResponse { media, ..ApiResponse::stream(StatusCode::OK, events) });
        }
        let body = list::list(shared, &view, path.namespace.as_deref(), &query).await?;
        return Ok(ApiResponse::encoded(StatusCode::OK, view.encoding, body));
    }
    if let VersionMatch::NotOlderThan(version) | VersionMatch::Exact(version) = query.version {
        list::wait_for_version(shared, version).await?;
    }
    let record = shared.inspect(|state| write::existing_object(state, path))?;
    Ok(ApiResponse::encoded(StatusCode::OK, view.encoding, view.single(&record, true)))
}

async fn change(
    context: &ServerContext,
    path: &ObjectPath,
    query: &Query,
    view: &ResponseView,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiError> {
    let (head, body) = request.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let body = collect(body).await?;
    let shared = &context.shared;
    let written = match (&head.method, &path.name, path.status) {
        (&Method::POST, None, false) => {
            if path.namespace.is_none() && path.resource.kind.namespaced() {
                return Err(ApiError::method_not_allowed());
            }
            let value = negotiate::content(content_type)?.decode(&body).map_err(ApiError::bad_request)?;
            shared.update(|state| WriteRequest { state, path, query }.create(value))?
        }
        (&Method::PUT, Some(_), _) => {
            let value = negotiate::content(content_type)?.decode(&body).map_err(ApiError::bad_request)?;
            shared.update(|state| WriteRequest { state, path, query }.update(value))?
        }
        (&Method::PATCH, Some(_), _) => {
            let patch = ObjectPatch::parse(content_type, &body)?;
            shared.update(|state| WriteRequest { state, path, query }.patch(&patch))?
        }
        (&Method::DELETE, Some(_), false) => {
            let options = DeleteOptions::parse(negotiate::content(content_type)?, &body)?;
            let written = shared.update(|state| WriteRequest { state, path, query }.delete(&options))?;
            let response = ApiResponse::object(view.encoding, &write::deletion_response(path, &written.record));
            return Ok(ApiResponse { warnings: written.warnings, ..response });
        }
        (&Method::DELETE, None, false) => {
            let deleted = shared.update(|state| WriteRequest { state, path, query }.delete_collection())?;
            let metadata = json!({"resourceVersion": shared.version().to_string()});
            let body = view.list(deleted.iter().map(AsRef::as_ref), metadata);
            return Ok(ApiResponse::encoded(StatusCode::OK, view.encoding, body));
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    let WriteResult { record, created, warnings } = written;
    let code = if created { StatusCode::CREATED } else { StatusCode::OK };
    let response = ApiResponse::encoded(code, view.encoding, view.single(&record, view.form == ResponseForm::Table));
    Ok(ApiResponse { warnings, ..response })
}
