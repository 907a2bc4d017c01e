use super::error::ApiError;
use super::hostile::HostileReply;
use super::query::{Query, watch_list_disabled};
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
        return Some(Err(match query.initial_events {
            Some(_) => watch_list_disabled(),
            None => ApiError::new(410, "Expired", "too old resource version"),
        }));
    }
    shared.update(|state| state.faults.hostile_answers += 1);
    let counter = shared.clone();
    let body = hostile.body(kind, move |bytes| counter.update(|state| state.faults.hostile_bytes += bytes));
    let response = ApiResponse::stream(hostile.code(), body);
    Some(Ok(ApiResponse { retry_after: hostile.retry_after(), ..response }))
}
