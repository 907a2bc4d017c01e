//! Renders objects for one client.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::encoding::Encoding;
use super::negotiate::ResponseForm;
use super::resources::Resource;
use super::{event_versions, kubectl, protobuf};
use crate::objects::Record;

#[derive(Debug, Clone)]
pub(super) struct ResponseView {
    pub(super) resource: &'static Resource,
    pub(super) form: ResponseForm,
    pub(super) encoding: Encoding,
    /// `None`, `Metadata` (the default) or `Object`.
    pub(super) include_object: String,
}

impl ResponseView {
    pub(super) fn object(&self, record: &Record) -> Value {
        let mut value = record.value();
        if self.resource.converted() {
            event_versions::from_stored(&mut value);
        }
        value
    }

    /// Renders one object; `columns`: whether a table contains its column definitions.
    pub(super) fn single(&self, record: &Record, columns: bool) -> Bytes {
        match self.form {
            ResponseForm::Objects if self.encoding == Encoding::Json && !self.resource.converted() => {
                record.json.clone()
            }
            ResponseForm::Table => {
                let rows = vec![self.row(record)];
                let metadata = json!({"resourceVersion": record.version.to_string()});
                self.table(rows, metadata, columns).to_string().into()
            }
            _ => self.encoding.encode(&self.item(record)),
        }
    }

    /// Returns an object as in a list, unless a table is requested.
    fn item(&self, record: &Record) -> Value {
        match self.form {
            ResponseForm::Metadata => partial(&self.object(record)),
            _ => self.object(record),
        }
    }

    pub(super) fn list<'a>(&self, records: impl Iterator<Item = &'a Record>, metadata: Value) -> Bytes {
        if self.form == ResponseForm::Table {
            let rows = records.map(|record| self.row(record)).collect();
            return self.table(rows, metadata, true).to_string().into();
        }
        let (kind, version) = match self.form {
            ResponseForm::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            _ => (format!("{}List", self.resource.kind.name()), self.resource.api_version()),
        };
        if self.encoding == Encoding::Protobuf {
            let items = records.map(|record| self.item(record));
            return protobuf::encode_list(&version, &kind, &metadata, items).unwrap_or_default().into();
        }
        let mut text =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[")
                .into_bytes();
        for (index, record) in records.enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&self.single(record, false));
        }
        text.extend_from_slice(b"]}\n");
        text.into()
    }

    fn table(&self, rows: Vec<Value>, metadata: Value, columns: bool) -> Value {
        let columns = if columns { kubectl::columns(self.resource.kind) } else { Vec::new() };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    fn row(&self, record: &Record) -> Value {
        let object = record.value();
        let cells = kubectl::cells(record, &object, Timestamp::now());
        match self.include_object.as_str() {
            "None" => json!({"cells": cells}),
            "Object" => json!({"cells": cells, "object": self.object(record)}),
            _ => json!({"cells": cells, "object": partial(&object)}),
        }
    }

    /// Renders a bookmark; the one after the initial events has an annotation.
    pub(super) fn bookmark(&self, version: u64, initial_events_end: bool) -> Value {
        let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        match self.form {
            ResponseForm::Table => {
                let object = json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                });
                let list = json!({"resourceVersion": version.to_string()});
                self.table(vec![json!({"cells": [], "object": object})], list, false)
            }
            ResponseForm::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            ResponseForm::Objects => {
                let kind = self.resource.kind.name();
                json!({"kind": kind, "apiVersion": self.resource.api_version(), "metadata": metadata})
            }
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
