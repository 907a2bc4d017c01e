//! Captures packets of a repeated failed probe.

use std::path::Path;
use std::time::Duration;

use svclab_cluster::traffic::probe::ClusterHost;
use svclab_netns::capture::{Capture, CapturedPacket};
use svclab_netns::pcap;

use super::super::feed::API_PORT;
use super::super::lab::KernelLab;
use crate::scenario::resolve::ProbePlan;

const SNAP_LENGTH: u32 = 256;
const MOST: usize = 1000;
/// The longest wait for an answer, which covers the retransmission of a SYN after 1 s (RFC 6298).
const SILENCE: Duration = Duration::from_millis(1500);
/// The time for packets after the answer.
const REST: Duration = Duration::from_millis(50);
const TCP: u8 = 6;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

impl KernelLab {
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
        not_kept.extend(self.send_again(plan).await.err().map(|error| format!("the probe for the capture: {error}")));
        tokio::time::sleep(REST).await;
        for (node, capture) in open {
            let packets = capture.packets(MOST, |packet| !is_of_api(packet));
            let path = folder.join(format!("capture-{node}.pcap"));
            let written = packets.and_then(|packets| std::fs::write(path, pcap::file(&packets, SNAP_LENGTH)));
            not_kept.extend(written.err().map(|error| format!("the capture of {node}: {error}")));
        }
        not_kept
    }

    async fn send_again(&self, plan: &ProbePlan) -> Result<(), super::super::LabError> {
        let mut probe = plan.probe.clone();
        probe.timeout = probe.timeout.min(SILENCE);
        self.route(plan.route.as_ref(), true).await?;
        let sent = self.cluster.probe(&probe).await;
        self.route(plan.route.as_ref(), false).await?;
        Ok(sent.map(drop)?)
    }
}

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
    fn packets_of_the_api_are_not_captured() {
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
