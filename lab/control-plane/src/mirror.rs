//! Mirrors the store's objects to the API server; writes only changed objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::TryStreamExt;
use futures_util::stream::{self, StreamExt};
use hyper::Method;
use serde_json::{Value, json};
use svclab_apiserver::objects::{ObjectKey, ObjectKind, Record, Store};

use crate::ControlPlaneError;
use crate::api::{ApiAnswer, ApiClient};
use crate::watch_selectors::is_selected;
use crate::wire::{self, WireObject};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// Maximum number of concurrent writes of pods: there may be hundreds, and their order does not matter.
const PODS_AT_ONCE: usize = 8;
/// The finalizer of objects that must stay visible with a deletion timestamp.
const HELD: &str = "svclab.invalid/held";
/// The number of attempts of a write that conflicts with a controller.
const TRIES: usize = 5;

const KINDS: [ObjectKind; 6] = [
    ObjectKind::Namespace,
    ObjectKind::Node,
    ObjectKind::ServiceCidr,
    ObjectKind::Service,
    ObjectKind::Pod,
    ObjectKind::EndpointSlice,
];

struct MirroredObject {
    record: Arc<Record>,
    /// The object's version at the API server after the last write.
    version: u64,
}

#[derive(Default)]
pub(crate) struct Mirror {
    objects: BTreeMap<(ObjectKind, ObjectKey), MirroredObject>,
}

impl Mirror {
    /// Writes the changes. `controllers`: kube-controller-manager writes the EndpointSlices.
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
        // Deletes objects first, because a new one may reuse an address.
        let gone: Vec<_> = self.objects.keys().filter(|key| !records.contains_key(key)).cloned().collect();
        for key in gone {
            ObjectWriter { api, kind: key.0, key: &key.1 }.remove().await?;
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
                let version = ObjectWriter { api, kind: record.kind, key: &record.key }.write(before, record).await?;
                Ok::<_, ControlPlaneError>((Arc::clone(record), version))
            });
            let written: Vec<_> = writes.buffer_unordered(PODS_AT_ONCE).try_collect().await?;
            for (record, version) in written {
                let key = (record.kind, record.key.clone());
                self.objects.insert(key, MirroredObject { record, version });
            }
        }
        Ok(())
    }

    pub(crate) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = (&Record, u64)> {
        let of_kind = self.objects.values().filter(move |one| one.record.kind == kind);
        of_kind.map(|one| (one.record.as_ref(), one.version))
    }

    pub(crate) fn has(&self, kind: ObjectKind, key: &ObjectKey) -> bool {
        self.objects.contains_key(&(kind, key.clone()))
    }
}

/// Returns the rank in the order of writes: kinds that others need are first.
fn rank(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::Namespace => 0,
        ObjectKind::Node | ObjectKind::ServiceCidr => 1,
        _ => 2,
    }
}

struct ObjectWriter<'a> {
    api: &'a ApiClient,
    kind: ObjectKind,
    key: &'a ObjectKey,
}

impl ObjectWriter<'_> {
    fn path(&self) -> String {
        wire::path(self.kind, self.key)
    }

    async fn write(&self, before: Option<&Arc<Record>>, record: &Record) -> Result<u64, ControlPlaneError> {
        let new = wire::of(record);
        let Some(before) = before.map(|before| wire::of(before)) else { return self.create(&new).await };
        if self.kind == ObjectKind::Pod && before.main["spec"] != new.main["spec"] {
            // A pod's spec is immutable: this is another pod with the same name.
            self.remove().await?;
            return self.create(&new).await;
        }
        self.change(&before, &new).await
    }

    async fn create(&self, new: &WireObject) -> Result<u64, ControlPlaneError> {
        if new.dated {
            return Err(
                self.refused("its manifest sets creationTimestamp, which only the API server may set".to_owned())
            );
        }
        let mut main = new.main.clone();
        if self.kind == ObjectKind::Node {
            // A kubelet registers its node with a status.
            main["status"] = new.status.clone().unwrap_or_default();
        }
        if new.deleted && self.kind != ObjectKind::Pod {
            main["metadata"]["finalizers"] = json!([HELD]);
        }
        let collection = wire::collection(self.kind, Some(&self.key.namespace));
        let made = self.api.ask(Method::POST, &collection, JSON, Some(&main)).await?;
        if made.code == 409 && made.body["reason"] == "AlreadyExists" {
            // API servers create some objects themselves: namespaces, the ServiceCIDR that their flags set.
            let there = self.api.get(&self.path()).await?;
            let there = WireObject { main: overlaid(&there.body, &new.main), ..WireObject::default() };
            return self.change(&there, &WireObject { status: None, ..new.clone() }).await;
        }
        let version = self.check_accepted(&made)?.version();
        let created = WireObject { main: new.main.clone(), ..WireObject::default() };
        let status = new.status.clone().filter(|_| self.kind != ObjectKind::Node);
        Ok(self.change(&created, &WireObject { status, ..new.clone() }).await?.max(version))
    }

    /// Patches the differences; returns the object's version.
    async fn change(&self, before: &WireObject, new: &WireObject) -> Result<u64, ControlPlaneError> {
        let (path, mut version) = (self.path(), 0);
        if let Some(patch) = wire::patch(&before.main, &new.main) {
            version = self.patch(&path, &patch).await?;
        }
        let nothing = json!({});
        let status = new.status.as_ref().and_then(|new| wire::patch(before.status.as_ref().unwrap_or(&nothing), new));
        if let Some(patch) = status {
            version = version.max(self.patch(&format!("{path}/status"), &json!({ "status": patch })).await?);
        }
        if new.deleted && !before.deleted {
            // Without a kubelet, a scheduled pod stays terminating.
            self.check_accepted(&self.delete(30).await?)?;
            version = version.max(self.api.get(&path).await?.version());
        }
        if version == 0 {
            version = self.api.get(&path).await?.version();
        }
        Ok(version)
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<u64, ControlPlaneError> {
        let mut answer = self.api.ask(Method::PATCH, path, MERGE, Some(patch)).await?;
        for _ in 1..TRIES {
            if answer.code != 409 {
                break;
            }
            answer = self.api.ask(Method::PATCH, path, MERGE, Some(patch)).await?;
        }
        Ok(self.check_accepted(&answer)?.version())
    }

    async fn delete(&self, grace_period: u32) -> Result<ApiAnswer, ControlPlaneError> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_period });
        self.api.ask(Method::DELETE, &self.path(), JSON, Some(&options)).await
    }

    async fn remove(&self) -> Result<(), ControlPlaneError> {
        let mut answer = self.delete(0).await?;
        let finalizers = answer.body["metadata"]["finalizers"].as_array();
        if answer.is_success() && finalizers.is_some_and(|finalizers| finalizers.contains(&json!(HELD))) {
            let patch = json!({"metadata": {"finalizers": null}});
            answer = self.api.ask(Method::PATCH, &self.path(), MERGE, Some(&patch)).await?;
        }
        if answer.code == 404 { Ok(()) } else { self.check_accepted(&answer).map(drop) }
    }

    fn check_accepted<'a>(&self, answer: &'a ApiAnswer) -> Result<&'a ApiAnswer, ControlPlaneError> {
        if answer.is_success() { Ok(answer) } else { Err(self.refused(answer.message())) }
    }

    fn refused(&self, message: String) -> ControlPlaneError {
        ControlPlaneError::Refused { kind: self.kind, key: self.key.clone(), message }
    }
}

/// Returns the part of `there` that `new` also contains.
fn overlaid(there: &Value, new: &Value) -> Value {
    match (there, new) {
        (Value::Object(there), Value::Object(new)) => {
            let kept = there.iter().filter_map(|(name, value)| Some((name.clone(), overlaid(value, new.get(name)?))));
            Value::Object(kept.collect())
        }
        _ => there.clone(),
    }
}

/// Returns the controller's slices that a proxy gets. A slice's own labels decide: they may be those of an earlier type of
/// its Service.
pub(crate) fn controllers_slices(store: &Store) -> Vec<Value> {
    let made = store.records(ObjectKind::EndpointSlice).filter(|record| store.is_controllers_slice(&record.key));
    made.map(|record| record.value()).filter(|slice| is_selected(ObjectKind::EndpointSlice, slice)).collect()
}
