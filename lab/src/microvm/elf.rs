//! As much of ELF (64 bit, little endian) as an image needs: a program without its debug information, the section of a
//! module that says what it depends on, the libraries that a program asks for.

use std::ops::Range;

fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..BYTES].copy_from_slice(bytes.get(at..at.checked_add(BYTES)?)?);
    Some(u64::from_le_bytes(number))
}

fn offset<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    number::<BYTES>(bytes, at)?.try_into().ok()
}

fn is_elf64(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF\x02\x01")
}

/// A program or library without what is not loaded (symbols, debug information): debug builds are mostly that.
/// `None` if it is no 64-bit ELF file.
pub fn loaded_part(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut end = 64;
    for header in headers(bytes)? {
        let (at, length) = (offset::<8>(bytes, header + 8)?, offset::<8>(bytes, header + 32)?);
        end = end.max(at.checked_add(length)?);
    }
    let mut kept = bytes.get(..end)?.to_vec();
    // No section headers any more: e_shoff, e_shnum, e_shstrndx.
    kept[40..48].fill(0);
    kept[60..64].fill(0);
    Some(kept)
}

/// Where each program header begins.
fn headers(bytes: &[u8]) -> Option<impl Iterator<Item = usize>> {
    if !is_elf64(bytes) {
        return None;
    }
    let (first, size, count) = (offset::<8>(bytes, 32)?, offset::<2>(bytes, 54)?, offset::<2>(bytes, 56)?);
    (first <= bytes.len()).then(|| (0..count).map(move |n| first + n * size))
}

/// The dynamic loader that a program names; `None` for a static one.
pub fn interpreter(bytes: &[u8]) -> Option<String> {
    const PT_INTERP: u64 = 3;
    let header = headers(bytes)?.find(|header| number::<4>(bytes, *header) == Some(PT_INTERP))?;
    let (at, length) = (offset::<8>(bytes, header + 8)?, offset::<8>(bytes, header + 32)?);
    let name = bytes.get(at..at.checked_add(length)?)?;
    Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
}

/// Whether a note of this name (with its zero) and type is among what is loaded.
pub fn has_note(bytes: &[u8], name: &[u8], kind: u32) -> bool {
    const PT_NOTE: u64 = 4;
    let notes = |header: usize| -> Option<&[u8]> {
        let (at, length) = (offset::<8>(bytes, header + 8)?, offset::<8>(bytes, header + 32)?);
        bytes.get(at..at.checked_add(length)?).filter(|_| number::<4>(bytes, header) == Some(PT_NOTE))
    };
    let is_there = |mut notes: &[u8]| {
        // `Elf64_Nhdr`: lengths of name and description, type; both are filled up to multiples of four bytes.
        while let (Some(named), Some(described), Some(type_)) =
            (offset::<4>(notes, 0), offset::<4>(notes, 4), number::<4>(notes, 8))
        {
            if type_ == u64::from(kind) && notes.get(12..12 + named) == Some(name) {
                return true;
            }
            let next = 12 + named.next_multiple_of(4) + described.next_multiple_of(4);
            notes = notes.get(next..).unwrap_or_default();
        }
        false
    };
    headers(bytes).is_some_and(|mut headers| headers.any(|header| notes(header).is_some_and(is_there)))
}

/// The content of section `name`.
pub fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if !is_elf64(bytes) {
        return None;
    }
    let (first, size) = (offset::<8>(bytes, 40)?, offset::<2>(bytes, 58)?);
    let (count, names) = (offset::<2>(bytes, 60)?, offset::<2>(bytes, 62)?);
    if first > bytes.len() {
        return None;
    }
    let content = |header: usize| -> Option<Range<usize>> {
        let (at, length) = (offset::<8>(bytes, header + 24)?, offset::<8>(bytes, header + 32)?);
        Some(at..at.checked_add(length)?)
    };
    let strings = bytes.get(content(first + names * size)?)?;
    (0..count).map(|n| first + n * size).find_map(|header| {
        let called = strings.get(offset::<4>(bytes, header)?..)?;
        let called = &called[..called.iter().position(|byte| *byte == 0)?];
        (called == name.as_bytes()).then(|| bytes.get(content(header)?)).flatten()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A program with a note behind another one.
    pub fn program_with_note(name: &[u8], kind: u32) -> Vec<u8> {
        let note = |name: &[u8], kind: u32| {
            let mut note = Vec::new();
            for word in [u32::try_from(name.len()).unwrap(), 3, kind] {
                note.extend(word.to_le_bytes());
            }
            note.extend(name);
            note.resize(note.len().next_multiple_of(4) + 4, 0);
            note
        };
        let notes = [note(b"x\0", 7), note(name, kind)].concat();
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64 + 56, 0);
        for (at, number) in [(32, 64), (64 + 8, 120), (64 + 32, notes.len())] {
            bytes[at..at + 8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        (bytes[54], bytes[56], bytes[64]) = (56, 1, 4);
        bytes.extend(notes);
        bytes
    }

    #[test]
    fn notes_are_found_by_name_and_type() {
        let program = program_with_note(b"Xen\0", 18);
        assert!(has_note(&program, b"Xen\0", 18) && has_note(&program, b"x\0", 7));
        assert!(!has_note(&program, b"Xen\0", 17) && !has_note(&program, b"GNU\0", 18));
        assert!(has_note(&own(), b"GNU\0", 3), "the build's own mark");
    }

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn a_program_without_its_debug_information_still_runs() {
        let whole = std::fs::read("/bin/true").unwrap();
        let part = loaded_part(&whole).unwrap();
        assert!(part.len() <= whole.len());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, &part).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        let loader = interpreter(&part).unwrap();
        assert!(std::process::Command::new(loader).arg(&path).status().unwrap().success());
        assert!(loaded_part(&own()).unwrap().len() < own().len() / 2, "this test's own debug information is gone");
    }

    #[test]
    fn sections_are_found_by_name() {
        let own = own();
        assert!(section(&own, ".comment").unwrap().windows(5).any(|part| part == b"rustc"));
        assert_eq!(section(&own, ".not-there"), None);
        assert_eq!(section(&loaded_part(&own).unwrap(), ".comment"), None);
    }

    #[test]
    fn no_input_makes_it_panic() {
        let own = own();
        for length in (0..4096).step_by(7) {
            let cut = &own[..length];
            let _ = (loaded_part(cut), section(cut, ".comment"), interpreter(cut), has_note(cut, b"GNU\0", 3));
        }
        assert_eq!(loaded_part(b"#!/bin/sh"), None);
    }
}
