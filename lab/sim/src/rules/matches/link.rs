//! `mac` and `pkttype` (net/netfilter/xt_mac.c, xt_pkttype.c).

use std::fmt;

use super::super::Test;
use super::super::error::ParseResult;
use super::super::tokens::OptionReader;
use crate::names;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    pub(crate) fn parse(text: &str) -> Option<MacAddress> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
        }
        parts.next().is_none().then_some(MacAddress(bytes))
    }

    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Test<MacAddress>> {
        words.require("match mac", "--mac-source")?;
        words.test("an Ethernet address", MacAddress::parse)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A frame's destination type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PacketType {
    Unicast,
    Broadcast,
    Multicast,
}

const TYPES: [(&str, PacketType); 6] = [
    ("unicast", PacketType::Unicast),
    ("broadcast", PacketType::Broadcast),
    ("multicast", PacketType::Multicast),
    ("host", PacketType::Unicast),
    ("bcast", PacketType::Broadcast),
    ("mcast", PacketType::Multicast),
];

impl PacketType {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Test<PacketType>> {
        words.require("match pkttype", "--pkt-type")?;
        words.test("unicast, broadcast or multicast", |text| names::value(&TYPES, text))
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names::name(&TYPES, self))
    }
}
