//! Netlink's attributes: kind, length, value (`struct nlattr`).

use netlink_packet_core::NlasIterator;

/// `NLA_F_NESTED`: the attribute holds attributes.
const NESTED: u16 = 1 << 15;
/// `NLA_F_NET_BYTEORDER`: the value is big-endian.
const NET_BYTEORDER: u16 = 1 << 14;

/// Attributes in the making.
#[derive(Debug, Clone, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// None yet.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// Any value.
    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Attributes {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// A byte.
    pub fn u8(self, kind: u16, value: u8) -> Attributes {
        self.bytes(kind, &[value])
    }

    /// In the host's order.
    pub fn u16(self, kind: u16, value: u16) -> Attributes {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// In the host's order.
    pub fn u32(self, kind: u16, value: u32) -> Attributes {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// In the network's order, and marked so.
    pub fn network(self, kind: u16, value: &[u8]) -> Attributes {
        self.bytes(kind | NET_BYTEORDER, value)
    }

    /// With its final zero.
    pub fn text(self, kind: u16, value: &str) -> Attributes {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Attributes in an attribute.
    pub fn nested(self, kind: u16, inner: &Attributes) -> Attributes {
        self.bytes(kind | NESTED, &inner.0)
    }

    /// How long they are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::kernel) fn append_to(&self, message: &mut Vec<u8>) {
        message.extend(&self.0);
    }
}

/// Attributes that came from the kernel, by kind.
#[derive(Debug, Clone, Default)]
pub struct Parsed(Vec<(u16, Vec<u8>)>);

impl Parsed {
    /// Reads attributes; what is cut off ends the reading.
    pub fn read(bytes: &[u8]) -> Parsed {
        let nlas = NlasIterator::new(bytes).map_while(Result::ok);
        Parsed(nlas.map(|nla| (nla.kind() & !(NESTED | NET_BYTEORDER), nla.value().to_vec())).collect())
    }

    /// The first of a kind.
    pub fn get(&self, kind: u16) -> Option<&[u8]> {
        self.0.iter().find(|(k, _)| *k == kind).map(|(_, value)| &value[..])
    }

    /// The first of a kind, read as attributes.
    pub fn nested(&self, kind: u16) -> Option<Parsed> {
        self.get(kind).map(Parsed::read)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.0.iter().map(|(kind, value)| (*kind, &value[..]))
    }

    /// A byte.
    pub fn u8(&self, kind: u16) -> Option<u8> {
        self.get(kind)?.first().copied()
    }

    /// In the host's order.
    pub fn u16(&self, kind: u16) -> Option<u16> {
        Some(u16::from_ne_bytes(self.get(kind)?.get(..2)?.try_into().ok()?))
    }

    /// In the host's order.
    pub fn u32(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.get(kind)?.get(..4)?.try_into().ok()?))
    }

    /// In the network's order.
    pub fn be16(&self, kind: u16) -> Option<u16> {
        Some(u16::from_be_bytes(self.get(kind)?.get(..2)?.try_into().ok()?))
    }

    /// In the network's order.
    pub fn be32(&self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(kind)?.get(..4)?.try_into().ok()?))
    }

    /// Up to its final zero.
    pub fn text(&self, kind: u16) -> Option<String> {
        let bytes = self.get(kind)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let inner = Attributes::new().text(3, "rr").network(4, &80u16.to_be_bytes());
        let written = Attributes::new().u8(1, 7).u32(2, 0x5356).nested(5, &inner);
        assert_eq!(written.len() % 4, 0);
        let mut bytes = Vec::new();
        written.append_to(&mut bytes);
        let read = Parsed::read(&bytes);
        assert_eq!((read.u8(1), read.u32(2), read.u32(9)), (Some(7), Some(0x5356), None));
        let inner = read.nested(5).unwrap();
        assert_eq!((inner.text(3).as_deref(), inner.be16(4)), (Some("rr"), Some(80)));
        // A message that was cut off yields what is whole.
        assert_eq!(Parsed::read(&bytes[..14]).u8(1), Some(7));
    }
}
