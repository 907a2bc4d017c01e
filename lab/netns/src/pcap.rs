//! Capture files (draft-ietf-opsawg-pcap) with each packet's interface.

use std::time::Duration;

use super::capture::CapturedPacket;

/// Magic number for microseconds and native byte order.
const MAGIC: u32 = 0xa1b2_c3d4;
const VERSION: [u16; 2] = [2, 4];
/// The link type of `tcpdump -i any`.
const LINUX_SLL2: u32 = 276;

/// Returns a complete file.
#[must_use]
pub fn file(packets: &[CapturedPacket], snap_length: u32) -> Vec<u8> {
    let mut file = head(snap_length);
    for packet in packets {
        record(&mut file, packet, snap_length);
    }
    file
}

/// Returns the file header.
#[must_use]
pub fn head(snap_length: u32) -> Vec<u8> {
    let mut file = MAGIC.to_ne_bytes().to_vec();
    file.extend(VERSION.iter().flat_map(|part| part.to_ne_bytes()));
    file.extend([0; 8]);
    file.extend(snap_length.to_ne_bytes());
    file.extend(LINUX_SLL2.to_ne_bytes());
    file
}

/// Appends a packet.
pub fn record(file: &mut Vec<u8>, packet: &CapturedPacket, snap_length: u32) {
    let header = header(packet);
    let most = usize::try_from(snap_length).unwrap_or(usize::MAX).saturating_sub(header.len());
    let kept = &packet.bytes[..packet.bytes.len().min(most)];
    let length = |bytes: usize| u32::try_from(header.len() + bytes).unwrap_or(u32::MAX);
    let since: Duration = packet.at;
    let seconds = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
    for number in [seconds, since.subsec_micros(), length(kept.len()), length(packet.length)] {
        file.extend(number.to_ne_bytes());
    }
    file.extend(header);
    file.extend(kept);
}

fn header(packet: &CapturedPacket) -> Vec<u8> {
    let mut header = packet.protocol.to_be_bytes().to_vec();
    header.extend([0; 2]);
    header.extend(packet.interface.to_be_bytes());
    header.extend(packet.hardware.to_be_bytes());
    header.push(packet.direction);
    header.push(packet.address_length);
    header.extend(packet.address);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_header_and_snap_length() {
        let packet = CapturedPacket {
            at: Duration::new(7, 5_000),
            interface: 3,
            protocol: 0x0800,
            hardware: 1,
            direction: 4,
            address: [2, 0, 0, 0, 0, 1, 0, 0],
            address_length: 6,
            length: 100,
            bytes: vec![0x45; 100],
        };
        let file = file(&[packet], 50);
        assert_eq!(file.len(), 24 + 16 + 50);
        let number = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap_or_default());
        assert_eq!([number(0), number(16), number(20)], [MAGIC, 50, LINUX_SLL2]);
        assert_eq!([number(24), number(28), number(32), number(36)], [7, 5, 50, 120]);
        assert_eq!(file[40..60], [8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
    }
}
