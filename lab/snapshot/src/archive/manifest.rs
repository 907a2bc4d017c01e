//! `manifest.json`

use serde::{Deserialize, Serialize};

use crate::Unread;

/// What an archive says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`super::FORMAT`].
    pub format: String,
    /// [`super::VERSION`].
    pub version: u32,
    /// The program that wrote it, with its version.
    #[serde(default)]
    pub program: String,
    /// The node's host name.
    #[serde(default)]
    pub host: String,
    /// When the node was looked at, in RFC 3339 and UTC.
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
    pub entries: Vec<Entry>,
    /// What could not be read, and why.
    #[serde(default)]
    pub unread: Vec<Unread>,
}

/// A file of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// Their SHA-256, in lower-case hexadecimal.
    pub sha256: String,
    /// How it was read: a command line, a file, an interface of the kernel's.
    #[serde(default)]
    pub source: String,
}
