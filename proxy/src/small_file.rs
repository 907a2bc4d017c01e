//! Files that a flag or a kubeconfig names: regular ones, of a size that can be believed.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of the largest configuration, kubeconfig or token. A kubeconfig of a hundred clusters with their certificates has half.
pub const LARGEST: u64 = 1 << 20;

/// Reads a file, through symbolic links as a ConfigMap has them.
///
/// # Errors
/// As [`fs::read`], and where it is no regular file (a pipe may never have a writer, a device may never end) or a larger one.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let wrong = |cause: String| Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    let no_file = || wrong("it is no regular file".to_owned());
    // First: to open a device may do something.
    if !fs::metadata(path)?.is_file() {
        return no_file();
    }
    // A pipe may have taken its place since, and to open one waits for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return no_file();
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    let size = metadata.len().max(bytes.len() as u64);
    if size > LARGEST {
        return wrong(format!("it has {size} bytes; {LARGEST} are allowed"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let fault = || read(&path).unwrap_err().to_string();
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().to_string(), "it is no regular file");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(fault(), "it is no regular file");
        fs::remove_file(&path).unwrap();
        let sized = |size: u64| fs::File::create(&path).and_then(|file| file.set_len(size)).unwrap();
        sized(LARGEST + 1);
        assert_eq!(fault(), "it has 1048577 bytes; 1048576 are allowed");
        sized(LARGEST);
        std::os::unix::fs::symlink("file", directory.path().join("link")).unwrap();
        assert_eq!(read(&directory.path().join("link")).unwrap().len() as u64, LARGEST);
    }
}
