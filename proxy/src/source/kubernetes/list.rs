//! Lists objects page by page. Objects are removed only after the last page.

use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::object::ObjectKind;
use super::super::problem::quote;
use super::WatchUpdate;
use super::answer::{LARGEST_PAGE, ask, body};
use super::decode::decode;
use super::reflect::{Failure, Reflector, report};
use super::seen::SeenObjects;

/// The number of objects decoded at once: decoded ones are large.
const PIECE: usize = 50;
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
struct ListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

impl Reflector {
    /// Reports all objects; returns the list's version.
    pub(super) async fn list(
        &mut self,
        client: &Client,
        seen: &mut SeenObjects,
        updates: &mpsc::Sender<WatchUpdate>,
    ) -> Result<String, Failure> {
        seen.list_begins();
        let mut page = ListParams::default().limit(self.page);
        (page.label_selector, page.field_selector) = (self.labels.clone(), self.fields.clone());
        for _ in 0..PAGES {
            let request = self.path.list(&page).map_err(kube::Error::BuildRequest)?;
            let (patience, continued) = (self.patience, page.continue_token.is_some());
            let answer = async { body(ask(client, request, patience).await?, LARGEST_PAGE).await };
            let text = match timeout(patience, answer).await.unwrap_or(Err(Failure::Late(patience))) {
                // The continue token has expired.
                Err(Failure::Refused { status, .. }) if continued && status.code == 410 => {
                    return Err(Failure::Expired(status.message));
                }
                Err(Failure::TooLarge(_)) if self.page > 1 => {
                    self.page = (self.page / 4).max(1);
                    return Err(Failure::Smaller);
                }
                Err(Failure::Late(_)) => {
                    self.patience = (patience * 2).min(self.timing.list);
                    return Err(Failure::Late(patience));
                }
                answer => answer?,
            };
            let (mut items, meta) = page_of(self.kind, &text)?;
            if self.skips_list() {
                items.clear();
            }
            for piece in items.chunks(PIECE) {
                let decoded: Vec<_> = piece.iter().map(|item| decode(self.kind, item)).collect();
                if decoded.iter().any(|object| object.key.name.is_empty()) {
                    // This may be any known object, so no removal would be certain.
                    return Err(Failure::Nonsense(format!("a {} without a name in a list", self.kind.name())));
                }
                let changes = decoded.into_iter().filter_map(|object| seen.upsert(object)).collect();
                report(self.kind, updates, changes, None).await?;
            }
            match meta.continue_token.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => {
                    let version = meta.resource_version.filter(|v| !v.is_empty());
                    return version.ok_or_else(|| Failure::Nonsense("a list without a version".to_owned()));
                }
            }
        }
        Err(Failure::TooLarge(format!("a list of more than {PAGES} pages")))
    }
}

fn page_of(kind: ObjectKind, text: &[u8]) -> Result<(Vec<&RawValue>, ListMeta), Failure> {
    let list: List<'_> = serde_json::from_slice(text).map_err(|error| Failure::Nonsense(error.to_string()))?;
    let (api_version, list_kind) = kind.list_type();
    let is = (list.api_version.as_deref().unwrap_or_default(), list.kind.as_deref().unwrap_or_default());
    let asked = format!("where a {list_kind} of {api_version} was asked for");
    if is.1 == "Status" {
        let said = list.message.as_deref().map(quote).unwrap_or_default();
        return Err(Failure::Nonsense(format!("a Status {said} {asked}")));
    }
    if is != (api_version, list_kind) {
        return Err(Failure::Nonsense(format!("a {} of {} {asked}", quote(is.1), quote(is.0))));
    }
    let items = list.items.ok_or_else(|| Failure::Nonsense(format!("no items {asked}")))?;
    Ok((items, list.metadata))
}

/// Returns whether the page was valid.
pub(super) fn fuzz(kind: ObjectKind, bytes: &[u8], seen: &mut SeenObjects) -> bool {
    let Ok((items, _)) = page_of(kind, bytes) else { return false };
    seen.list_begins();
    items.into_iter().for_each(|item| drop(seen.upsert(decode(kind, item))));
    true
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
