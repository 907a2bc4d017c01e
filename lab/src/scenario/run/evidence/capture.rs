//! A capture of a failed probe, which is sent once more for it.

use std::path::Path;
use std::time::Duration;

use svclab_cluster::traffic::probe::ClusterHost;
use svclab_netns::capture::{Capture, CapturedPacket};
use svclab_netns::pcap;

use super::super::feed::API_PORT;
use super::super::lab::Lab;
use crate::scenario::resolve::ProbePlan;

/// Bytes of each packet and packets of each node that are kept.
const SNAP_LENGTH: u32 = 256;
const MOST: usize = 1000;
/// How long silence is listened to: with the retransmission of a SYN after 1 s (RFC 6298).
const SILENCE: Duration = Duration::from_millis(1500);
/// Until what follows an answer (the end of its connection) has passed everywhere.
const REST: Duration = Duration::from_millis(50);
/// TCP's and IPv6's numbers in headers (IANA), and Ethernet's of IPv4 and IPv6.
const TCP: u8 = 6;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

impl Lab {
    /// Sends a request of a plan once more while every node's interfaces are listened to; returns what could not be kept. Which
    /// nodes it passes is what is to be found out, so all of them listen.
    pub(super) async fn capture(&self, plan: &ProbePlan, folder: &Path) -> Vec<String> {
        let mut not_kept = Vec::new();
        let mut open = Vec::new();
        for node in self.nodes() {
            match self.cluster.run(&ClusterHost::Node(node.clone()), Capture::open).await {
                Ok(Ok(capture)) => open.push((node, capture)),
                Ok(Err(error)) => not_kept.push(format!("the capture of {node}: {error}")),
                Err(error) => not_kept.push(format!("the capture of {node}: {error}")),
            }
        }
        not_kept.extend(self.again(plan).await.err().map(|error| format!("the probe for the capture: {error}")));
        tokio::time::sleep(REST).await;
        for (node, capture) in open {
            let packets = capture.packets(MOST, |packet| !is_of_api(packet));
            let path = folder.join(format!("capture-{node}.pcap"));
            let written = packets.and_then(|packets| std::fs::write(path, pcap::file(&packets, SNAP_LENGTH)));
            not_kept.extend(written.err().map(|error| format!("the capture of {node}: {error}")));
        }
        not_kept
    }

    async fn again(&self, plan: &ProbePlan) -> Result<(), super::super::LabError> {
        let mut probe = plan.probe.clone();
        probe.timeout = probe.timeout.min(SILENCE);
        self.route(plan.route.as_ref(), true).await?;
        let sent = self.cluster.probe(&probe).await;
        self.route(plan.route.as_ref(), false).await?;
        Ok(sent.map(drop)?)
    }
}

/// Whether a packet is between a proxy and the lab's API, which never rests.
fn is_of_api(packet: &CapturedPacket) -> bool {
    let bytes = &packet.bytes;
    let (protocol, header) = match packet.protocol {
        IPV4 => (bytes.get(9), bytes.first().map_or(0, |first| usize::from(first & 0xf) * 4)),
        IPV6 => (bytes.get(6), 40),
        _ => return false,
    };
    let port = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    protocol == Some(&TCP) && [header, header + 2].map(port).contains(&Some(API_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_proxies_ask_the_api_is_left_out() {
        let packet = |protocol: u8, to: u16| {
            let mut bytes = vec![0; 20];
            (bytes[0], bytes[9]) = (0x45, protocol);
            bytes.extend([0x9c, 0x40]);
            bytes.extend(to.to_be_bytes());
            let (address, length) = ([0; 8], bytes.len());
            let at = Duration::ZERO;
            CapturedPacket {
                at,
                interface: 1,
                protocol: IPV4,
                hardware: 1,
                direction: 0,
                address,
                address_length: 6,
                length,
                bytes,
            }
        };
        assert!(is_of_api(&packet(TCP, API_PORT)));
        assert!(!is_of_api(&packet(TCP, 80)) && !is_of_api(&packet(17, API_PORT)));
        assert!(!is_of_api(&CapturedPacket { bytes: vec![0x45], ..packet(TCP, API_PORT) }));
    }
}
