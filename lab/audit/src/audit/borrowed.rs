//! Sources that MASQUERADE borrows: the outgoing interface has no IPv4 address, so that the kernel takes the first one of
//! another interface (`inet_select_addr`, net/ipv4/devinet.c; kubernetes#133024).

use std::net::SocketAddr;

use svclab_oracle::{Promise, PromisedVerdict, Rule};
use svclab_sim::host::{Host, RouteTo};
use svclab_sim::network::{Outcomes, PacketVerdict};

use crate::cluster::KnownAddresses;
use crate::judge::{Fault, FaultKind};

/// Returns a fault for each endpoint of another node that sees an address which the Node object does not name. A local
/// endpoint replies to any address of the node.
pub(super) fn faults(node: &Host, known: &KnownAddresses, promise: &Promise, found: &Outcomes) -> Vec<Fault> {
    let (PromisedVerdict::Deliver(delivery), Some(declared)) = (&promise.verdict, known.nodes.get(&known.node)) else {
        return Vec::new();
    };
    if promise.rests_on(Rule::MasqueradeSource) {
        return Vec::new();
    }
    let is_masqueraded = |at| delivery.backends.iter().any(|backend| backend.address == at && backend.masqueraded);
    let is_remote = |at: SocketAddr| {
        let endpoint = known.endpoints.get(&at.ip()).and_then(|endpoint| endpoint.node.as_ref());
        endpoint.is_some_and(|on| *on != known.node)
    };
    let fault = |verdict: &PacketVerdict| {
        let (PacketVerdict::Answered { at, saw, .. } | PacketVerdict::Unanswered { at, saw, .. }) = verdict else {
            return None;
        };
        let source = saw.ip();
        if !source.is_ipv4() || declared.contains(&source) || !is_masqueraded(*at) || !is_remote(*at) {
            return None;
        }
        let interface = without_address(node, *at)?;
        let why = "which MASQUERADE takes from another interface, because";
        let says = format!("{at} sees {source}, {why} {interface} has no IPv4 address: set masqueradeSource");
        Some(Fault { kind: FaultKind::Source, says, found: Some(verdict.clone()) })
    };
    found.outcomes.iter().filter_map(|one| fault(&one.verdict)).collect()
}

fn without_address(node: &Host, to: SocketAddr) -> Option<String> {
    match node.place_of(to.ip()) {
        RouteTo::Out { interface, .. } => {
            let has_one = node.addresses_of(&interface).iter().any(|address| address.ip.is_ipv4());
            (!has_one).then_some(interface)
        }
        RouteTo::Itself | RouteTo::Nowhere => None,
    }
}
