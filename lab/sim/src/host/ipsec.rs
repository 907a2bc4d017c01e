//! Policies of IPsec. Transformations are not modelled; a packet that a policy takes has an unknown outcome.

use std::fmt;

use super::Host;
use crate::masked::Masked;
use crate::packet::Packet;
use crate::protocol::Protocol;

/// The packets that a policy applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpsecDirection {
    /// Packets that leave this machine, forwarded ones included.
    Out,
    /// Packets for this machine.
    In,
    /// Packets that are forwarded.
    Forward,
}

/// A policy of IPsec (ip-xfrm(8)).
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct IpsecPolicy {
    pub direction: IpsecDirection,
    pub from: Masked,
    pub to: Masked,
    /// `None`: all protocols.
    pub protocol: Option<Protocol>,
    /// Whether conditions that are not modelled narrow the policy.
    pub narrower: bool,
    /// Whether packets pass unchanged: action `allow` without templates.
    pub bypass: bool,
}

impl fmt::Display for IpsecPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            IpsecDirection::Out => "out",
            IpsecDirection::In => "in",
            IpsecDirection::Forward => "fwd",
        };
        write!(f, "the IPsec policy from {} to {} (dir {direction})", self.from, self.to)
    }
}

impl Host {
    /// Returns the policy that may transform or drop the packet (`xfrm_policy_lookup`).
    pub(crate) fn ipsec_policy(&self, direction: IpsecDirection, packet: &Packet) -> Option<&IpsecPolicy> {
        let matching = self.ipsec.iter().filter(|policy| {
            policy.direction == direction
                && policy.from.contains(packet.source)
                && policy.to.contains(packet.destination)
                && policy.protocol.is_none_or(|protocol| protocol == packet.protocol())
        });
        matching.take_while(|policy| !policy.bypass || policy.narrower).find(|policy| !policy.bypass)
    }
}
