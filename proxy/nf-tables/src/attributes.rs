//! Attributes read where they stand. Nothing here panics or allocates, whatever the bytes.

use crate::writer::HEADER;

/// `NLA_TYPE_MASK`: a type without the flags for nesting and byte order (`include/uapi/linux/netlink.h`).
const TYPE: u16 = 0x3fff;

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Its value, without padding.
    pub value: &'a [u8],
}

/// Attributes one behind the other. What is cut off or has an impossible length ends them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Attributes in these bytes.
    pub fn new(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes(bytes)
    }

    /// The last of a type, as the kernel takes it where there are several.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.filter(|attribute| attribute.kind == kind).last().map(|attribute| attribute.value)
    }

    /// Attributes in an attribute; none where it is absent.
    pub fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }

    /// A number in the network's order.
    pub fn be32(self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// As [`Attributes::be32`], 64 bits.
    pub fn be64(self, kind: u16) -> Option<u64> {
        Some(u64::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// Text up to its final zero, if it is UTF-8.
    pub fn text(self, kind: u16) -> Option<&'a str> {
        text(self.get(kind)?)
    }
}

/// Text up to the first zero, if it is UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(bytes.get(..end)?).ok()
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let (header, _) = self.0.split_first_chunk::<HEADER>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = self.0.get(HEADER..length);
        // An impossible length: what follows cannot be found.
        self.0 = value.and_then(|_| self.0.get(length.next_multiple_of(4)..)).unwrap_or_default();
        Some(Attribute { kind: u16::from_ne_bytes([header[2], header[3]]) & TYPE, value: value? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::Writer;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec((0u16..0x4000, prop::collection::vec(any::<u8>(), 0..40)), 0..20)) {
            let mut writer = Writer::default();
            values.iter().for_each(|(kind, value)| writer.put(*kind, value));
            let read: Vec<_> = Attributes::new(&writer.bytes).map(|a| (a.kind, a.value.to_vec())).collect();
            prop_assert_eq!(read, values);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let attributes = Attributes::new(&bytes);
            let read: usize = attributes.map(|attribute| HEADER + attribute.value.len()).sum();
            prop_assert!(read <= bytes.len());
            let _ = (attributes.be32(1), attributes.be64(2), attributes.text(3), attributes.nested(4).count());
        }
    }
}
