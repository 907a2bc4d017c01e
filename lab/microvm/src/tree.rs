use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Returns the hexadecimal SHA-256 of paths, kinds, execute permissions and contents.
pub(super) fn hash(folder: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    feed(&mut hasher, folder, Path::new(""))?;
    Ok(hex(&hasher.finalize()))
}

pub(super) fn is_owned(folder: &Path, uid: u32) -> io::Result<bool> {
    let meta = fs::symlink_metadata(folder)?;
    if meta.uid() != uid {
        return Ok(false);
    }
    if meta.is_dir() {
        for entry in fs::read_dir(folder)? {
            if !is_owned(&entry?.path(), uid)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns the hexadecimal SHA-256 of parts and their lengths.
pub(super) fn hash_of<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.as_ref().len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex(&hasher.finalize())
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn feed(hasher: &mut Sha256, folder: &Path, shown: &Path) -> io::Result<()> {
    let mut names: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    names.sort();
    for name in names {
        let (path, shown) = (folder.join(&name), shown.join(&name));
        let meta = fs::symlink_metadata(&path)?;
        let (kind, content) = if meta.is_symlink() {
            ("link", fs::read_link(&path)?.into_os_string().into_encoded_bytes())
        } else if meta.is_dir() {
            ("folder", Vec::new())
        } else if meta.permissions().mode() & 0o111 != 0 {
            ("program", fs::read(&path)?)
        } else {
            ("file", fs::read(&path)?)
        };
        let name = shown.as_os_str().as_encoded_bytes();
        for part in [kind.as_bytes(), name, &content] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        if meta.is_dir() {
            feed(hasher, &path, &shown)?;
        }
    }
    Ok(())
}
