//! Lists objects page by page. Objects are removed only after the last page.

use futures_util::FutureExt;
use hyper::Method;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::Change;
use super::super::object::ObjectKind;
use super::super::problem::quote;
use super::WatchUpdate;
use super::answer::{self, AnswerBody, LARGEST_PAGE, ask};
use super::connector::ApiConnection;
use super::decode::{RawObject, decode};
use super::media_type::Encoding;
use super::protobuf::{EncodedObject, ListReader};
use super::reflect::{Failure, Reflector, report};
use super::seen::SeenObjects;
use super::watching::is_expired;

/// The number of objects reported at once: decoded ones are large.
const PIECE: usize = 50;
/// Objects per page, as in client-go.
const PAGE: u32 = 500;
/// The most pages: a server may return empty ones forever. Full pages hold [`OBJECTS`](super::seen::OBJECTS).
const PAGES: usize = 2_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    pub resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
}

/// Takes the objects of a list.
struct ListSink<'a> {
    kind: ObjectKind,
    seen: &'a mut SeenObjects,
    updates: &'a mpsc::Sender<WatchUpdate>,
    changes: Vec<Change>,
    skips_objects: bool,
}

impl ListSink<'_> {
    async fn take(&mut self, object: &RawObject<'_>) -> Result<(), Failure> {
        if self.skips_objects {
            return Ok(());
        }
        let decoded = decode(self.kind, object);
        if decoded.key.name.is_empty() {
            // This may be any known object, so no removal would be certain.
            return Err(Failure::Nonsense(format!("a {} without a name in a list", self.kind.name())));
        }
        self.changes.extend(self.seen.upsert(decoded));
        if self.changes.len() < PIECE { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        report(self.kind, self.updates, std::mem::take(&mut self.changes), None).await
    }
}

impl Reflector {
    /// Reports all objects; returns the list's version.
    pub(super) async fn list(
        &mut self,
        connection: &ApiConnection,
        seen: &mut SeenObjects,
        updates: &mpsc::Sender<WatchUpdate>,
    ) -> Result<String, Failure> {
        seen.list_begins();
        let (kind, skips_objects) = (self.kind, self.skips_list());
        let mut sink = ListSink { kind, seen, updates, changes: Vec::new(), skips_objects };
        let mut page = ListParams { limit: self.page(connection), ..ListParams::default() };
        (page.label_selector, page.field_selector) = (self.labels.clone(), self.fields.clone());
        // A version and a limit together would ask for exactly this version.
        page.resource_version = self.least_version.clone().filter(|_| page.limit.is_none());
        for _ in 0..PAGES {
            let read = self.read_page(connection, &page, &mut sink).await;
            // Objects that arrived before a failure are valid.
            sink.flush().await?;
            let metadata = read.map_err(|failure| self.after(failure, &page))?;
            match metadata.continue_token.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => {
                    let version = metadata.resource_version.filter(|v| !v.is_empty());
                    return version.ok_or_else(|| Failure::Nonsense("a list without a version".to_owned()));
                }
            }
        }
        Err(Failure::TooLarge(format!("a list of more than {PAGES} pages")))
    }

    /// Lists one object at most; returns the list's version.
    pub(super) async fn list_one(
        &self,
        connection: &ApiConnection,
        seen: &mut SeenObjects,
        updates: &mpsc::Sender<WatchUpdate>,
    ) -> Result<String, Failure> {
        let mut page = ListParams { limit: Some(1), ..ListParams::default() };
        (page.label_selector, page.field_selector) = (self.labels.clone(), self.fields.clone());
        let mut sink = ListSink { kind: self.kind, seen, updates, changes: Vec::new(), skips_objects: false };
        let metadata = self.read_page(connection, &page, &mut sink).await?;
        sink.flush().await?;
        Ok(metadata.resource_version.unwrap_or_default())
    }

    /// Returns the limit of a page. Without one, API servers answer from their caches and not from etcd. Lists in JSON are decoded as
    /// a whole, so they have one.
    fn page(&self, connection: &ApiConnection) -> Option<u32> {
        let whole = self.page.is_none() && connection.accepted.first() == Encoding::Protobuf;
        (!whole).then(|| self.page.unwrap_or(PAGE))
    }

    async fn read_page(
        &self,
        connection: &ApiConnection,
        page: &ListParams,
        sink: &mut ListSink<'_>,
    ) -> Result<ListMeta, Failure> {
        let request = self.path.list(page).map_err(kube::Error::BuildRequest)?;
        connection.admit(&Method::GET).await;
        let begun = Instant::now();
        let response = ask(connection, request, self.patience).await?;
        let encoding = Encoding::of(response.headers());
        let body = AnswerBody::new(response, LARGEST_PAGE, Some(self.patience.saturating_sub(begun.elapsed())));
        match encoding {
            Encoding::Json => {
                let text = body.whole().await?;
                let (items, metadata) = page_of(self.kind, &text)?;
                for item in items {
                    sink.take(&RawObject::Json(item)).await?;
                }
                Ok(metadata)
            }
            Encoding::Protobuf => {
                let mut list = ListReader::open(self.kind, body).await?;
                while let Some(item) = list.next().await? {
                    sink.take(&RawObject::Protobuf(EncodedObject::item(item))).await?;
                }
                list.finish().await
            }
        }
    }

    /// Adapts the next list to the failure of a page.
    fn after(&mut self, failure: Failure, page: &ListParams) -> Failure {
        match failure {
            // The continue token has expired.
            Failure::Refused { status, .. } if page.continue_token.is_some() && status.code == 410 => {
                Failure::Expired(status.message)
            }
            // The server's versions start anew, as after a restored backup.
            Failure::Refused { ref status, .. } if page.resource_version.is_some() && is_expired(status) => {
                self.least_version = None;
                Failure::Adapted
            }
            Failure::TooLarge(_) if page.limit != Some(1) => {
                self.page = Some(page.limit.map_or(PAGE, |limit| (limit / 4).max(1)));
                Failure::Adapted
            }
            Failure::Late(_) => {
                let patience = self.patience;
                self.patience = (patience * 2).min(self.timing.list);
                Failure::Late(patience)
            }
            failure => failure,
        }
    }
}

fn page_of(kind: ObjectKind, text: &[u8]) -> Result<(Vec<&RawValue>, ListMeta), Failure> {
    let list: List<'_> = serde_json::from_slice(text).map_err(|error| Failure::Nonsense(error.to_string()))?;
    let is = (list.api_version.as_deref().unwrap_or_default(), list.kind.as_deref().unwrap_or_default());
    expect_list(kind, is, list.message.as_deref())?;
    let items = list.items.ok_or_else(|| Failure::Nonsense(format!("no items {}", asked_for(kind))))?;
    Ok((items, list.metadata))
}

/// Fails unless an answer with this API version and kind is a list of the kind. `said` is the message of a Status.
pub(super) fn expect_list(kind: ObjectKind, is: (&str, &str), said: Option<&str>) -> Result<(), Failure> {
    let asked = asked_for(kind);
    if is.1 == "Status" {
        let said = said.map(quote).unwrap_or_default();
        return Err(Failure::Nonsense(format!("a Status {said} {asked}")));
    }
    if is != kind.list_type() {
        return Err(Failure::Nonsense(format!("a {} of {} {asked}", quote(is.1), quote(is.0))));
    }
    Ok(())
}

fn asked_for(kind: ObjectKind) -> String {
    let (api_version, list_kind) = kind.list_type();
    format!("where a {list_kind} of {api_version} was asked for")
}

/// Returns whether the page was valid.
pub(super) fn fuzz(kind: ObjectKind, encoding: Encoding, bytes: &[u8], seen: &mut SeenObjects) -> bool {
    seen.list_begins();
    if encoding == Encoding::Json {
        let Ok((items, _)) = page_of(kind, bytes) else { return false };
        items.into_iter().for_each(|item| drop(seen.upsert(decode(kind, &RawObject::Json(item)))));
        return true;
    }
    let body = AnswerBody::new(answer::fuzz(encoding, bytes), LARGEST_PAGE, None);
    let read = async {
        let mut list = ListReader::open(kind, body).await?;
        while let Some(item) = list.next().await? {
            drop(seen.upsert(decode(kind, &RawObject::Protobuf(EncodedObject::item(item)))));
        }
        list.finish().await
    };
    read.now_or_never().is_some_and(|read| read.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_of_the_kind_is_accepted() {
        let slices = r#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {"resourceVersion": "7"}, "items": []}"#;
        assert!(page_of(ObjectKind::EndpointSlice, slices.as_bytes()).is_ok());
        let asked = "where a ServiceList of v1 was asked for";
        for (text, fault) in [
            (slices, format!("a \"EndpointSliceList\" of \"discovery.k8s.io/v1\" {asked}")),
            (
                r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "etcd", "metadata": {"resourceVersion": "7"}}"#,
                format!("a Status \"etcd\" {asked}"),
            ),
            (
                r#"{"apiVersion": "v1", "kind": "ServiceList", "metadata": {"resourceVersion": "7"}}"#,
                format!("no items {asked}"),
            ),
            (r#"{"apiVersion": "v1", "kind": "ServiceList", "items": null}"#, format!("no items {asked}")),
            (
                r#"{"apiVersion": "v2", "kind": "ServiceList", "items": []}"#,
                format!("a \"ServiceList\" of \"v2\" {asked}"),
            ),
            (r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#, format!("a \"\" of \"\" {asked}")),
        ] {
            match page_of(ObjectKind::Service, text.as_bytes()) {
                Err(Failure::Nonsense(updates)) => assert_eq!(updates, fault),
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in ["", "[]", "null", "{", r#"{"items": {}}"#, r#"{"kind": 1}"#, "<html>"] {
            assert!(matches!(page_of(ObjectKind::Service, text.as_bytes()), Err(Failure::Nonsense(_))), "{text}");
        }
    }
}
