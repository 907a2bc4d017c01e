use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::object::{Object, ObjectId, ObjectKind};
use super::problem::{DocumentError, one_line, quote};
use super::syntax::{label, subdomain};
use super::text::{self, TextDocument};
use super::validate;
use super::{ObjectKey, lenient};
use crate::model::LABEL_SERVICE_NAME;

pub(super) const MOST_FAULTS: usize = 100;

#[derive(Debug, Default)]
pub(super) struct FileContents {
    pub objects: Vec<(ObjectId, Object, usize)>,
    pub refused: Vec<ObjectId>,
    pub has_unidentified: bool,
    /// At most [`MOST_FAULTS`]; a last line counts the others.
    pub problems: Vec<DocumentError>,
    /// Ignored fields of valid objects.
    pub remarks: Vec<DocumentError>,
    pub skipped: Vec<String>,
    /// The newest resource version of a list in the file.
    pub list_version: Option<u64>,
}

pub(super) fn read(file: &str, bytes: &[u8]) -> FileContents {
    let mut reader = DocumentReader { file, contents: FileContents::default(), faults: 0, remarks: 0, skipped: 0 };
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            text::documents(file, text, &mut |found| reader.document(found));
        }
        Err(error) => {
            let at = error.valid_up_to();
            let message = format!("is not UTF-8 text (byte {at})");
            reader.contents.has_unidentified = true;
            reader.contents.problems.push(DocumentError::file(file, message));
        }
    }
    reader.end()
}

#[derive(Clone)]
struct DocumentPosition {
    document: usize,
    line: usize,
    /// The path within a list (`items[3]`); empty outside lists.
    item: String,
}

struct DocumentReader<'a> {
    file: &'a str,
    contents: FileContents,
    faults: usize,
    remarks: usize,
    skipped: usize,
}

impl DocumentReader<'_> {
    fn end(mut self) -> FileContents {
        let more = |count: usize, what: &str| {
            (count > MOST_FAULTS)
                .then(|| DocumentError::file(self.file, format!("has {} more {what}", count - MOST_FAULTS)))
        };
        self.contents.problems.extend(more(self.faults, "faults"));
        self.contents.remarks.extend(more(self.remarks, "ignored fields"));
        let skipped = more(self.skipped, "documents that were skipped");
        self.contents.skipped.extend(skipped.map(|line| line.to_string()));
        self.contents
    }

    fn document(&mut self, found: TextDocument) {
        let place = DocumentPosition { document: found.document, line: found.line, item: String::new() };
        match found.value {
            Ok(Value::Null) => {}
            Ok(value) => self.value(value, place),
            Err(message) => self.unidentified(&place, "", message),
        }
    }

    fn value(&mut self, mut value: Value, place: DocumentPosition) {
        if !value.is_object() {
            return self.unidentified(&place, "", format!("is {}, not a Kubernetes object", shape(&value)));
        }
        let named = |key: &str| match value.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            Some(Value::Null | Value::String(_)) | None => Err("is missing".to_owned()),
            Some(other) => Err(format!("is {}, not a string", shape(other))),
        };
        let (api_version, kind) = match (named("apiVersion"), named("kind")) {
            (Ok(api_version), Ok(kind)) => (api_version, kind),
            (Err(message), _) => return self.unidentified(&place, "apiVersion", message),
            (_, Err(message)) => return self.unidentified(&place, "kind", message),
        };
        if let Some(element) = list_of(&api_version, &kind) {
            return self.list(&mut value, &api_version, element, &place);
        }
        match ObjectKind::of(&api_version, &kind) {
            Some(kind) => self.object(kind, value, place),
            None => self.skip(&place, &api_version, &kind, &value),
        }
    }

    /// Reads a list's items; those of a typed list may omit their type.
    fn list(&mut self, list: &mut Value, api_version: &str, element: &str, place: &DocumentPosition) {
        if !place.item.is_empty() {
            return self.unidentified(place, "kind", "is a list within a list".to_owned());
        }
        let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let version: Option<u64> = version.and_then(|v| v.parse().ok());
        self.contents.list_version = self.contents.list_version.max(version);
        let items = match list.get_mut("items").map(Value::take) {
            None | Some(Value::Null) => return,
            Some(Value::Array(items)) => items,
            Some(other) => {
                let message = format!("is {}, not a list", shape(&other));
                return self.unidentified(place, "items", message);
            }
        };
        for (i, mut item) in items.into_iter().enumerate() {
            if let (Value::Object(fields), false) = (&mut item, element.is_empty()) {
                for (key, text) in [("apiVersion", api_version), ("kind", element)] {
                    fields.entry(key).or_insert_with(|| text.into());
                }
            }
            let place = DocumentPosition { item: format!("items[{i}]"), ..place.clone() };
            self.value(item, place);
        }
    }

    fn object(&mut self, kind: ObjectKind, value: Value, place: DocumentPosition) {
        let id = identity(kind, &value);
        let name = match &id {
            Some(id) => id.to_string(),
            None => described(kind.name(), &value),
        };
        let known = self.faults;
        let object = match kind {
            ObjectKind::Node => self.decode(value, validate::node, &name, &place).map(Object::Node),
            ObjectKind::Service => self.decode(value, validate::service, &name, &place).map(Object::Service),
            ObjectKind::EndpointSlice => self.decode(value, validate::slice, &name, &place).map(Object::EndpointSlice),
            ObjectKind::ServiceCidr => {
                self.decode(value, validate::service_cidr, &name, &place).map(Object::ServiceCidr)
            }
        };
        match (object, id) {
            (Some(Object::EndpointSlice(slice)), Some(id)) if !has_service(&slice) => {
                let line = format!("no {LABEL_SERVICE_NAME} label, so it belongs to no Service");
                self.skip_document(&place, &id.to_string(), &line);
            }
            (Some(object), Some(id)) => self.contents.objects.push((id, object, place.document)),
            (None, Some(id)) => self.contents.refused.push(id),
            (_, None) => {
                debug_assert!(self.faults > known, "a bad name is a fault");
                self.contents.has_unidentified = true;
            }
        }
    }

    fn decode<T: DeserializeOwned>(
        &mut self,
        value: Value,
        check: fn(&mut T) -> validate::Findings,
        name: &str,
        place: &DocumentPosition,
    ) -> Option<Arc<T>> {
        let (mut object, taken): (T, _) = match lenient::typed(value) {
            Ok(read) => read,
            Err((path, message)) => {
                self.problem(place, Some(name), &path, message);
                return None;
            }
        };
        let mut findings = check(&mut object);
        let mut remarks = findings.take_remarks();
        let mut findings = findings.into_vec();
        let valid = findings.is_empty();
        if valid {
            remarks.extend(taken.into_iter().map(validate::Finding::ignored));
        } else {
            // Removed values are listed first: they may have caused the later fault.
            findings.splice(0..0, taken);
        }
        for remark in remarks {
            self.remarks += 1;
            if self.remarks > MOST_FAULTS {
                continue;
            }
            let remark = error(self.file, place, Some(name), &remark.field, remark.message);
            self.contents.remarks.push(remark);
        }
        for finding in findings {
            self.problem(place, Some(name), &finding.field, finding.message);
        }
        valid.then(|| Arc::new(object))
    }

    fn skip(&mut self, place: &DocumentPosition, api_version: &str, kind: &str, value: &Value) {
        let why = format!("{api_version} {kind} is no kind that a service proxy reads");
        self.skip_document(place, &described(kind, value), &why);
    }

    fn skip_document(&mut self, place: &DocumentPosition, object: &str, why: &str) {
        self.skipped += 1;
        if self.skipped > MOST_FAULTS {
            return;
        }
        let (file, document) = (self.file, place.document);
        let line = format!("{file}: document {document}: {object} skipped: {why}");
        self.contents.skipped.push(one_line(&line));
    }

    fn unidentified(&mut self, place: &DocumentPosition, field: &str, message: String) {
        self.contents.has_unidentified = true;
        self.problem(place, None, field, message);
    }

    fn problem(&mut self, place: &DocumentPosition, object: Option<&str>, field: &str, message: String) {
        self.faults += 1;
        if self.faults <= MOST_FAULTS {
            self.contents.problems.push(error(self.file, place, object, field, message));
        }
    }
}

fn error(file: &str, place: &DocumentPosition, object: Option<&str>, field: &str, message: String) -> DocumentError {
    let dot = if place.item.is_empty() || field.is_empty() { "" } else { "." };
    DocumentError {
        file: file.to_owned(),
        document: place.document,
        line: Some(place.line),
        object: object.map(str::to_owned),
        field: format!("{}{dot}{field}", place.item),
        message,
        kept: false,
    }
}

/// Returns the kind of a list's items; empty for a `List` of any kind.
fn list_of<'a>(api_version: &str, kind: &'a str) -> Option<&'a str> {
    let element = kind.strip_suffix("List")?;
    let fits = match element {
        "" => api_version == "v1",
        element => ObjectKind::of(api_version, element).is_some(),
    };
    fits.then_some(element)
}

/// `None` if name or namespace is invalid.
fn identity(kind: ObjectKind, value: &Value) -> Option<ObjectId> {
    let metadata = value.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let namespace = match (kind, metadata.get("namespace")) {
        (kind, _) if !kind.is_namespaced() => "",
        (_, None | Some(Value::Null)) => "default",
        (_, Some(namespace)) => match namespace.as_str()? {
            "" => "default",
            namespace => namespace,
        },
    };
    let fits = match kind {
        ObjectKind::Service => label(name),
        ObjectKind::Node | ObjectKind::EndpointSlice | ObjectKind::ServiceCidr => subdomain(name),
    };
    let fits = fits.is_ok() && (!kind.is_namespaced() || label(namespace).is_ok());
    fits.then(|| ObjectId { kind, key: ObjectKey::new(namespace, name) })
}

fn has_service(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels.is_some_and(|l| l.contains_key(LABEL_SERVICE_NAME))
}

fn described(kind: &str, value: &Value) -> String {
    let name = value.pointer("/metadata/name").and_then(Value::as_str);
    match name {
        Some(name) if subdomain(name).is_ok() => format!("{kind}/{name}"),
        Some(name) => format!("{kind} {}", quote(name)),
        None => kind.to_owned(),
    }
}

fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a sequence",
        Value::Object(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n";

    fn reported(contents: &FileContents) -> Vec<String> {
        let objects = contents.objects.iter().map(|(id, ..)| id.to_string());
        let problems = contents.problems.iter().map(ToString::to_string);
        objects.chain(problems).chain(contents.skipped.iter().cloned()).collect()
    }

    fn read_text(file: &str, text: &str) -> Vec<String> {
        reported(&read(file, text.as_bytes()))
    }

    #[test]
    fn other_kinds_are_skipped_with_one_line() {
        let text = format!(
            "---\nkind: Deployment\napiVersion: apps/v1\nmetadata: {{name: web}}\n---\n{SERVICE}---\n# nothing\n---\napiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {{name: \"a\\nb\"}}\n"
        );
        assert_eq!(
            read_text("x.yaml", &text),
            [
                "Service default/web",
                "x.yaml: document 1: Deployment/web skipped: apps/v1 Deployment is no kind that a service proxy reads",
                "x.yaml: document 3: Service \"a\\nb\" skipped: serving.knative.dev/v1 Service is no kind that a service proxy reads",
            ]
        );
        assert!(!read("x.yaml", text.as_bytes()).has_unidentified);
    }

    #[test]
    fn items_of_typed_and_untyped_lists_are_read() {
        let item = r#"{"metadata":{"name":"a"},"spec":{"clusterIP":"None"}}"#;
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{{"resourceVersion":"42"}},"items":[{item},{{"metadata":{{"name":"b"}},"spec":{{"clusterIP":"x"}}}}]}}"#
        );
        let contents = read("x.json", list.as_bytes());
        assert_eq!(
            reported(&contents),
            [
                "Service default/a",
                "x.json: document 1 (Service default/b): items[1].spec.ports: has no port",
                "x.json: document 1 (Service default/b): items[1].spec.clusterIP: \"x\" is not an IP address",
            ]
        );
        assert_eq!((contents.list_version, contents.refused.len(), contents.has_unidentified), (Some(42), 1, false));
        let text = format!(
            "apiVersion: v1\nkind: List\nitems:\n- {}\n- {{kind: Pod, apiVersion: v1}}\n- 7\n",
            SERVICE.trim_end().replace('\n', "\n  ")
        );
        assert_eq!(
            read_text("x.yaml", &text),
            [
                "Service default/web",
                "x.yaml: document 1, line 1: items[2]: is a number, not a Kubernetes object",
                "x.yaml: document 1: Pod skipped: v1 Pod is no kind that a service proxy reads",
            ]
        );
    }

    #[test]
    fn a_document_that_is_no_object_is_a_fault_of_the_file() {
        for (text, fault) in [
            ("just text\n", "x.yaml: document 1, line 1: is a string, not a Kubernetes object"),
            ("kind: Service\n", "x.yaml: document 1, line 1: apiVersion: is missing"),
            ("apiVersion: v1\nkind: 3\n", "x.yaml: document 1, line 1: kind: is a number, not a string"),
            ("apiVersion: v1\nkind: List\nitems: 3\n", "x.yaml: document 1, line 1: items: is a number, not a list"),
        ] {
            let contents = read("x.yaml", text.as_bytes());
            assert_eq!((reported(&contents), contents.has_unidentified), (vec![fault.to_owned()], true), "{text:?}");
        }
        let contents = read("x.yaml", b"a: \xff");
        assert_eq!(
            (reported(&contents), contents.has_unidentified),
            (vec!["x.yaml: is not UTF-8 text (byte 3)".to_owned()], true)
        );
    }

    #[test]
    fn a_hundred_faults_of_a_file_are_listed_and_the_rest_counted() {
        let contents = read("x.json", "1 ".repeat(text::MOST_DOCUMENTS + 7).as_bytes());
        assert_eq!((contents.problems.len(), contents.has_unidentified), (MOST_FAULTS + 1, true));
        assert_eq!(contents.problems[MOST_FAULTS].to_string(), "x.json: has 99901 more faults");
        let contents = read("x.yaml", "---\nkind: Pod\napiVersion: v1\n".repeat(150).as_bytes());
        assert_eq!((contents.skipped.len(), contents.has_unidentified), (MOST_FAULTS + 1, false));
        assert_eq!(contents.skipped[MOST_FAULTS], "x.yaml: has 50 more documents that were skipped");
    }

    #[test]
    fn a_slice_without_a_service_is_skipped() {
        let text = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\naddressType: IPv4\nendpoints: []\n";
        assert_eq!(
            read_text("x.yaml", text),
            [
                "x.yaml: document 1: EndpointSlice default/s skipped: no kubernetes.io/service-name label, so it belongs to no Service",
            ]
        );
    }
}
