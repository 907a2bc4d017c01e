use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::change_log::Expired;
use super::error::ApiError;
use super::query::{ContinueToken, Query, VersionMatch};
use super::shared::{ServerState, SharedStore};
use super::view::ResponseView;
use crate::objects::{ObjectKind, Record};

/// How long a list waits for a future version, as in kube-apiserver's watch cache.
const FUTURE: Duration = Duration::from_secs(3);

pub(super) struct ListPage {
    pub(super) version: u64,
    pub(super) records: Vec<Arc<Record>>,
    /// The start of the next page, and the number of remaining objects.
    next: Option<(ContinueToken, usize)>,
}

impl ListPage {
    /// `remainingItemCount` is known only without a selector.
    pub(super) fn metadata(&self, query: &Query) -> Value {
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if let Some((next, remaining)) = &self.next {
            metadata["continue"] = json!(next.token());
            if query.selector.is_empty() {
                metadata["remainingItemCount"] = json!(remaining);
            }
        }
        metadata
    }
}

pub(super) async fn list(
    shared: &SharedStore,
    view: &ResponseView,
    namespace: Option<&str>,
    query: &Query,
) -> Result<Bytes, ApiError> {
    let page = page(shared, view.resource.kind, namespace, query).await?;
    Ok(view.list(page.records.iter().map(Arc::as_ref), page.metadata(query)))
}

pub(super) async fn wait_for_version(shared: &SharedStore, version: u64) -> Result<(), ApiError> {
    let mut ticks = shared.ticks();
    let reached = async {
        while shared.version() < version {
            if ticks.changed().await.is_err() {
                break;
            }
        }
    };
    timeout(FUTURE, reached).await.map_err(|_| ApiError::too_large_version(version, shared.version()))
}

pub(super) async fn page(
    shared: &SharedStore,
    kind: ObjectKind,
    namespace: Option<&str>,
    query: &Query,
) -> Result<ListPage, ApiError> {
    let exact = match (&query.continued, query.version) {
        (Some(token), _) => Some(token.rv),
        (None, VersionMatch::Exact(version)) => Some(version),
        (None, _) => None,
    };
    if let VersionMatch::Exact(version) | VersionMatch::NotOlderThan(version) = query.version {
        wait_for_version(shared, version).await?;
    }
    let (version, mut records) = shared.update(|state| snapshot(state, kind, exact, query))?;
    records.retain(|record| {
        namespace.is_none_or(|namespace| record.key.namespace == namespace) && query.selector.matches(record)
    });
    if let Some(token) = &query.continued {
        let after = token.after();
        records.retain(|record| record.key > after);
    }
    // The watch cache of kube-apiserver ignores the limit of a list with `resourceVersion=0`.
    let limit = query.limit.filter(|_| query.version != VersionMatch::Any || query.continued.is_some());
    let next = limit.filter(|limit| records.len() > *limit).and_then(|limit| {
        let last = records.get(limit.checked_sub(1)?)?;
        let next = ContinueToken { rv: version, namespace: last.key.namespace.clone(), name: last.key.name.clone() };
        let remaining = records.len() - limit;
        records.truncate(limit);
        Some((next, remaining))
    });
    Ok(ListPage { version, records, next })
}

fn snapshot(
    state: &mut ServerState,
    kind: ObjectKind,
    exact: Option<u64>,
    query: &Query,
) -> Result<(u64, Vec<Arc<Record>>), ApiError> {
    let current = state.store.version();
    let Some(version) = exact else { return Ok((current, state.store.records(kind).cloned().collect())) };
    let asked = if state.faults.take_expiry() {
        Err(Expired { oldest: current })
    } else {
        state.log.snapshot(&state.store, kind, version)
    };
    match asked {
        Ok(records) => Ok((version, records)),
        Err(expired) => Err(expired_error(version, expired, current, query)),
    }
}

/// Returns 410; for a continued list with a token to continue with newer objects.
fn expired_error(version: u64, expired: Expired, current: u64, query: &Query) -> ApiError {
    let mut error = ApiError::expired(version, expired);
    if let Some(token) = &query.continued {
        error.message =
            "the continue token has expired: start over without it, or go on with the one given here, at the \
                         price of a list that mixes two versions"
                .to_owned();
        error.continue_token = Some(ContinueToken { rv: current, ..token.clone() }.token());
    }
    error
}
