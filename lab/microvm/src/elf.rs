//! 64-bit little-endian ELF.

use object::LittleEndian;
use object::elf::{FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

fn header(bytes: &[u8]) -> Option<&FileHeader64<LittleEndian>> {
    let header = FileHeader64::parse(bytes).ok()?;
    header.endian().is_ok().then_some(header)
}

fn segments(bytes: &[u8]) -> Option<&[ProgramHeader64<LittleEndian>]> {
    header(bytes)?.program_headers(LittleEndian, bytes).ok()
}

/// Returns an ELF file without symbols and debug information; `None` for others.
pub fn loaded_part(bytes: &[u8]) -> Option<Vec<u8>> {
    let ends = segments(bytes)?.iter().map(|segment| {
        let (at, length) = segment.file_range(LittleEndian);
        at.checked_add(length)?.try_into().ok()
    });
    let end = ends.collect::<Option<Vec<usize>>>()?.into_iter().fold(64, usize::max);
    let mut kept = bytes.get(..end)?.to_vec();
    // Clears e_shoff, e_shnum and e_shstrndx.
    kept[40..48].fill(0);
    kept[60..64].fill(0);
    Some(kept)
}

/// Returns the dynamic loader's path; `None` for a static program.
pub fn interpreter(bytes: &[u8]) -> Option<String> {
    let name = segments(bytes)?.iter().find_map(|segment| segment.interpreter(LittleEndian, bytes).ok()?)?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Whether a loaded segment has this note (name with its NUL).
pub fn has_note(bytes: &[u8], name: &[u8], kind: u32) -> bool {
    let notes = segments(bytes).into_iter().flatten().filter_map(|segment| segment.notes(LittleEndian, bytes).ok()?);
    let mut notes = notes.flat_map(|mut notes| std::iter::from_fn(move || notes.next().ok()?));
    notes.any(|note| note.n_type(LittleEndian) == kind && note.name_bytes() == name)
}

/// Returns a section's content.
pub fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let sections = header(bytes)?.sections(LittleEndian, bytes).ok()?;
    let (_, section) = sections.section_by_name(LittleEndian, name.as_bytes())?;
    section.data(LittleEndian, bytes).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

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
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
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
