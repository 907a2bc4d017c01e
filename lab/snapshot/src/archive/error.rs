//! What is wrong with an archive.

use std::io;

/// An archive that cannot be written or read. Each is one sentence that names the file inside the archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Writing failed.
    #[error("cannot write the archive at {path}: {source}")]
    Write {
        /// The file inside the archive.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The first bytes are no tar header.
    #[error("this is no tar archive: {0}")]
    NotATar(io::Error),
    /// A later header makes no sense, or the bytes cannot be read.
    #[error("the archive is damaged or cut short after {after}: {source}")]
    Damaged {
        /// The last file that was read.
        after: String,
        /// Why.
        source: io::Error,
    },
    /// Fewer bytes than a header says.
    #[error("the archive is cut short: {path} has {found} of {expected} bytes")]
    Short {
        /// The file inside the archive.
        path: String,
        /// Bytes there.
        found: u64,
        /// Bytes that the header promises.
        expected: u64,
    },
    /// One file is too large.
    #[error("{path} in the archive is larger than {} MiB", super::LARGEST_ENTRY >> 20)]
    LargeEntry {
        /// The file inside the archive.
        path: String,
    },
    /// All of it is too large.
    #[error("the archive is larger than {} MiB", super::LARGEST >> 20)]
    Large,
    /// A file is there twice.
    #[error("{path} is in the archive twice")]
    Twice {
        /// The file inside the archive.
        path: String,
    },
    /// No manifest.
    #[error("there is no manifest.json in the archive: it is none of svclab's")]
    NoManifest,
    /// The manifest's format is another.
    #[error("manifest.json in the archive is of format {found:?}, expected {:?}", super::FORMAT)]
    Format {
        /// What it says.
        found: String,
    },
    /// Written by a newer program.
    #[error("manifest.json in the archive is of version {found}; this program reads versions up to {}", super::VERSION)]
    Newer {
        /// What it says.
        found: u32,
    },
    /// A listed file is not there.
    #[error("the archive is cut short: manifest.json lists {path}, which is not there")]
    Missing {
        /// The file inside the archive.
        path: String,
    },
    /// A file of the format that the manifest does not list.
    #[error("{path} is in the archive, but manifest.json does not list it")]
    Unlisted {
        /// The file inside the archive.
        path: String,
    },
    /// A file's bytes are others than those that were written.
    #[error("{path} in the archive is damaged: its checksum is another than the one in manifest.json")]
    Checksum {
        /// The file inside the archive.
        path: String,
    },
    /// A file's content cannot be understood.
    #[error("{path} in the archive: {why}")]
    Content {
        /// The file inside the archive.
        path: String,
        /// What is wrong.
        why: String,
    },
}
