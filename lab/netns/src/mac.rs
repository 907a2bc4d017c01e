//! Derives MAC addresses from IP addresses.

use std::net::IpAddr;

/// A MAC address.
pub type Mac = [u8; 6];

/// The ends of a link, which need different MAC addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The interface with the IP address.
    Host,
    /// Its veth peer.
    Peer,
    /// A bridge with the address.
    Bridge,
}

/// Returns a locally administered address with the IPv4 address or a digest of the IPv6 address.
pub fn of(address: IpAddr, end: LinkEnd) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(v4) => v4.octets(),
        // FNV-1a, 32 bits.
        IpAddr::V6(v6) => v6
            .octets()
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
            .to_be_bytes(),
    };
    let family = if address.is_ipv4() { 0x04 } else { 0x06 };
    let end = match end {
        LinkEnd::Host => 0x02,
        LinkEnd::Peer => 0x0a,
        LinkEnd::Bridge => 0x0e,
    };
    [end, family, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_link_have_different_local_unicast_addresses() {
        for address in ["10.0.0.1", "fd00::1"] {
            let address: IpAddr = address.parse().unwrap();
            let ends = [LinkEnd::Host, LinkEnd::Peer, LinkEnd::Bridge].map(|end| of(address, end));
            for mac in ends {
                assert_eq!(mac[0] & 0b11, 0b10, "{mac:02x?}");
            }
            assert!(ends[0] != ends[1] && ends[1] != ends[2] && ends[0] != ends[2]);
        }
        assert_eq!(of("10.1.2.3".parse().unwrap(), LinkEnd::Host), [2, 4, 10, 1, 2, 3]);
    }
}
