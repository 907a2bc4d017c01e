//! Writes of API clients, by the rules of Kubernetes' generic registry.
//!
//! Each operation holds the store's lock from reading the old object to writing the new one, so a matching
//! `resourceVersion` is still current at the write.
//!
//! Deletions are immediate: no finalizer delays them (the response warns), and pods have no grace period.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::encoding::Encoding;
use super::error::ApiError;
use super::event_versions;
use super::patch::ObjectPatch;
use super::query::{FieldValidation, Query};
use super::resources::ObjectPath;
use super::shared::ServerState;
use super::type_change;
use super::validate;
use crate::objects::{Object, ObjectKey, ObjectKind, Record, Store, generated_name};

const SERVER_SIDE: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];
/// Kinds with `AllowCreateOnUpdate` in kube-apiserver's strategies.
const CREATED_BY_UPDATE: [ObjectKind; 3] = [ObjectKind::Service, ObjectKind::Event, ObjectKind::Lease];
/// Kinds with `ReturnDeletedObject` in kube-apiserver's strategies.
const RETURNED_WHEN_DELETED: [ObjectKind; 2] = [ObjectKind::Service, ObjectKind::Pod];
const PERMANENT_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub(super) struct WriteResult {
    pub(super) record: Arc<Record>,
    pub(super) created: bool,
    pub(super) warnings: Vec<String>,
}

fn metadata(value: &mut Value) -> Result<&mut Map<String, Value>, ApiError> {
    let Value::Object(fields) = value else {
        return Err(ApiError::bad_request("the body: expected a JSON object"));
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    metadata.as_object_mut().ok_or_else(|| ApiError::bad_request("metadata: expected an object"))
}

/// Converts a body to the stored version; rejects other types.
fn to_stored_version(path: &ObjectPath, value: &mut Value) -> Result<(), ApiError> {
    let (kind, version) = (path.resource.kind.name(), path.resource.api_version());
    for (field, expected) in [("kind", kind), ("apiVersion", version.as_str())] {
        match value.get(field).and_then(Value::as_str) {
            None | Some("") => {}
            Some(written) if written == expected => {}
            Some(written) => {
                let message =
                    format!("the object provided is unrecognized: {field} {written:?}, expected {expected:?}");
                return Err(ApiError::bad_request(message));
            }
        }
    }
    metadata(value)?;
    value["kind"] = json!(kind);
    value["apiVersion"] = json!(version);
    if path.resource.converted() {
        event_versions::to_stored(value);
    }
    Ok(())
}

/// Sets the namespace of the path; rejects any other.
fn set_namespace(path: &ObjectPath, metadata: &mut Map<String, Value>) -> Result<(), ApiError> {
    let written = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    match &path.namespace {
        Some(namespace) if !written.is_empty() && written != namespace => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            Err(ApiError::bad_request(message))
        }
        Some(namespace) => {
            metadata.insert("namespace".to_owned(), json!(namespace));
            Ok(())
        }
        None => {
            metadata.remove("namespace");
            Ok(())
        }
    }
}

pub(super) fn existing_object(state: &ServerState, path: &ObjectPath) -> Result<Arc<Record>, ApiError> {
    let found = state.store.record(path.resource.kind, &path.key());
    found.cloned().ok_or_else(|| ApiError::not_found(path.resource, path.name()))
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DeleteOptions {
    preconditions: Option<Preconditions>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    pub(super) fn parse(encoding: Encoding, body: &[u8]) -> Result<Self, ApiError> {
        if body.is_empty() {
            return Ok(DeleteOptions::default());
        }
        DeleteOptions::from_value(encoding.decode(body).map_err(ApiError::bad_request)?)
    }

    /// Null stands for no options.
    pub(super) fn from_value(options: Value) -> Result<Self, ApiError> {
        let options: Option<DeleteOptions> = serde_json::from_value(options)
            .map_err(|error| ApiError::bad_request(format!("DeleteOptions: {error}")))?;
        Ok(options.unwrap_or_default())
    }
}

pub(super) struct WriteRequest<'a> {
    pub(super) state: &'a mut ServerState,
    pub(super) path: &'a ObjectPath,
    pub(super) query: &'a Query,
}

impl WriteRequest<'_> {
    fn decode_and_validate(
        &self,
        value: &Value,
        before: Option<&Record>,
        warnings: &mut Vec<String>,
    ) -> Result<Object, ApiError> {
        let path = self.path;
        let kind = path.resource.kind;
        let (object, unknown) = Object::from_value(kind, value)
            .map_err(|error| ApiError::bad_request(format!("{} in version \"v1\": {error}", kind.name())))?;
        match (unknown.first(), self.query.validation) {
            (Some(field), FieldValidation::Strict) => {
                return Err(ApiError::bad_request(format!("strict decoding error: unknown field \"{field}\"")));
            }
            (Some(field), FieldValidation::Warn) => warnings.push(format!("unknown field \"{field}\"")),
            _ => {}
        }
        let before = before.and_then(|record| Object::from_value(kind, &record.value()).ok()).map(|(object, _)| object);
        let causes = validate::check(&object, before.as_ref());
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        if causes.is_empty() {
            Ok(object)
        } else {
            Err(ApiError::invalid(kind.name(), path.resource.group, name, &causes))
        }
    }

    /// Writes an object; a dry run writes to a copy of the store.
    fn write_object(&mut self, key: &ObjectKey, object: Object) -> Result<Arc<Record>, ApiError> {
        let path = self.path;
        let refused = |error| ApiError::of_object(path.resource, &key.name, &error);
        let written = |store: &Store| {
            let gone = || ApiError::new(500, "InternalError", format!("{key} is gone as soon as it was written"));
            store.record(path.resource.kind, key).cloned().ok_or_else(gone)
        };
        if self.query.dry_run {
            let mut copy = self.state.store.clone();
            copy.replace(object).map_err(refused)?;
            return written(&copy);
        }
        self.state.store.replace(object).map_err(refused)?;
        written(&self.state.store)
    }

    pub(super) fn create(&mut self, mut value: Value) -> Result<WriteResult, ApiError> {
        let path = self.path;
        to_stored_version(path, &mut value)?;
        let kind = path.resource.kind;
        // kube-apiserver clears the status of every new object except a Node.
        if path.resource.status && kind != ObjectKind::Node {
            value.as_object_mut().map(|fields| fields.remove("status"));
        }
        let fields = metadata(&mut value)?;
        if fields.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        SERVER_SIDE.iter().for_each(|field| drop(fields.remove(*field)));
        set_namespace(path, fields)?;
        let name =
            match (fields.get("name").and_then(Value::as_str), fields.get("generateName").and_then(Value::as_str)) {
                (Some(name), _) if !name.is_empty() => name.to_owned(),
                (_, Some(prefix)) if !prefix.is_empty() => generated_name(prefix, self.state.store.version()),
                _ => String::new(),
            };
        fields.insert("name".to_owned(), json!(name));
        let key = ObjectKey { name: name.clone(), ..path.key() };
        let mut warnings = Vec::new();
        let object = self.decode_and_validate(&value, None, &mut warnings)?;
        if let Some(namespace) = &path.namespace
            && self.state.store.record(ObjectKind::Namespace, &ObjectKey::unscoped(namespace)).is_none()
        {
            let message = format!("namespaces {namespace:?} not found");
            let details = Some(json!({"name": namespace, "kind": "namespaces"}));
            return Err(ApiError { details, ..ApiError::new(404, "NotFound", message) });
        }
        if self.state.store.record(kind, &key).is_some() {
            return Err(ApiError::already_exists(path.resource, &name));
        }
        let record = self.write_object(&key, object)?;
        Ok(WriteResult { record, created: true, warnings })
    }

    pub(super) fn update(&mut self, mut value: Value) -> Result<WriteResult, ApiError> {
        let path = self.path;
        to_stored_version(path, &mut value)?;
        let absent = self.state.store.record(path.resource.kind, &path.key()).is_none();
        let named = value["metadata"]["name"].as_str() == Some(path.name());
        if absent && named && !path.status && CREATED_BY_UPDATE.contains(&path.resource.kind) {
            return self.create(value);
        }
        let before = existing_object(self.state, self.path)?;
        self.replace(&before, value)
    }

    pub(super) fn patch(&mut self, patch: &ObjectPatch) -> Result<WriteResult, ApiError> {
        let path = self.path;
        let before = existing_object(self.state, self.path)?;
        let mut value = before.value();
        if path.resource.converted() {
            event_versions::from_stored(&mut value);
        }
        patch.apply(path.resource.kind, &mut value)?;
        to_stored_version(path, &mut value)?;
        self.replace(&before, value)
    }

    /// Replaces the status on the path `/status`, otherwise everything except the status.
    fn replace(&mut self, before: &Record, mut value: Value) -> Result<WriteResult, ApiError> {
        let path = self.path;
        let name = &before.key.name;
        let old = before.value();
        let fields = metadata(&mut value)?;
        set_namespace(path, fields)?;
        if fields.get("name").and_then(Value::as_str) != Some(name) {
            let message = format!("the name of the object does not match the name on the URL ({name})");
            return Err(ApiError::bad_request(message));
        }
        let stated = |field: &str| fields.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        if stated("resourceVersion").is_some_and(|version| version != before.version.to_string()) {
            let problem = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(ApiError::conflict(path.resource, name, problem));
        }
        if let Some(uid) = stated("uid").filter(|uid| *uid != before.uid) {
            let problem =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", before.uid);
            return Err(ApiError::conflict(path.resource, name, &problem));
        }
        for field in SERVER_SIDE {
            match old["metadata"].get(field) {
                Some(kept) => fields.insert(field.to_owned(), kept.clone()),
                None => fields.remove(field),
            };
        }
        if path.resource.status {
            let kept = if path.status { "spec" } else { "status" };
            match (old.get(kept), value.as_object_mut()) {
                (Some(old), Some(fields)) => drop(fields.insert(kept.to_owned(), old.clone())),
                (None, Some(fields)) => drop(fields.remove(kept)),
                _ => {}
            }
        }
        if path.resource.kind == ObjectKind::Service {
            type_change::drop_stale(&old, &mut value);
        }
        let mut warnings = Vec::new();
        let object = self.decode_and_validate(&value, Some(before), &mut warnings)?;
        let record = self.write_object(&before.key, object)?;
        Ok(WriteResult { record, created: false, warnings })
    }

    pub(super) fn delete(&mut self, options: &DeleteOptions) -> Result<WriteResult, ApiError> {
        let (path, name) = (self.path, self.path.name());
        let before = existing_object(self.state, self.path)?;
        let wanted = options.preconditions.as_ref();
        let other = |wanted: Option<&String>, actual: &str| wanted.is_some_and(|wanted| wanted != actual);
        if other(wanted.and_then(|wanted| wanted.uid.as_ref()), &before.uid)
            || other(wanted.and_then(|wanted| wanted.resource_version.as_ref()), &before.version.to_string())
        {
            return Err(ApiError::conflict(path.resource, name, "the object is not the one of the preconditions"));
        }
        if path.resource.kind == ObjectKind::Namespace && PERMANENT_NAMESPACES.contains(&name) {
            return Err(ApiError::forbidden(path.resource, name, "this namespace may not be deleted"));
        }
        let mut warnings = Vec::new();
        if before.value()["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
            warnings.push("removed at once: the lab waits for no finalizers".to_owned());
        }
        let dry_run = self.query.dry_run || options.dry_run.as_ref().is_some_and(|dry_run| !dry_run.is_empty());
        if !dry_run {
            let refused = |error| ApiError::of_object(path.resource, name, &error);
            self.state.store.remove(path.resource.kind, &before.key).map_err(refused)?;
        }
        Ok(WriteResult { record: before, created: false, warnings })
    }

    pub(super) fn delete_collection(&mut self) -> Result<Vec<Arc<Record>>, ApiError> {
        let path = self.path;
        let selected: Vec<Arc<Record>> = self
            .state
            .store
            .records(path.resource.kind)
            .filter(|record| path.namespace.as_ref().is_none_or(|namespace| record.key.namespace == *namespace))
            .filter(|record| self.query.selector.matches(record))
            .cloned()
            .collect();
        for record in &selected {
            let (namespace, name) = (Some(record.key.namespace.clone()), Some(record.key.name.clone()));
            let path = &ObjectPath { namespace, name, ..*self.path };
            WriteRequest { state: self.state, path, query: self.query }.delete(&DeleteOptions::default())?;
        }
        Ok(selected)
    }
}

pub(super) fn deletion_response(path: &ObjectPath, record: &Record) -> Value {
    if RETURNED_WHEN_DELETED.contains(&record.kind) {
        return record.value();
    }
    let mut details = json!({"name": record.key.name, "kind": path.resource.plural, "uid": record.uid});
    if !path.resource.group.is_empty() {
        details["group"] = json!(path.resource.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
