//! Mirrors the store's objects to the API server; writes only changed objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::TryStreamExt;
use futures_util::stream::{self, StreamExt};
use hyper::Method;
use serde_json::{Value, json};
use svclab_apiserver::objects::{ObjectKey, ObjectKind, Record, Store};

use crate::api::{ApiAnswer, ApiClient};
use crate::wire::{self, WireObject};
use crate::{ControlPlaneError, slice_comparison};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// Concurrent writes: there may be hundreds of pods, and their order does not matter.
const PODS_AT_ONCE: usize = 8;
/// The finalizer of objects that must stay visible with a deletion timestamp.
const HELD: &str = "svclab.invalid/held";
/// Attempts of a write that conflicts with a controller.
const TRIES: usize = 5;

const KINDS: [ObjectKind; 6] = [
    ObjectKind::Namespace,
    ObjectKind::Node,
    ObjectKind::ServiceCidr,
    ObjectKind::Service,
    ObjectKind::Pod,
    ObjectKind::EndpointSlice,
];

struct Mirrored {
    record: Arc<Record>,
    /// Its version at the API server after the last write.
    version: u64,
}

#[derive(Default)]
pub(crate) struct Mirror {
    objects: BTreeMap<(ObjectKind, ObjectKey), Mirrored>,
}

impl Mirror {
    /// `controllers`: kube-controller-manager makes the EndpointSlices.
    pub(crate) async fn write(
        &mut self,
        api: &ApiClient,
        store: &Store,
        controllers: bool,
    ) -> Result<(), ControlPlaneError> {
        let wanted = |record: &&Arc<Record>| {
            !(controllers && record.kind == ObjectKind::EndpointSlice && store.is_controllers_slice(&record.key))
        };
        let records: BTreeMap<(ObjectKind, ObjectKey), Arc<Record>> = KINDS
            .iter()
            .flat_map(|kind| store.records(*kind))
            .filter(wanted)
            .map(|record| ((record.kind, record.key.clone()), Arc::clone(record)))
            .collect();
        // Deletions first: a new object may reuse an address.
        let gone: Vec<_> = self.objects.keys().filter(|key| !records.contains_key(key)).cloned().collect();
        for key in gone {
            remove(api, key.0, &key.1).await?;
            self.objects.remove(&key);
        }
        let is_new = |record: &Arc<Record>| {
            let before = self.objects.get(&(record.kind, record.key.clone()));
            before.is_none_or(|before| before.record.json != record.json)
        };
        let mut changed: Vec<Arc<Record>> = records.into_values().filter(is_new).collect();
        changed.sort_by_key(|record| (rank(record.kind), record.version));
        for batch in changed.chunk_by(|one, next| one.kind == ObjectKind::Pod && next.kind == ObjectKind::Pod) {
            let writes = stream::iter(batch).map(async |record| {
                let before = self.objects.get(&(record.kind, record.key.clone())).map(|before| &before.record);
                let version = put(api, before, record).await?;
                Ok::<_, ControlPlaneError>((Arc::clone(record), version))
            });
            let written: Vec<_> = writes.buffer_unordered(PODS_AT_ONCE).try_collect().await?;
            for (record, version) in written {
                let key = (record.kind, record.key.clone());
                self.objects.insert(key, Mirrored { record, version });
            }
        }
        Ok(())
    }

    /// The written objects of a kind with their versions at the API server.
    pub(crate) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = (&Record, u64)> {
        let of_kind = self.objects.values().filter(move |one| one.record.kind == kind);
        of_kind.map(|one| (one.record.as_ref(), one.version))
    }

    pub(crate) fn has(&self, kind: ObjectKind, key: &ObjectKey) -> bool {
        self.objects.contains_key(&(kind, key.clone()))
    }
}

/// Containing objects first; within a rank, the store's order.
fn rank(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::Namespace => 0,
        ObjectKind::Node | ObjectKind::ServiceCidr => 1,
        _ => 2,
    }
}

/// Returns the object's version.
async fn put(api: &ApiClient, before: Option<&Arc<Record>>, record: &Record) -> Result<u64, ControlPlaneError> {
    let new = wire::of(record);
    let before = before.map(|before| wire::of(before));
    let (kind, key) = (record.kind, &record.key);
    let Some(before) = before else { return create(api, kind, key, &new).await };
    if kind == ObjectKind::Pod && before.main["spec"] != new.main["spec"] {
        // A pod's spec is immutable: this is another pod with the same name.
        remove(api, kind, key).await?;
        return create(api, kind, key, &new).await;
    }
    change(api, kind, key, &before, &new).await
}

async fn create(
    api: &ApiClient,
    kind: ObjectKind,
    key: &ObjectKey,
    new: &WireObject,
) -> Result<u64, ControlPlaneError> {
    if new.dated {
        let message = "its manifest sets creationTimestamp, which only the API server may set".to_owned();
        return Err(ControlPlaneError::Refused { kind, key: key.clone(), message });
    }
    let mut main = new.main.clone();
    if kind == ObjectKind::Node {
        // kubelets register with a status.
        main["status"] = new.status.clone().unwrap_or_default();
    }
    if new.deleted && kind != ObjectKind::Pod {
        main["metadata"]["finalizers"] = json!([HELD]);
    }
    let made = api.ask(Method::POST, &wire::collection(kind, Some(&key.namespace)), JSON, Some(&main)).await?;
    if made.code == 409 && made.body["reason"] == "AlreadyExists" {
        // Every API server has some objects: namespaces, the ServiceCIDR of its flags.
        let there = api.get(&wire::path(kind, key)).await?;
        let there = WireObject { main: overlaid(&there.body, &new.main), ..WireObject::default() };
        return change(api, kind, key, &there, &WireObject { status: None, ..new.clone() }).await;
    }
    let version = check_accepted(kind, key, &made)?.version();
    let nothing = WireObject { main: new.main.clone(), ..WireObject::default() };
    let born_with = kind == ObjectKind::Node;
    let later = WireObject { status: new.status.clone().filter(|_| !born_with), ..new.clone() };
    Ok(change(api, kind, key, &nothing, &later).await?.max(version))
}

/// The part of `there` that `new` also contains.
fn overlaid(there: &Value, new: &Value) -> Value {
    match (there, new) {
        (Value::Object(there), Value::Object(new)) => {
            let kept = there.iter().filter_map(|(name, value)| Some((name.clone(), overlaid(value, new.get(name)?))));
            Value::Object(kept.collect())
        }
        _ => there.clone(),
    }
}

/// Patches the differences; returns the object's version.
async fn change(
    api: &ApiClient,
    kind: ObjectKind,
    key: &ObjectKey,
    before: &WireObject,
    new: &WireObject,
) -> Result<u64, ControlPlaneError> {
    let (path, mut version) = (wire::path(kind, key), 0);
    if let Some(patch) = wire::patch(&before.main, &new.main) {
        version = patched(api, kind, key, &path, &patch).await?;
    }
    let nothing = json!({});
    let status = new.status.as_ref().and_then(|new| wire::patch(before.status.as_ref().unwrap_or(&nothing), new));
    if let Some(patch) = status {
        let patch = json!({ "status": patch });
        version = version.max(patched(api, kind, key, &format!("{path}/status"), &patch).await?);
    }
    if new.deleted && !before.deleted {
        // Without a kubelet, a scheduled pod stays terminating.
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 30 });
        check_accepted(kind, key, &api.ask(Method::DELETE, &path, JSON, Some(&options)).await?)?;
        version = version.max(api.get(&path).await?.version());
    }
    if version == 0 {
        version = api.get(&path).await?.version();
    }
    Ok(version)
}

async fn patched(
    api: &ApiClient,
    kind: ObjectKind,
    key: &ObjectKey,
    path: &str,
    patch: &Value,
) -> Result<u64, ControlPlaneError> {
    let mut answer = api.ask(Method::PATCH, path, MERGE, Some(patch)).await?;
    for _ in 1..TRIES {
        if answer.code != 409 {
            break;
        }
        answer = api.ask(Method::PATCH, path, MERGE, Some(patch)).await?;
    }
    Ok(check_accepted(kind, key, &answer)?.version())
}

async fn remove(api: &ApiClient, kind: ObjectKind, key: &ObjectKey) -> Result<(), ControlPlaneError> {
    let path = wire::path(kind, key);
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
    let mut answer = api.ask(Method::DELETE, &path, JSON, Some(&options)).await?;
    if answer.is_success()
        && answer.body["metadata"]["finalizers"].as_array().is_some_and(|held| held.contains(&json!(HELD)))
    {
        answer = api.ask(Method::PATCH, &path, MERGE, Some(&json!({"metadata": {"finalizers": null}}))).await?;
    }
    if answer.code == 404 { Ok(()) } else { check_accepted(kind, key, &answer).map(drop) }
}

fn check_accepted<'a>(
    kind: ObjectKind,
    key: &ObjectKey,
    answer: &'a ApiAnswer,
) -> Result<&'a ApiAnswer, ControlPlaneError> {
    if answer.is_success() {
        return Ok(answer);
    }
    Err(ControlPlaneError::Refused { kind, key: key.clone(), message: answer.message() })
}

/// The slices that the lab's controller makes.
pub(crate) fn endpoints(store: &Store) -> slice_comparison::ServiceEndpoints {
    let made = store.records(ObjectKind::EndpointSlice).filter(|record| store.is_controllers_slice(&record.key));
    let values: Vec<Value> = made.map(|record| record.value()).collect();
    slice_comparison::service_endpoints(values.iter())
}
