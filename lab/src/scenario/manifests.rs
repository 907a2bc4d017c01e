use std::collections::BTreeMap;
use std::path::Path;

use svclab_apiserver::objects::parse_manifests;

use super::error::FileError;
use super::file::Manifests;
use super::{PlacedDocument, values};
use crate::input::InputFiles;

pub(super) fn read(
    manifests: &Manifests,
    scenario: &Path,
    texts: &InputFiles,
    kept: &mut BTreeMap<String, String>,
    errors: &mut Vec<FileError>,
) -> Vec<PlacedDocument> {
    match manifests {
        Manifests::Inline(text) => {
            let at = values::position(text.defined);
            parse(&text.value, &scenario.display().to_string(), at, errors)
        }
        Manifests::Files(files) => {
            let directory = scenario.parent().unwrap_or(Path::new("."));
            let mut placed = Vec::new();
            for file in files {
                let path = directory.join(&file.value);
                match texts.text(&path) {
                    Ok(text) => {
                        let name = path.display().to_string();
                        placed.extend(parse(&text, &name, (1, 1), errors));
                        kept.insert(name, text);
                    }
                    Err(error) => {
                        let (line, column) = values::position(file.referenced);
                        let message = format!("cannot read the manifest {}: {error}", path.display());
                        errors.push(FileError { file: scenario.display().to_string(), line, column, message });
                    }
                }
            }
            placed
        }
    }
}

fn parse(text: &str, file: &str, start: (usize, usize), errors: &mut Vec<FileError>) -> Vec<PlacedDocument> {
    match parse_manifests(text) {
        Ok(documents) => documents
            .into_iter()
            .map(|document| PlacedDocument {
                file: file.to_owned(),
                line: start.0 + document.line - 1,
                column: start.1,
                document,
            })
            .collect(),
        Err(found) => {
            errors.extend(found.into_iter().map(|error| FileError {
                file: file.to_owned(),
                line: start.0 + error.line - 1,
                column: start.1 + error.column - 1,
                message: error.message,
            }));
            Vec::new()
        }
    }
}
