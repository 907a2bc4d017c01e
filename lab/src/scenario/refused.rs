//! Objects that no API server would accept: a mistake of the file, unless it names them under `invalid`.

use serde_saphyr::Spanned;
use svclab_apiserver::refused_fields;

use super::PlacedDocument;
use super::error::FileError;
use super::values::{InvalidObject, ObjectRef, position};

pub(super) fn check<'a>(
    written: impl Iterator<Item = &'a PlacedDocument>,
    meant: &[Spanned<InvalidObject>],
    scenario: &str,
    errors: &mut Vec<FileError>,
) {
    let mut used = vec![false; meant.len()];
    for placed in written {
        let fields = refused_fields(&placed.document.object);
        if fields.is_empty() {
            continue;
        }
        if let Some(entry) = meant.iter().position(|entry| names(&entry.value, placed)) {
            used[entry] = true;
            continue;
        }
        for field in fields {
            let (kind, key) = placed.document.object.kind_and_key();
            let (line, column) = placed.field_position(Some(&field.path));
            let message = format!(
                "{kind}/{key}: {}: {}. No API server accepts it; if that is meant, say `invalid: {kind}/{key}` at the top",
                field.path, field.problem
            );
            errors.push(FileError { file: placed.file.clone(), line, column, message });
        }
    }
    for (entry, _) in meant.iter().zip(used).filter(|(entry, used)| !used && entry.value != InvalidObject::All) {
        let (line, column) = position(entry.referenced);
        let message = "invalid: the API would accept this object, or the scenario has none of that name".to_owned();
        errors.push(FileError { file: scenario.to_owned(), line, column, message });
    }
}

fn names(entry: &InvalidObject, placed: &PlacedDocument) -> bool {
    let InvalidObject::One(ObjectRef { kind, key }) = entry else { return true };
    let (of, found) = placed.document.object.kind_and_key();
    *kind == of.to_string() && key.name == found.name && (!of.namespaced() || key.namespace == found.namespace)
}
