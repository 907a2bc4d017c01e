use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// In bytes. A kubeconfig of a hundred clusters with certificates has half of this.
pub const LARGEST: u64 = 1 << 20;

/// Follows symbolic links, which ConfigMaps contain. Rejects irregular files: reading a pipe or device may not end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let wrong = |cause: String| Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    let no_file = || wrong("it is no regular file".to_owned());
    // Checked before opening: opening a device may have side effects.
    if !fs::metadata(path)?.is_file() {
        return no_file();
    }
    // A pipe may have replaced the file, and opening one waits for a writer.
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
