//! Reads `struct nlattr`.

use super::writer::HEADER;

/// `NLA_TYPE_MASK`, without flags (`include/uapi/linux/netlink.h`).
const TYPE_MASK: u16 = 0x3fff;

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The type.
    pub kind: u16,
    /// The value without padding.
    pub value: &'a [u8],
}

/// Attributes, up to a truncated one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the attributes in these bytes.
    pub fn new(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes(bytes)
    }

    /// Returns the attributes after `length` bytes.
    pub fn after_header(payload: &'a [u8], length: usize) -> Attributes<'a> {
        Attributes(payload.get(length..).unwrap_or_default())
    }

    /// Returns the last attribute of the type, like the kernel.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.filter(|attribute| attribute.kind == kind).last().map(|attribute| attribute.value)
    }

    /// Returns an attribute's attributes; empty without it.
    pub fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }

    fn array<const N: usize>(self, kind: u16) -> Option<[u8; N]> {
        self.get(kind)?.try_into().ok()
    }

    /// Returns one byte.
    pub fn u8(self, kind: u16) -> Option<u8> {
        self.array(kind).map(u8::from_ne_bytes)
    }

    /// Reads in host order.
    pub fn u16(self, kind: u16) -> Option<u16> {
        self.array(kind).map(u16::from_ne_bytes)
    }

    /// Reads in host order.
    pub fn u32(self, kind: u16) -> Option<u32> {
        self.array(kind).map(u32::from_ne_bytes)
    }

    /// Reads in network order.
    pub fn be16(self, kind: u16) -> Option<u16> {
        self.array(kind).map(u16::from_be_bytes)
    }

    /// Reads in network order.
    pub fn be32(self, kind: u16) -> Option<u32> {
        self.array(kind).map(u32::from_be_bytes)
    }

    /// Reads in network order.
    pub fn be64(self, kind: u16) -> Option<u64> {
        self.array(kind).map(u64::from_be_bytes)
    }

    /// Returns the text up to the first zero, if UTF-8.
    pub fn text(self, kind: u16) -> Option<&'a str> {
        text(self.get(kind)?)
    }
}

/// Returns the text up to the first zero, if UTF-8.
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
        self.0 = value.and_then(|_| self.0.get(length.next_multiple_of(4)..)).unwrap_or_default();
        Some(Attribute { kind: u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK, value: value? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::AttributeWriter;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_in_either_byte_order() {
        let mut writer = AttributeWriter::default();
        writer.put(1, &[7]);
        writer.put(2, &0x5356u16.to_ne_bytes());
        writer.put(3, &0x5356u32.to_ne_bytes());
        writer.nest(4, |writer| writer.put(5, &80u16.to_be_bytes()));
        let bytes = [&[9; 4], writer.bytes()].concat();
        let read = Attributes::after_header(&bytes, 4);
        assert_eq!((read.u8(1), read.u16(2), read.u32(3), read.u32(9)), (Some(7), Some(0x5356), Some(0x5356), None));
        assert_eq!((read.nested(4).be16(5), read.u8(3)), (Some(80), None));
        assert_eq!(Attributes::new(&writer.bytes()[..14]).u8(1), Some(7), "a truncated message");
    }

    proptest! {
        #[test]
        fn written_attributes_are_read_back(
            values in prop::collection::vec((0u16..0x4000, prop::collection::vec(any::<u8>(), 0..40)), 0..20)
        ) {
            let mut writer = AttributeWriter::default();
            values.iter().for_each(|(kind, value)| writer.put(*kind, value));
            let read: Vec<_> = Attributes::new(writer.bytes()).map(|a| (a.kind, a.value.to_vec())).collect();
            prop_assert_eq!(read, values);
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let attributes = Attributes::new(&bytes);
            let read: usize = attributes.map(|attribute| HEADER + attribute.value.len()).sum();
            prop_assert!(read <= bytes.len());
            let _ = (attributes.be32(1), attributes.be64(2), attributes.text(3), attributes.nested(4).count());
        }
    }
}
