use std::collections::BTreeMap;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use tar::Archive;

use super::entries::{self, ArchivePart, usual_source};
use super::write::checksum;
use super::{ArchiveError, FORMAT, LARGEST, LARGEST_ENTRY, MANIFEST, Manifest, ManifestEntry, VERSION};
use crate::Snapshot;

/// The first bytes of gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

pub(super) fn read(mut from: impl Read) -> Result<Snapshot, ArchiveError> {
    let mut first = Vec::new();
    from.by_ref().take(GZIP.len() as u64).read_to_end(&mut first).map_err(ArchiveError::NotATar)?;
    let is_compressed = first == GZIP;
    let whole = io::Cursor::new(first).chain(from);
    // Limits hold for unpacked bytes.
    let mut files = if is_compressed { unpack(MultiGzDecoder::new(whole)) } else { unpack(whole) }?;
    let manifest = manifest(files.remove(MANIFEST).ok_or(ArchiveError::NoManifest)?)?;
    let mut snapshot = Snapshot::default();
    for entry in &manifest.entries {
        let Some(part) = ArchivePart::at(&entry.path) else { continue };
        let bytes = files.remove(part.path()).ok_or_else(|| ArchiveError::Missing { path: entry.path.clone() })?;
        if checksum(&bytes) != entry.sha256 || bytes.len() as u64 != entry.size {
            return Err(ArchiveError::Checksum { path: entry.path.clone() });
        }
        entries::place(&mut snapshot, part, bytes)?;
    }
    if let Some((path, _)) = files.pop_first() {
        return Err(ArchiveError::Unlisted { path });
    }
    snapshot.sources = sources(&manifest.entries);
    Ok(Snapshot {
        host: manifest.host,
        taken: manifest.taken,
        kernel: manifest.kernel,
        node_name: manifest.node_name,
        unread: manifest.unread,
        ..snapshot
    })
}

/// Returns files by path; ignores unknown ones.
fn unpack(from: impl Read) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    let mut archive = Archive::new(Bounded { from, left: LARGEST });
    let mut files = BTreeMap::new();
    let mut after: Option<String> = None;
    // Ignores tar's extensions, such as long names, which could demand any amount of memory.
    let entries = archive.entries().map_err(ArchiveError::NotATar)?.raw(true);
    for entry in entries {
        let mut entry = entry.map_err(|source| damaged(after.clone(), source))?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
        let known = path == MANIFEST || ArchivePart::at(&path).is_some();
        if known && entry.header().entry_type().is_file() {
            if files.contains_key(&path) {
                return Err(ArchiveError::Twice { path });
            }
            let expected = entry.header().entry_size().map_err(|source| damaged(after.clone(), source))?;
            files.insert(path.clone(), content(&mut entry, &path, expected)?);
        }
        after = Some(path);
    }
    Ok(files)
}

fn content(from: &mut impl Read, path: &str, expected: u64) -> Result<Vec<u8>, ArchiveError> {
    if expected > LARGEST_ENTRY {
        return Err(ArchiveError::LargeEntry { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    from.take(expected).read_to_end(&mut bytes).map_err(|source| damaged(Some(path.to_owned()), source))?;
    let found = bytes.len() as u64;
    if found < expected {
        return Err(ArchiveError::Short { path: path.to_owned(), found, expected });
    }
    Ok(bytes)
}

fn damaged(after: Option<String>, source: io::Error) -> ArchiveError {
    match after {
        _ if TooLarge::is(&source) => ArchiveError::Large,
        None => ArchiveError::NotATar(source),
        Some(after) => ArchiveError::Damaged { after, source },
    }
}

fn manifest(bytes: Vec<u8>) -> Result<Manifest, ArchiveError> {
    let wrong = |why: serde_json::Error| ArchiveError::Content { path: MANIFEST.to_owned(), why: why.to_string() };
    // A newer version may have other fields.
    let head: Head = serde_json::from_slice(&bytes).map_err(wrong)?;
    if head.format != FORMAT {
        return Err(ArchiveError::Format { found: head.format });
    }
    if head.version > VERSION {
        return Err(ArchiveError::Newer { found: head.version });
    }
    serde_json::from_slice(&bytes).map_err(wrong)
}

#[derive(serde::Deserialize)]
struct Head {
    format: String,
    version: u32,
}

fn sources(entries: &[ManifestEntry]) -> BTreeMap<String, String> {
    let parts = entries.iter().filter_map(|entry| Some((ArchivePart::at(&entry.path)?, entry)));
    let unusual = parts.filter(|(part, entry)| entry.source != usual_source(*part));
    unusual.map(|(_, entry)| (entry.path.clone(), entry.source.clone())).collect()
}

/// Fails at the limit, where `Read::take` would report the end of input.
struct Bounded<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::other(TooLarge))?;
        Ok(read)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("too large")]
struct TooLarge;

impl TooLarge {
    /// Whether the limit caused `error`, which `tar` may wrap.
    fn is(error: &io::Error) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
        while let Some(error) = cause {
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if error.is::<TooLarge>() || inner.is_some_and(|inner| inner.is::<TooLarge>()) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}
