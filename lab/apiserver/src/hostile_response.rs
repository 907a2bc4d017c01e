use super::error::ApiError;
use super::hostile::HostileReply;
use super::query::Query;
use super::resources::ObjectPath;
use super::response::ApiResponse;
use super::shared::SharedStore;
use crate::objects::ObjectKind;

pub(super) fn hostile_response(
    shared: &SharedStore,
    path: &ObjectPath,
    query: &Query,
) -> Option<Result<ApiResponse, ApiError>> {
    let kind = path.resource.kind;
    if path.name.is_some() || !matches!(kind, ObjectKind::Service | ObjectKind::EndpointSlice | ObjectKind::Node) {
        return None;
    }
    let hostile = shared.inspect(|state| state.faults.hostile)?;
    if hostile.reply(query.watch)? == HostileReply::Gone {
        // A server without streaming lists (KEP-3157) answers 422, and clients fall back to plain lists.
        let (code, reason, message) = match query.initial_events.is_some() {
            true => (422, "Invalid", "sendInitialEvents is forbidden: the feature WatchList is off"),
            false => (410, "Expired", "too old resource version"),
        };
        return Some(Err(ApiError::new(code, reason, message)));
    }
    shared.update(|state| state.faults.hostile_answers += 1);
    let counter = shared.clone();
    let body = hostile.body(kind, move |bytes| counter.update(|state| state.faults.hostile_bytes += bytes));
    let response = ApiResponse::stream(hostile.code(), body);
    Some(Ok(ApiResponse { retry_after: hostile.retry_after(), ..response }))
}
