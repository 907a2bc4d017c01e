use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use svclab_netns::capture::CapturedPacket;

/// EtherTypes and IP protocol numbers (IANA).
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// `PACKET_OUTGOING` of a packet socket (`include/uapi/linux/if_packet.h`).
const OUTGOING: u8 = 4;
/// TCP flags (RFC 9293) in tcpdump's letters; `.` is ACK.
const FLAGS: [(u8, char); 6] = [(0x02, 'S'), (0x01, 'F'), (0x04, 'R'), (0x08, 'P'), (0x20, 'U'), (0x10, '.')];

/// Returns a packet's line: time (UTC), interface, direction, both ends, protocol, length.
pub(super) fn line(packet: &CapturedPacket, interface: &str) -> String {
    let seconds = packet.at.as_secs() % 86_400;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let at = format!("{hour:02}:{minute:02}:{second:02}.{:06}", packet.at.subsec_micros());
    let direction = if packet.direction == OUTGOING { "out" } else { "in " };
    let what = network(packet).unwrap_or_else(|| "cut short".to_owned());
    format!("{at} {interface} {direction} {what} ({} bytes)", packet.length)
}

fn network(packet: &CapturedPacket) -> Option<String> {
    let bytes = &packet.bytes;
    let (from, to, protocol, rest): (IpAddr, IpAddr, u8, &[u8]) = match packet.protocol {
        IPV4 => {
            let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
            let header = usize::from(bytes.first()? & 0xf) * 4;
            let offset = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]) & 0x1fff;
            let rest = if offset == 0 { bytes.get(header..)? } else { &[] };
            (address(12)?.into(), address(16)?.into(), *bytes.get(9)?, rest)
        }
        IPV6 => {
            let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?));
            (address(8)?.into(), address(24)?.into(), *bytes.get(6)?, bytes.get(40..)?)
        }
        ARP => return Some(arp(bytes)),
        other => return Some(format!("protocol {other:#06x}")),
    };
    let port = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let ends = |port: Option<(u16, u16)>| match port {
        Some((source, target)) => format!("{} > {}", end(from, source), end(to, target)),
        None => format!("{from} > {to}"),
    };
    let ports = port(0).zip(port(2));
    Some(match protocol {
        TCP => {
            let set = rest.get(13).copied().unwrap_or(0);
            let flags: String = FLAGS.iter().filter(|(bit, _)| set & bit != 0).map(|(_, sign)| *sign).collect();
            format!("{} TCP [{flags}]", ends(ports))
        }
        UDP => format!("{} UDP", ends(ports)),
        SCTP => format!("{} SCTP", ends(ports)),
        ICMP | ICMPV6 => {
            let name = if protocol == ICMP { "ICMP" } else { "ICMPv6" };
            format!("{} {name} type {} code {}", ends(None), rest.first().copied()?, rest.get(1).copied()?)
        }
        other => format!("{} protocol {other}", ends(None)),
    })
}

fn end(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

fn arp(bytes: &[u8]) -> String {
    let address = |at: usize| {
        let four = bytes.get(at..at + 4).and_then(|four| <[u8; 4]>::try_from(four).ok());
        four.map_or_else(|| "?".to_owned(), |four| Ipv4Addr::from(four).to_string())
    };
    match bytes.get(7) {
        Some(1) => format!("ARP who has {}, tell {}", address(24), address(14)),
        _ => format!("ARP {} answers", address(14)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn packet(protocol: u16, bytes: Vec<u8>) -> CapturedPacket {
        let (address, length) = ([0; 8], bytes.len());
        let at = Duration::new(86_400 + 3_661, 5_000);
        CapturedPacket {
            at,
            interface: 1,
            protocol,
            hardware: 1,
            direction: OUTGOING,
            address,
            address_length: 6,
            length,
            bytes,
        }
    }

    #[test]
    fn a_packet_is_a_line() {
        let mut syn = vec![0; 20];
        (syn[0], syn[9]) = (0x45, TCP);
        syn[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 96, 0, 7]);
        syn.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12]);
        let text = line(&packet(IPV4, syn.clone()), "eth0");
        assert_eq!(text, "01:01:01.000005 eth0 out 10.0.0.1:40000 > 10.96.0.7:80 TCP [S.] (34 bytes)");
        let mut dns = vec![0; 40];
        (dns[6], dns[23], dns[39]) = (UDP, 1, 2);
        dns.extend([0, 53, 0, 54]);
        assert!(line(&packet(IPV6, dns), "eth0").contains("[::1]:53 > [::2]:54 UDP"));
        assert!(line(&packet(IPV4, syn[..12].to_vec()), "eth0").contains("cut short"));
        assert!(line(&packet(0x1234, vec![]), "eth0").contains("protocol 0x1234"));
    }
}
