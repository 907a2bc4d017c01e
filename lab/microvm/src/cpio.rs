//! The initramfs format (`newc`, Documentation/driver-api/early-userspace/buffer-format.rst). Equal entries give equal
//! bytes.

use std::collections::BTreeMap;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Files by path without leading `/`, owned by root, dated at the epoch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Archive(BTreeMap<String, CpioEntry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct CpioEntry {
    mode: u32,
    data: Vec<u8>,
}

impl Archive {
    /// Adds a directory with its parents.
    pub fn directory(&mut self, path: &str) {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]).filter(|(end, _)| *end > 0) {
            let entry = CpioEntry { mode: DIRECTORY | 0o755, data: Vec::new() };
            self.0.entry(path[..end].to_owned()).or_insert(entry);
        }
    }

    /// Adds a file with its parent directories.
    pub fn file(&mut self, path: &str, data: Vec<u8>, executable: bool) {
        let mode = REGULAR | if executable { 0o755 } else { 0o644 };
        self.put(path, CpioEntry { mode, data });
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.put(path, CpioEntry { mode: LINK | 0o777, data: target.as_bytes().to_vec() });
    }

    /// Whether `path` exists.
    pub fn contains(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    fn put(&mut self, path: &str, entry: CpioEntry) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// Writes the archive. Inode numbers differ, because the kernel hard-links equal ones. Fails for files of 4 GiB.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (number, (path, entry)) in (1..).zip(&self.0) {
            record(out, number, entry.mode, path, &entry.data)?;
        }
        record(out, 0, 0, "TRAILER!!!", b"")
    }
}

fn record(out: &mut impl Write, inode: u32, mode: u32, path: &str, data: &[u8]) -> io::Result<()> {
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{path} does not fit into the archive"));
    let size = u32::try_from(data.len()).map_err(too_long)?;
    let name = u32::try_from(path.len() + 1).map_err(too_long)?;
    write!(out, "070701")?;
    // inode, mode, uid, gid, links, mtime, size, four device numbers, length of the name, checksum
    for field in [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0] {
        write!(out, "{field:08X}")?;
    }
    out.write_all(path.as_bytes())?;
    out.write_all(&[0])?;
    pad(out, 110 + path.len() + 1)?;
    out.write_all(data)?;
    pad(out, data.len())
}

fn pad(out: &mut impl Write, written: usize) -> io::Result<()> {
    out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_these() {
        let mut archive = Archive::default();
        archive.file("d/f", b"hello".to_vec(), false);
        archive.link("a", "d/f");
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        let head = |inode: &str, mode: &str, size: &str, name: &str| {
            format!(
                "0707010000{inode}0000{mode}000000000000000000000001000000000000000{size}00000000000000000000000000000000{name}00000000"
            )
        };
        let expected = [
            head("0001", "A1FF", "3", "00000002") + "a\0d/f\0",
            head("0002", "41ED", "0", "00000002") + "d\0",
            head("0003", "81A4", "5", "00000004") + "d/f\0\0\0hello\0\0\0",
            head("0000", "0000", "0", "0000000B") + "TRAILER!!!\0\0\0\0",
        ];
        assert_eq!(String::from_utf8(bytes).unwrap(), expected.concat());
    }

    #[test]
    fn parents_come_first_and_the_order_of_adding_does_not_matter() {
        let (mut one, mut other) = (Archive::default(), Archive::default());
        one.file("usr/bin/b", vec![1], true);
        one.directory("usr/lib");
        other.directory("usr/lib");
        other.file("usr/bin/b", vec![1], true);
        assert_eq!(one, other);
        assert_eq!(one.0.keys().collect::<Vec<_>>(), ["usr", "usr/bin", "usr/bin/b", "usr/lib"]);
    }
}
