//! `jhash` (include/linux/jhash.h: Bob Jenkins' lookup3), scaled to a modulus.

use crate::nft::DataType;

const GOLDEN: u32 = 0xdead_beef;

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).enumerate().fold(0, |sum, (at, byte)| sum | u32::from(*byte) << (8 * at))
}

fn jhash(key: &[u8], seed: u32) -> u32 {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let begin = GOLDEN.wrapping_add(length).wrapping_add(seed);
    let (mut a, mut b, mut c) = (begin, begin, begin);
    let mut rest = key;
    while rest.len() > 12 {
        a = a.wrapping_add(word(rest));
        b = b.wrapping_add(word(&rest[4..]));
        c = c.wrapping_add(word(&rest[8..]));
        for (x, y, z) in [(4, 6, 8), (16, 19, 4)] {
            a = a.wrapping_sub(c) ^ c.rotate_left(x);
            c = c.wrapping_add(b);
            b = b.wrapping_sub(a) ^ a.rotate_left(y);
            a = a.wrapping_add(c);
            c = c.wrapping_sub(b) ^ b.rotate_left(z);
            b = b.wrapping_add(a);
        }
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(rest));
    b = b.wrapping_add(word(rest.get(4..).unwrap_or_default()));
    c = c.wrapping_add(word(rest.get(8..).unwrap_or_default()));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// Returns a value's bytes, padded to a multiple of four.
pub(crate) fn register(value: u128, kind: DataType) -> Vec<u8> {
    let length = usize::try_from(kind.bits().div_ceil(8)).unwrap_or(16);
    let all = value.to_be_bytes();
    let mut bytes = all[16 - length.min(16)..].to_vec();
    // Host byte order.
    if matches!(
        kind,
        DataType::Mark
            | DataType::Interface
            | DataType::State
            | DataType::Status
            | DataType::AddressType
            | DataType::Integer(32)
    ) {
        bytes.reverse();
    }
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// Scales the hash by `reciprocal_scale` (include/linux/kernel.h).
pub(crate) fn below(key: &[u8], seed: u32, modulus: u32) -> u32 {
    u32::try_from((u64::from(jhash(key, seed)) * u64::from(modulus)) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jhash_has_the_published_values() {
        assert_eq!(jhash(b"", 0), GOLDEN);
        let text = b"Four score and seven years ago";
        assert_eq!(jhash(text, 0), 0x1777_0551);
        assert_eq!(jhash(text, 1), 0xcd62_8161);
    }

    #[test]
    fn registers_are_padded_to_four_bytes() {
        assert_eq!(register(80, DataType::Port), [0, 80, 0, 0]);
        assert_eq!(register(0x0a00_0001, DataType::Ipv4), [10, 0, 0, 1]);
        assert_eq!(register(1, DataType::Mark), [1, 0, 0, 0]);
    }
}
