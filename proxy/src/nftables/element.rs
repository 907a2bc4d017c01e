//! Elements of sets and maps. Keys and values are the kernel's bytes: a cluster has a hundred thousand of them, and they are compared
//! with what the kernel reports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::Name;
use super::rule::Verdict;
use crate::model::Protocol;

/// Bytes of the longest key: two IPv6 addresses, a protocol and a port.
const LONGEST: usize = 40;

/// A key, field by field, each padded to four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    length: u8,
    bytes: [u8; LONGEST],
}

impl Default for Key {
    fn default() -> Key {
        Key { length: 0, bytes: [0; LONGEST] }
    }
}

impl Key {
    /// The key with these bytes; what is longer than any key is cut off.
    pub fn from_bytes(bytes: &[u8]) -> Key {
        Key::default().with(bytes)
    }

    fn with(mut self, more: &[u8]) -> Key {
        let start = usize::from(self.length);
        let padded = more.len().next_multiple_of(4);
        for (place, byte) in self.bytes.iter_mut().skip(start).zip(more) {
            *place = *byte;
        }
        self.length = u8::try_from((start + padded).min(LONGEST)).unwrap_or_default();
        self
    }

    /// Followed by an address.
    #[must_use]
    pub fn address(self, address: IpAddr) -> Key {
        match address {
            IpAddr::V4(address) => self.with(&address.octets()),
            IpAddr::V6(address) => self.with(&address.octets()),
        }
    }

    /// Followed by a protocol.
    #[must_use]
    pub fn protocol(self, protocol: Protocol) -> Key {
        self.with(&[protocol.number()])
    }

    /// Followed by a port.
    #[must_use]
    pub fn port(self, port: u16) -> Key {
        self.with(&port.to_be_bytes())
    }

    /// Followed by a number, in the host's byte order.
    #[must_use]
    pub fn number(self, number: u32) -> Key {
        self.with(&number.to_ne_bytes())
    }

    /// The key before a number, and that number, which is its last field.
    pub fn split_number(&self) -> Option<(Key, u32)> {
        let (before, number) = self.bytes().split_last_chunk::<4>()?;
        Some((Key::from_bytes(before), u32::from_ne_bytes(*number)))
    }

    /// A port, which is the last field, and what is before it.
    fn split_port(bytes: &[u8]) -> Option<(&[u8], u16)> {
        let (before, [high, low, ..]) = bytes.split_last_chunk::<4>()?;
        Some((before, u16::from_be_bytes([*high, *low])))
    }

    /// The address and the port that this consists of.
    pub fn as_endpoint(&self) -> Option<SocketAddr> {
        let (before, port) = Key::split_port(self.bytes())?;
        Some(SocketAddr::new(address(before)?, port))
    }

    /// The protocol and the port that this consists of.
    pub fn as_node_port(&self) -> Option<(Protocol, u16)> {
        let (before, port) = Key::split_port(self.bytes())?;
        let [number, ..] = *before else { return None };
        Some((Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)?, port))
            .filter(|_| before.len() == 4)
    }

    /// The address, the protocol and the port that this consists of.
    pub fn as_frontend(&self) -> Option<(IpAddr, Protocol, u16)> {
        let (before, rest) = self.bytes().split_at_checked(usize::from(self.length).checked_sub(8)?)?;
        let (protocol, port) = Key::from_bytes(rest).as_node_port()?;
        Some((address(before)?, protocol, port))
    }

    /// The next key, of keys that are one number; none behind the last.
    pub fn following(&self) -> Option<Key> {
        self.stepped(u8::MAX, 0, |byte| byte + 1)
    }

    /// The key before, of keys that are one number; none before the first.
    pub fn preceding(&self) -> Option<Key> {
        self.stepped(0, u8::MAX, |byte| byte - 1)
    }

    /// The lowest byte that is not at its end is stepped on, and those below it begin anew.
    fn stepped(mut self, end: u8, begin: u8, step: fn(u8) -> u8) -> Option<Key> {
        for byte in self.bytes.get_mut(..usize::from(self.length))?.iter_mut().rev() {
            if *byte != end {
                *byte = step(*byte);
                return Some(self);
            }
            *byte = begin;
        }
        None
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// What an element has besides its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Nothing.
    None,
    /// In a set of ranges, the last key of the range.
    To(Key),
    /// An address and a port.
    Endpoint(Key),
    /// A verdict.
    Verdict(Verdict),
}

impl Value {
    /// An address and a port.
    pub fn endpoint(endpoint: SocketAddr) -> Value {
        Value::Endpoint(Key::default().address(endpoint.ip()).port(endpoint.port()))
    }

    /// On in this chain.
    pub fn goto(chain: Name) -> Value {
        Value::Verdict(Verdict::Goto(chain))
    }
}

/// An element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    /// The set or map that it is in.
    pub set: &'static str,
    /// Its key.
    pub key: Key,
    /// What it has besides.
    pub value: Value,
}

impl Element {
    /// An element of a set.
    pub fn of(set: &'static str, key: Key) -> Element {
        Element { set, key, value: Value::None }
    }

    /// A range of keys, the last field of which is this range of addresses.
    pub fn range(set: &'static str, before: Key, range: IpNet) -> Element {
        Element { set, key: before.address(range.network()), value: Value::To(before.address(range.broadcast())) }
    }
}

/// The address in these bytes.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_padded() {
        let key = Key::default().address("10.96.0.10".parse().unwrap()).protocol(Protocol::Tcp).port(80).number(1);
        let number = 1u32.to_ne_bytes();
        assert_eq!(key.bytes(), [&[10, 96, 0, 10, 6, 0, 0, 0, 0, 80, 0, 0][..], &number].concat());
        assert_eq!(Key::from_bytes(key.bytes()), key);
        assert_eq!(Key::from_bytes(&[7; 60]).bytes(), [7; LONGEST]);
    }

    #[test]
    fn keys_are_counted_as_numbers() {
        let key = |text: &str| Key::default().address(text.parse().unwrap());
        for (one, next) in [
            ("10.0.0.0", "10.0.0.1"),
            ("10.0.255.255", "10.1.0.0"),
            ("0.0.0.0", "0.0.0.1"),
            ("fd00::ffff", "fd00::1:0"),
        ] {
            assert_eq!(key(one).following(), Some(key(next)));
            assert_eq!(key(next).preceding(), Some(key(one)));
        }
        assert_eq!(
            (key("255.255.255.255").following(), key("::").preceding(), Key::default().following()),
            (None, None, None)
        );
    }
}
