//! A [`Snapshot`] as a tar of readable files with a manifest, in the format of `docs/collect.md`. The same snapshot
//! gives the same bytes. The reader bounds sizes, checks checksums and ignores unknown files.

pub(crate) mod entries;
mod error;
mod manifest;
mod many;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::io::{Read, Write};

pub use error::ArchiveError;
pub use manifest::{Manifest, ManifestEntry};
pub use many::{archive_name, read_each};

use crate::Snapshot;

/// The name of the format, in the manifest.
pub const FORMAT: &str = "svclab-node";
/// The format's version. A reader refuses newer ones; new entries and fields need no new version.
pub const VERSION: u32 = 1;
/// The manifest's path.
pub const MANIFEST: &str = "manifest.json";
/// The largest file in an archive, in bytes.
pub const LARGEST_ENTRY: u64 = 512 << 20;
/// The largest archive, unpacked, in bytes.
pub const LARGEST: u64 = 1 << 30;

impl Snapshot {
    /// Writes the archive.
    ///
    /// # Errors
    /// Writing to `to` fails.
    pub fn write(&self, to: impl Write) -> Result<(), ArchiveError> {
        write::write(self, to)
    }

    /// Reads an archive, also if it is compressed by gzip.
    ///
    /// # Errors
    /// The archive has another format or a newer version, is damaged, or exceeds 1 GiB.
    pub fn read(from: impl Read) -> Result<Snapshot, ArchiveError> {
        read::read(from)
    }

    /// Returns the manifest: every file with its size, checksum and source.
    pub fn manifest(&self) -> Manifest {
        write::manifest(self, &entries::of(self))
    }
}
