use std::io;

/// Messages name the file inside the archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Writing failed.
    #[error("cannot write the archive at {path}: {source}")]
    Write {
        /// The file inside the archive.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The file does not begin with a tar header, or cannot be read.
    #[error("this is no tar archive{}", of_system(.0))]
    NotATar(io::Error),
    /// A later header is malformed, or bytes cannot be read.
    #[error("the archive is damaged or cut short after {after}: {source}")]
    Damaged {
        /// The last file before the damage.
        after: String,
        /// The cause.
        source: io::Error,
    },
    /// A file is shorter than its header says.
    #[error("the archive is cut short: {path} has {found} of {expected} bytes")]
    Short {
        /// The file inside the archive.
        path: String,
        /// Bytes found.
        found: u64,
        /// Bytes by the header.
        expected: u64,
    },
    /// A file exceeds [`LARGEST_ENTRY`](super::LARGEST_ENTRY).
    #[error("{path} in the archive is larger than {} MiB", super::LARGEST_ENTRY >> 20)]
    LargeEntry {
        /// The file inside the archive.
        path: String,
    },
    /// The archive exceeds [`LARGEST`](super::LARGEST).
    #[error("the archive is larger than {} MiB", super::LARGEST >> 20)]
    Large,
    /// A file occurs twice.
    #[error("{path} is in the archive twice")]
    Twice {
        /// The file inside the archive.
        path: String,
    },
    /// The archive has no manifest.
    #[error("there is no manifest.json in the archive: it is none of svclab's")]
    NoManifest,
    /// The manifest names another format.
    #[error("manifest.json in the archive is of format {found:?}, expected {:?}", super::FORMAT)]
    Format {
        /// The manifest's value.
        found: String,
    },
    /// A newer program wrote the archive.
    #[error("manifest.json in the archive is of version {found}; this program reads versions up to {}", super::VERSION)]
    Newer {
        /// The manifest's value.
        found: u32,
    },
    /// A listed file is missing.
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
    /// A file does not match its checksum.
    #[error("{path} in the archive is damaged: its checksum is another than the one in manifest.json")]
    Checksum {
        /// The file inside the archive.
        path: String,
    },
    /// A file's content is malformed.
    #[error("{path} in the archive: {why}")]
    Content {
        /// The file inside the archive.
        path: String,
        /// The mistake.
        why: String,
    },
}

/// Omits errors of the tar reader: they quote the file, which may be any.
fn of_system(error: &io::Error) -> String {
    error.raw_os_error().map(|_| format!(": {error}")).unwrap_or_default()
}
