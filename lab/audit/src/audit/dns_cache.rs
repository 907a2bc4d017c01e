//! NodeLocal DNSCache: the node has the DNS Service's cluster IP, and takes its packets out of connection tracking, past
//! the proxy's rules.

use svclab_sim::network::{Flow, Outcomes, PacketVerdict};
use svclab_sim::trace::Event;

use super::Audit;

impl Audit<'_> {
    /// Whether the cache, not the proxy, answers the call.
    pub(super) fn is_of_dns_cache(&self, flow: &Flow, found: &Outcomes) -> bool {
        let ends_here = |verdict: &PacketVerdict| match verdict {
            PacketVerdict::Answered { by, at, .. } => *by == self.machines.node && *at == flow.to,
            // Without the sockets it is unknown what listens.
            PacketVerdict::Refused { by, at, .. } => {
                self.snapshot.sockets.is_none() && *by == self.machines.node && *at == flow.to
            }
            _ => false,
        };
        // `-j NOTRACK`, `-j CT --notrack`, or nft's `notrack`.
        let is_untracked = |event: &Event| match event {
            Event::Matched(rule) | Event::NftMatched(rule) => rule.to_string().to_lowercase().contains("notrack"),
            _ => false,
        };
        self.known.dns_cache.contains(&flow.to.ip())
            && found.outcomes.iter().all(|one| ends_here(&one.verdict))
            && found.ways.iter().all(|(_, journey)| journey.request.trace.iter().any(is_untracked))
    }
}
