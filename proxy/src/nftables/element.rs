//! Keys and values are stored as the kernel's bytes, which take little memory and are compared with listed elements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::Name;
use super::rule::NftVerdict;
use crate::model::Protocol;

/// The longest key in bytes: two IPv6 addresses, protocol and port.
const LONGEST: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementKey {
    length: u8,
    bytes: [u8; LONGEST],
}

impl Default for ElementKey {
    fn default() -> ElementKey {
        ElementKey { length: 0, bytes: [0; LONGEST] }
    }
}

impl ElementKey {
    /// Cuts off bytes beyond the longest key.
    pub fn from_bytes(bytes: &[u8]) -> ElementKey {
        ElementKey::default().with(bytes)
    }

    fn with(mut self, more: &[u8]) -> ElementKey {
        let start = usize::from(self.length);
        let padded = more.len().next_multiple_of(4);
        for (place, byte) in self.bytes.iter_mut().skip(start).zip(more) {
            *place = *byte;
        }
        self.length = u8::try_from((start + padded).min(LONGEST)).unwrap_or_default();
        self
    }

    #[must_use]
    pub fn address(self, address: IpAddr) -> ElementKey {
        match address {
            IpAddr::V4(address) => self.with(&address.octets()),
            IpAddr::V6(address) => self.with(&address.octets()),
        }
    }

    #[must_use]
    pub fn protocol(self, protocol: Protocol) -> ElementKey {
        self.with(&[protocol.number()])
    }

    #[must_use]
    pub fn port(self, port: u16) -> ElementKey {
        self.with(&port.to_be_bytes())
    }

    /// Appends `ct direction`.
    #[must_use]
    pub fn direction(self, reply: bool) -> ElementKey {
        self.with(&[u8::from(reply)])
    }

    /// Appends the number in host byte order.
    #[must_use]
    pub fn number(self, number: u32) -> ElementKey {
        self.with(&number.to_ne_bytes())
    }

    pub fn split_number(&self) -> Option<(ElementKey, u32)> {
        let (before, number) = self.bytes().split_last_chunk::<4>()?;
        Some((ElementKey::from_bytes(before), u32::from_ne_bytes(*number)))
    }

    fn split_port(bytes: &[u8]) -> Option<(&[u8], u16)> {
        let (before, [high, low, ..]) = bytes.split_last_chunk::<4>()?;
        Some((before, u16::from_be_bytes([*high, *low])))
    }

    pub fn as_endpoint(&self) -> Option<SocketAddr> {
        let (before, port) = ElementKey::split_port(self.bytes())?;
        Some(SocketAddr::new(address(before)?, port))
    }

    /// Returns a connection's destination and its endpoint.
    pub fn as_flow(&self) -> Option<(SocketAddr, SocketAddr)> {
        let (destination, endpoint) = self.bytes().split_at(usize::from(self.length) / 2);
        let parse = |half| ElementKey::from_bytes(half).as_endpoint();
        Some((parse(destination)?, parse(endpoint)?))
    }

    pub fn as_node_port(&self) -> Option<(Protocol, u16)> {
        let (before, port) = ElementKey::split_port(self.bytes())?;
        let [number, ..] = *before else { return None };
        Some((Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)?, port))
            .filter(|_| before.len() == 4)
    }

    pub fn as_frontend(&self) -> Option<(IpAddr, Protocol, u16)> {
        let (before, rest) = self.bytes().split_at_checked(usize::from(self.length).checked_sub(8)?)?;
        let (protocol, port) = ElementKey::from_bytes(rest).as_node_port()?;
        Some((address(before)?, protocol, port))
    }

    pub fn following(&self) -> Option<ElementKey> {
        self.stepped(u8::MAX, 0, |byte| byte + 1)
    }

    pub fn preceding(&self) -> Option<ElementKey> {
        self.stepped(0, u8::MAX, |byte| byte - 1)
    }

    /// Steps the last byte that is not `end`; bytes after it become `begin`.
    fn stepped(mut self, end: u8, begin: u8, step: fn(u8) -> u8) -> Option<ElementKey> {
        for byte in self.bytes.get_mut(..usize::from(self.length))?.iter_mut().rev() {
            if *byte != end {
                *byte = step(*byte);
                return Some(self);
            }
            *byte = begin;
        }
        None
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementValue {
    None,
    /// The last key of a range.
    To(ElementKey),
    Endpoint(ElementKey),
    Verdict(NftVerdict),
    /// A counter's name.
    Counter(Name),
}

impl ElementValue {
    pub fn endpoint(endpoint: SocketAddr) -> ElementValue {
        ElementValue::Endpoint(ElementKey::default().address(endpoint.ip()).port(endpoint.port()))
    }

    pub fn goto(chain: Name) -> ElementValue {
        ElementValue::Verdict(NftVerdict::Goto(chain))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    pub set: &'static str,
    pub key: ElementKey,
    pub value: ElementValue,
}

impl Element {
    pub fn of(set: &'static str, key: ElementKey) -> Element {
        Element { set, key, value: ElementValue::None }
    }

    pub fn range(set: &'static str, before: ElementKey, range: IpNet) -> Element {
        Element {
            set,
            key: before.address(range.network()),
            value: ElementValue::To(before.address(range.broadcast())),
        }
    }
}

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
        let key =
            ElementKey::default().address("10.96.0.10".parse().unwrap()).protocol(Protocol::Tcp).port(80).number(1);
        let number = 1u32.to_ne_bytes();
        assert_eq!(key.bytes(), [&[10, 96, 0, 10, 6, 0, 0, 0, 0, 80, 0, 0][..], &number].concat());
        assert_eq!(ElementKey::from_bytes(key.bytes()), key);
        assert_eq!(ElementKey::from_bytes(&[7; 60]).bytes(), [7; LONGEST]);
    }

    #[test]
    fn keys_step_as_numbers() {
        let key = |text: &str| ElementKey::default().address(text.parse().unwrap());
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
            (key("255.255.255.255").following(), key("::").preceding(), ElementKey::default().following()),
            (None, None, None)
        );
    }
}
