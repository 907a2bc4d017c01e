//! Metrics of userspace mode's relays, and of relays for node ports on loopback addresses in nftables mode.

use std::sync::Arc;

use prometheus::Error;

use super::AtScrape;
use super::at_scrape::as_value;
use crate::model::Family;
use crate::relay::stats::RelayStats;

type LabelledCounts = Vec<(Option<&'static str>, u64)>;

pub fn metrics(families: Vec<(Family, Arc<RelayStats>)>) -> Result<AtScrape, Error> {
    let read = move || {
        let each = |of: &dyn Fn(&RelayStats) -> LabelledCounts| {
            let of_family = |(family, stats): &(Family, Arc<RelayStats>)| {
                let family = family.to_string();
                of(stats).into_iter().map(move |(label, count)| {
                    let labels = [family.clone()].into_iter().chain(label.map(str::to_owned)).collect();
                    (labels, as_value(count))
                })
            };
            families.iter().flat_map(of_family).collect::<Vec<_>>()
        };
        vec![
            each(&|s| vec![(None, s.listeners.get())]),
            each(&|s| vec![(Some("tcp"), s.connections.get()), (Some("udp"), s.associations.get())]),
            each(&|s| vec![(Some("tcp"), s.connections_total.get()), (Some("udp"), s.associations_total.get())]),
            each(&|s| vec![(Some("tcp"), s.bytes[0].get()), (Some("udp"), s.bytes[1].get())]),
            each(&|s| vec![(Some("refused"), s.refused.get()), (Some("timed_out"), s.timed_out.get())]),
            each(&|s| {
                vec![
                    (Some("no_backend"), s.failed.get()),
                    (Some("idle"), s.idle.get()),
                    (Some("evicted"), s.evicted.get()),
                    (Some("datagram"), s.dropped.get()),
                ]
            }),
            each(&|s| vec![(None, s.full.get())]),
        ]
    };
    let protocol = ["ip_family", "protocol"];
    let reason = ["ip_family", "reason"];
    AtScrape::new(read)
        .gauge("svcproxy_userspace_listeners", "Listening ports", &protocol[..1])?
        .gauge("svcproxy_userspace_connections", "Connections and UDP associations that are open", &protocol)?
        .counter("svcproxy_userspace_connections_total", "Connections and UDP associations so far", &protocol)?
        .counter("svcproxy_userspace_bytes_total", "Bytes relayed, in both directions", &protocol)?
        .counter("svcproxy_userspace_retries_total", "Backends that did not take a connection", &reason)?
        .counter("svcproxy_userspace_lost_total", "What was not relayed, or not to its end", &reason)?
        .counter("svcproxy_userspace_full_total", "Times that connections had to wait for descriptors", &protocol[..1])
}
