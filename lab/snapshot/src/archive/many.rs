use std::io::Read;
use std::path::Path;

use super::ArchiveError;
use crate::Snapshot;

/// The most archives in a tar.
const ARCHIVES: usize = 100_000;

/// Reads a tar of archives (`NODE.tar`), one at a time. Ignores other files and folders. `take` gets the file's name
/// without its ending.
///
/// # Errors
/// The outer tar is damaged; `take` gets the errors of archives in it.
pub fn read_each(
    from: impl Read,
    mut take: impl FnMut(&str, Result<Snapshot, ArchiveError>),
) -> Result<(), ArchiveError> {
    let mut outer = tar::Archive::new(from);
    let mut after = None::<String>;
    // Without tar's extensions, as in an archive.
    for entry in outer.entries().map_err(ArchiveError::NotATar)?.raw(true).take(ARCHIVES) {
        let mut entry = entry.map_err(|source| match after.take() {
            None => ArchiveError::NotATar(source),
            Some(after) => ArchiveError::Damaged { after, source },
        })?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if let Some(name) = archive_name(Path::new(&path)).filter(|_| entry.header().entry_type().is_file()) {
            take(&name, Snapshot::read(&mut entry));
        }
        after = Some(path);
    }
    Ok(())
}

/// Returns the name of an archive without its ending; `None` for another file.
pub fn archive_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".tar").or_else(|| name.strip_suffix(".tar.gz"))?;
    (!stem.is_empty() && !stem.starts_with('.')).then(|| stem.to_owned())
}
