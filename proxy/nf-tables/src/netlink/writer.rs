//! Writes `struct nlattr`.

use crate::error::EncodeError;

/// `NLA_F_NESTED` (`include/uapi/linux/netlink.h`).
pub(crate) const NESTED: u16 = 1 << 15;
/// `NLA_F_NET_BYTEORDER`, which ipset demands.
pub const NET_BYTE_ORDER: u16 = 1 << 14;
/// `NFT_NAME_MAXLEN` - 1.
const NAME_MAX: usize = 255;
/// `NLA_HDRLEN`.
pub(super) const HEADER: usize = 4;

/// Encodes attributes, and keeps the first error.
#[derive(Debug, Clone, Default)]
pub struct AttributeWriter {
    pub(crate) bytes: Vec<u8>,
    error: Option<EncodeError>,
}

impl AttributeWriter {
    /// Starts with `header`, a multiple of four bytes.
    pub fn after_header(header: &[u8]) -> AttributeWriter {
        AttributeWriter { bytes: header.to_vec(), error: None }
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// The first error.
    pub fn error(&self) -> Option<&EncodeError> {
        self.error.as_ref()
    }

    pub(crate) fn take_error(&mut self) -> Option<EncodeError> {
        self.error.take()
    }

    /// Removes all attributes; keeps the allocation.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.error = None;
    }

    /// Writes an attribute.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        match u16::try_from(HEADER + value.len()) {
            Ok(length) => {
                self.bytes.extend_from_slice(&length.to_ne_bytes());
                self.bytes.extend_from_slice(&kind.to_ne_bytes());
                self.bytes.extend_from_slice(value);
                self.pad();
            }
            Err(_) => self.fail(EncodeError::AttributeTooLong { kind: kind & !NESTED, length: value.len() }),
        }
    }

    /// Writes in network order.
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Writes in network order.
    pub fn be64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Writes 1 to 255 bytes and a zero. Errors name `what`.
    pub fn name(&mut self, kind: u16, what: &'static str, name: &str) {
        if name.is_empty() || name.len() > NAME_MAX || name.as_bytes().contains(&0) {
            self.fail(EncodeError::Name { what, name: name.to_owned(), most: NAME_MAX });
            return;
        }
        let open = self.open(kind);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.close(open);
    }

    /// Writes nested attributes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut AttributeWriter)) {
        let open = self.open(kind | NESTED);
        fill(self);
        self.close(open);
    }

    /// Writes encoded attributes as nested ones.
    pub fn put_nested(&mut self, kind: u16, attributes: &[u8]) {
        self.put(kind | NESTED, attributes);
    }

    /// Begins an attribute that lasts until [`AttributeWriter::close`].
    pub fn open(&mut self, kind: u16) -> OpenAttribute {
        let open = OpenAttribute(self.bytes.len());
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        open
    }

    /// Ends an attribute.
    pub fn close(&mut self, open: OpenAttribute) {
        let length = self.bytes.len() - open.0;
        match (u16::try_from(length), self.bytes.get_mut(open.0..open.0 + HEADER)) {
            (Ok(length), Some([low, high, ..])) => [*low, *high] = length.to_ne_bytes(),
            (_, header) => {
                let kind = header.map_or(0, |header| u16::from_ne_bytes([header[2], header[3]]) & !NESTED);
                self.fail(EncodeError::AttributeTooLong { kind, length: length - HEADER });
            }
        }
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The offset of an open attribute.
#[derive(Debug)]
#[must_use]
pub struct OpenAttribute(usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_their_length_and_padding() {
        let mut writer = AttributeWriter::default();
        writer.nest(4, |writer| {
            writer.name(1, "table", "nat");
            writer.put(2, &[7]);
            writer.be32(3, 0x0102_0304);
        });
        let expected = [
            [28, 0, 4, 0x80].as_slice(),
            &[8, 0, 1, 0, b'n', b'a', b't', 0],
            &[5, 0, 2, 0, 7, 0, 0, 0],
            &[8, 0, 3, 0, 1, 2, 3, 4],
        ];
        assert_eq!(writer.bytes, expected.concat(), "on a little-endian machine");
        assert_eq!(writer.error(), None);
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let mut writer = AttributeWriter::default();
        writer.put(9, &[0; 65_532]);
        assert_eq!(writer.take_error(), Some(EncodeError::AttributeTooLong { kind: 9, length: 65_532 }));
        writer.put(9, &[0; 65_531]);
        assert_eq!(writer.error(), None, "the longest value that fits");
        writer.nest(5, |writer| writer.put(9, &[0; 65_531]));
        assert_eq!(writer.take_error(), Some(EncodeError::AttributeTooLong { kind: 5, length: 65_536 }));
        for name in ["", "a\0b", &"x".repeat(256)] {
            writer.name(1, "chain", name);
            let error = writer.take_error();
            assert_eq!(error, Some(EncodeError::Name { what: "chain", name: name.to_owned(), most: 255 }));
        }
        writer.name(1, "chain", &"x".repeat(255));
        assert_eq!(writer.error(), None);
    }
}
