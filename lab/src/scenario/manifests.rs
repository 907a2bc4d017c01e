//! Manifests within or beside a scenario file.

use std::path::Path;

use svclab_apiserver::objects::parse_manifests;

use super::error::FileError;
use super::file::Manifests;
use super::{Placed, values};

/// Reads them; problems go to `errors` with the line of the file that they are in.
pub(super) fn read(manifests: &Manifests, scenario: &Path, errors: &mut Vec<FileError>) -> Vec<Placed> {
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
                match crate::input::text(&path) {
                    Ok(text) => placed.extend(parse(&text, &path.display().to_string(), (1, 1), errors)),
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

/// `start` is where the text's first character stands in `file`.
fn parse(text: &str, file: &str, start: (usize, usize), errors: &mut Vec<FileError>) -> Vec<Placed> {
    match parse_manifests(text) {
        Ok(documents) => documents
            .into_iter()
            .map(|document| Placed { file: file.to_owned(), line: start.0 + document.line - 1, document })
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
