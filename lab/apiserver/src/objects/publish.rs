//! Writes a file of objects for proxies that read manifests.

use std::io;
use std::path::{Path, PathBuf};

/// Name of the file in the manifest directory.
pub const FILE_NAME: &str = "objects.json";

/// The error of writing the objects.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the cluster's objects to {path}")]
pub struct PublishError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// Replaces the file in `directory` atomically by `list`.
pub fn publish(directory: &Path, list: &serde_json::Value) -> Result<(), PublishError> {
    let path = directory.join(FILE_NAME);
    // Watchers ignore files with a leading dot.
    let fresh = directory.join(format!(".{FILE_NAME}.new"));
    let written = std::fs::write(&fresh, format!("{list:#}\n")).and_then(|()| std::fs::rename(&fresh, &path));
    written.map_err(|source| PublishError { path, source })
}
