//! `manifest.json`

use serde::{Deserialize, Serialize};

use crate::Unread;

/// The description of an archive: its first file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`super::FORMAT`].
    pub format: String,
    /// [`super::VERSION`].
    pub version: u32,
    /// The program that wrote the archive, with its version.
    #[serde(default)]
    pub program: String,
    /// The node's host name.
    #[serde(default)]
    pub host: String,
    /// The time of collection, in RFC 3339 and UTC.
    #[serde(default)]
    pub taken: String,
    /// The kernel's release.
    #[serde(default)]
    pub kernel: String,
    /// The name of the node's Node object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The other files, in the archive's order.
    #[serde(default)]
    pub entries: Vec<ManifestEntry>,
    /// Parts that could not be read, with reasons.
    #[serde(default)]
    pub unread: Vec<Unread>,
}

/// A file of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// The path in the archive.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// The command line, file or kernel interface that the content is from.
    #[serde(default)]
    pub source: String,
}
