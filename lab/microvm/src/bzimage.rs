//! Unpacks compressed x86 kernels (`bzImage`, Documentation/arch/x86/boot.rst), which takes milliseconds here and
//! seconds at every boot of an emulated processor.

use std::io::Read;

use super::elf;

/// Offsets of header fields.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const RELEASE: usize = 0x20e;
const PAYLOAD: usize = 0x248;
const LENGTH: usize = 0x24c;
/// The first boot protocol version with the payload's offset.
const TELLS_PAYLOAD: u32 = 0x208;
const SECTOR: usize = 512;

/// Magic bytes (`scripts/Makefile.lib`).
const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const LZ4_LEGACY: &[u8] = b"\x02\x21\x4c\x18";
/// The largest unpacked block of a legacy LZ4 frame (`doc/lz4_Frame_format.md`).
const LZ4_BLOCK: usize = 8 << 20;
/// The size limit in bytes; a larger kernel is damaged.
const LARGEST: usize = 1 << 30;

/// The ELF note with the entry point (`XEN_ELFNOTE_PHYS32_ENTRY`, `include/xen/interface/elfnote.h`), without which
/// QEMU boots no unpacked kernel.
const ENTRY_NOTE: (&[u8], u32) = (b"Xen\0", 18);

fn word<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<u32> {
    let mut word = [0; 4];
    word[..BYTES].copy_from_slice(bytes.get(at..at + BYTES)?);
    Some(u32::from_le_bytes(word))
}

fn offset(bytes: &[u8], at: usize) -> Option<usize> {
    word::<4>(bytes, at)?.try_into().ok()
}

/// Returns the release, such as `6.1.0-56-amd64`; `None` for other files.
pub fn release(image: &[u8]) -> Option<String> {
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let text = image.get(usize::try_from(word::<2>(image, RELEASE)?).ok()? + SECTOR..)?;
    let text = &text[..text.iter().position(|byte| *byte == 0)?];
    Some(String::from_utf8_lossy(text).split(' ').next()?.to_owned())
}

/// Returns the unpacked kernel; `None` if compression or entry note are unknown.
pub fn unpacked(image: &[u8]) -> Option<Vec<u8>> {
    if release(image).is_none() || word::<2>(image, VERSION)? < TELLS_PAYLOAD {
        return None;
    }
    let sectors = match image.get(SETUP_SECTORS)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let at = offset(image, PAYLOAD)?.checked_add((sectors + 1) * SECTOR)?;
    let payload = image.get(at..at.checked_add(offset(image, LENGTH)?)?)?;
    let (packed, length) = payload.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= LARGEST)?;
    let mut kernel = Vec::with_capacity(length);
    let reading: &mut dyn Read = match packed {
        _ if packed.starts_with(XZ) => &mut lzma_rust2::XzReader::new(packed, true),
        _ if packed.starts_with(ZSTD) => &mut ruzstd::decoding::StreamingDecoder::new(packed).ok()?,
        _ if packed.starts_with(LZ4_LEGACY) => &mut &*lz4_legacy(&packed[LZ4_LEGACY.len()..])?,
        _ => return None,
    };
    reading.take(LARGEST as u64).read_to_end(&mut kernel).ok()?;
    let kernel = elf::loaded_part(&kernel).filter(|_| kernel.len() == length)?;
    elf::has_note(&kernel, ENTRY_NOTE.0, ENTRY_NOTE.1).then_some(kernel)
}

/// Decompresses blocks, each of which follows its length.
fn lz4_legacy(mut rest: &[u8]) -> Option<Vec<u8>> {
    let (mut all, mut block) = (Vec::new(), vec![0; LZ4_BLOCK]);
    while !rest.is_empty() {
        let length = offset(rest, 0)?;
        let packed = rest.get(4..length.checked_add(4)?)?;
        let length = lz4_flex::block::decompress_into(packed, &mut block).ok()?;
        all.extend_from_slice(&block[..length]);
        rest = &rest[4 + packed.len()..];
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[SETUP_SECTORS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[VERSION..VERSION + 2].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[RELEASE..RELEASE + 2].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x318].copy_from_slice(b"6.1.0-56-amd64 (x@y) #1\0");
        image[LENGTH..LENGTH + 4].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend(payload);
        image
    }

    fn kernel() -> Vec<u8> {
        elf::tests::program_with_note(ENTRY_NOTE.0, ENTRY_NOTE.1)
    }

    fn lz4(content: &[u8]) -> Vec<u8> {
        assert!((15..270).contains(&content.len()));
        let block = [&[0xf0, u8::try_from(content.len() - 15).unwrap()], content].concat();
        [LZ4_LEGACY, &u32::try_from(block.len()).unwrap().to_le_bytes(), &block].concat()
    }

    fn with_length(packed: &[u8], length: usize) -> Vec<u8> {
        [packed, &u32::try_from(length).unwrap().to_le_bytes()].concat()
    }

    #[test]
    fn a_kernel_tells_its_release() {
        let image = image(b"");
        assert_eq!(release(&image).as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(release(&image[..0x300]), None);
        assert_eq!(release(b"\x7fELF"), None);
    }

    #[test]
    fn a_kernel_is_unpacked_if_it_can_be_entered() {
        let kernel = kernel();
        let payload = with_length(&lz4(&kernel), kernel.len());
        assert_eq!(unpacked(&image(&payload)).as_ref(), Some(&kernel));
        let other = elf::tests::program_with_note(b"GNU\0", 1);
        assert_eq!(unpacked(&image(&with_length(&lz4(&other), other.len()))), None, "no way to enter it");
        assert_eq!(unpacked(&image(&with_length(&lz4(&kernel), 7))), None, "not the length that was told");
        assert_eq!(unpacked(&image(b"BZh9 what is this?")), None, "another compression");
    }

    #[test]
    fn nothing_that_is_cut_or_damaged_makes_it_panic() {
        let kernel = kernel();
        let whole = image(&with_length(&lz4(&kernel), kernel.len()));
        for length in 0..whole.len() {
            assert_eq!(unpacked(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = unpacked(&damaged);
        }
    }
}
