//! A [`Snapshot`] as one file: a tar of files that people can read, with a manifest that says what is in it.
//!
//! `docs/collect.md` describes the format entry by entry. The same snapshot always gives the same bytes. A reader believes
//! nothing: sizes are bounded, checksums checked, and what it does not know is left alone.

pub(crate) mod entries;
mod error;
mod manifest;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::io::{Read, Write};

pub use error::ArchiveError;
pub use manifest::{Entry, Manifest};

use crate::Snapshot;

/// The name of the format, in the manifest.
pub const FORMAT: &str = "svclab-node";
/// Its version: a reader takes no newer one. New entries and fields need no new version.
pub const VERSION: u32 = 1;
/// The manifest's path.
pub const MANIFEST: &str = "manifest.json";
/// Bytes that one entry may have.
pub const LARGEST_ENTRY: u64 = 512 << 20;
/// Bytes that an archive may have.
pub const LARGEST: u64 = 1 << 30;

impl Snapshot {
    /// Writes the archive.
    ///
    /// # Errors
    /// When `to` takes no more bytes.
    pub fn write(&self, to: impl Write) -> Result<(), ArchiveError> {
        write::write(self, to)
    }

    /// Reads an archive.
    ///
    /// # Errors
    /// When it is no archive of this format, is damaged, is larger than 1 GiB, or is of a newer version.
    pub fn read(from: impl Read) -> Result<Snapshot, ArchiveError> {
        read::read(from)
    }

    /// What an archive of this snapshot says of itself: every file with its size, checksum and source.
    pub fn manifest(&self) -> Manifest {
        write::manifest(self, &entries::of(self))
    }
}
