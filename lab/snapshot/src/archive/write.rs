use std::io::Write;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::entries::{self, ArchivePart};
use super::{ArchiveError, FORMAT, MANIFEST, Manifest, ManifestEntry, VERSION};
use crate::Snapshot;

/// Writes the manifest first: a reader of a pipe knows what follows.
pub(super) fn write(snapshot: &Snapshot, to: impl Write) -> Result<(), ArchiveError> {
    let files = entries::of(snapshot);
    let taken = seconds(&snapshot.taken);
    let mut archive = Builder::new(to);
    append(&mut archive, MANIFEST, taken, &entries::pretty(&manifest(snapshot, &files)))?;
    for (part, bytes) in &files {
        append(&mut archive, part.path(), taken, bytes)?;
    }
    let ended = archive.into_inner().and_then(|mut to| to.flush());
    ended.map_err(|source| ArchiveError::Write { path: "its end".to_owned(), source })
}

pub(super) fn manifest(snapshot: &Snapshot, files: &[(ArchivePart, Vec<u8>)]) -> Manifest {
    let entry = |(part, bytes): &(ArchivePart, Vec<u8>)| ManifestEntry {
        path: part.path().to_owned(),
        size: bytes.len() as u64,
        sha256: checksum(bytes),
        source: snapshot.sources.get(part.path()).map_or(entries::usual_source(*part), String::as_str).to_owned(),
    };
    Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: concat!("svclab ", env!("CARGO_PKG_VERSION")).to_owned(),
        host: snapshot.host.clone(),
        taken: snapshot.taken.clone(),
        kernel: snapshot.kernel.clone(),
        node_name: snapshot.node_name.clone(),
        entries: files.iter().map(entry).collect(),
        unread: snapshot.unread.clone(),
    }
}

pub(super) fn checksum(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// The header does not depend on the user or the current time.
fn append(archive: &mut Builder<impl Write>, path: &str, taken: u64, bytes: &[u8]) -> Result<(), ArchiveError> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(taken);
    header.set_size(bytes.len() as u64);
    let appended = archive.append_data(&mut header, path, bytes);
    appended.map_err(|source| ArchiveError::Write { path: path.to_owned(), source })
}

fn seconds(taken: &str) -> u64 {
    taken.parse::<Timestamp>().ok().and_then(|taken| u64::try_from(taken.as_second()).ok()).unwrap_or(0)
}
