use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::LARGEST;

#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is no regular file")]
    Irregular,
    #[error("it has {0} bytes; {LARGEST} are allowed")]
    TooLarge(u64),
    /// Whoever writes the file decides where this node's packets go.
    #[error("user {owner} or others may write it (mode {mode:o}); it must belong to root or this user, with mode 600")]
    WritableByOthers { owner: u32, mode: u32 },
}

/// Returns `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
    // Checked before opening: opening a device may have side effects.
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(DiskError::Irregular),
        Err(error) => return Err(error.into()),
    }
    // A pipe may have replaced the file, and opening one waits for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(DiskError::Irregular);
    }
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if mode & 0o022 != 0 || ![0, nix::unistd::geteuid().as_raw()].contains(&owner) {
        return Err(DiskError::WritableByOthers { owner, mode });
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    let size = metadata.len().max(bytes.len() as u64);
    if size > LARGEST { Err(DiskError::TooLarge(size)) } else { Ok(Some(bytes)) }
}

/// Replaces the file: after a crash at any point its content is the old one or the new one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > LARGEST {
        let cause = format!("{} bytes are to be written; {LARGEST} are allowed", bytes.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, cause));
    }
    let beside = beside(path);
    let written = write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // It may fill the disk.
        let _ = fs::remove_file(&beside);
    }
    written?;
    // Without it a crash may bring the old file back.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` follows no link.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns the name of the file that is written before it replaces `path`; a rename must stay within one directory.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or(std::ffi::OsStr::from_bytes(b"state")));
    name.push(".new");
    path.with_file_name(name)
}
