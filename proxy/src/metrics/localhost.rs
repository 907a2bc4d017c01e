//! Node ports on loopback addresses in nftables mode.

use std::sync::Arc;

use prometheus::Error;
use tracing::debug;

use super::at_scrape::as_value;
use super::{AtScrape, Samples};
use crate::kernel;
use crate::mode::nftables::layout;
use crate::model::{Family, Protocol};
use crate::relay::stats::RelayStats;

pub fn listeners(families: Vec<(Family, Arc<RelayStats>)>) -> Result<AtScrape, Error> {
    let read = move || {
        let each = |count: fn(&RelayStats) -> u64| {
            families.iter().map(|(family, stats)| (vec![family.to_string()], as_value(count(stats)))).collect()
        };
        let accepted = |stats: &RelayStats| stats.connections_total.get();
        vec![each(|stats| stats.listeners.get()), each(|stats| stats.not_opened.get()), each(accepted)]
    };
    AtScrape::new(read)
        .gauge("kubeproxy_nftables_localhost_nodeport_listeners", "Node ports that are relayed", &["ip_family"])?
        .counter(
            "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
            "Tries to listen on a node port that failed",
            &["ip_family"],
        )?
        .counter(
            "kubeproxy_nftables_localhost_nodeports_accepted_packets_total",
            "Connections accepted on node ports of the loopback range",
            &["ip_family"],
        )
}

/// Counts node ports on loopback addresses that are rejected, because no relay serves their protocol.
pub fn rejected(families: impl IntoIterator<Item = Family>) -> Result<AtScrape, Error> {
    let families: Vec<Family> = families.into_iter().collect();
    let read = move || vec![families.iter().flat_map(|family| counted(*family)).collect()];
    AtScrape::slow(read).counter(
        "kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
        "Packets to node ports of UDP and SCTP on loopback addresses, which were refused",
        &["ip_family", "protocol"],
    )
}

fn counted(family: Family) -> Samples {
    let chains = Protocol::ALL.into_iter().filter_map(|of| Some((of, layout::localhost_refused(of)?)));
    let one = |(protocol, chain): (Protocol, &str)| {
        let packets = kernel::nftables::packets(family, layout::TABLE, chain);
        let packets = packets.inspect_err(|error| debug!(%error, "cannot read counters")).ok()?;
        Some((vec![family.to_string(), protocol.to_string().to_uppercase()], as_value(packets)))
    };
    chains.filter_map(one).collect()
}
