//! Hands the objects to the proxies: one `List` file per cluster, replaced in one step.

use std::io;
use std::path::{Path, PathBuf};

/// Name of the file within the cluster's manifest directory.
pub const FILE_NAME: &str = "objects.json";

/// The objects could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the cluster's objects to {path}")]
pub struct PublishError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Writes `list` into `directory` so that a reader sees either the old or the new list, never a half of one.
///
/// # Errors
/// When the directory cannot be written.
pub fn publish(directory: &Path, list: &serde_json::Value) -> Result<(), PublishError> {
    let path = directory.join(FILE_NAME);
    // The leading dot keeps a watcher from reading the file before it has its name.
    let fresh = directory.join(format!(".{FILE_NAME}.new"));
    let written = std::fs::write(&fresh, format!("{list:#}\n")).and_then(|()| std::fs::rename(&fresh, &path));
    written.map_err(|source| PublishError { path, source })
}
