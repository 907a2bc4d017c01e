//! Traffic of service ports in nftables mode, by named counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nf_tables::Counter;
use prometheus::Error;
use tracing::debug;

use super::at_scrape::as_value;
use super::{AtScrape, Samples};
use crate::kernel;
use crate::mode::nftables::counters::{CounterKind, parse};
use crate::mode::nftables::layout;
use crate::model::{Family, ServicePortName};

const LABELS: [&str; 6] = ["ip_family", "namespace", "service", "port", "protocol", "direction"];

/// One dump of counters per family and scrape. `families` come with the number of service ports that are left out.
pub fn service_ports(families: Vec<(Family, Arc<AtomicUsize>)>) -> Result<AtScrape, Error> {
    let read = move || {
        let (mut connections, mut packets, mut bytes): (Samples, Samples, Samples) = Default::default();
        let mut left_out = Samples::new();
        for (family, number) in &families {
            left_out.push((vec![family.to_string()], as_value(number.load(Ordering::Relaxed) as u64)));
            let read = kernel::nftables::counters(*family, layout::TABLE);
            let Ok(counters) = read.inspect_err(|error| debug!(%error, "cannot read counters")) else { continue };
            for (labels, kind, counter) in counters.into_iter().filter_map(|one| labelled(*family, one)) {
                let direction = match kind {
                    CounterKind::Connections => {
                        connections.push((labels, as_value(counter.packets)));
                        continue;
                    }
                    CounterKind::Original => "original",
                    CounterKind::Reply => "reply",
                };
                let labels = [labels, vec![direction.to_owned()]].concat();
                packets.push((labels.clone(), as_value(counter.packets)));
                bytes.push((labels, as_value(counter.bytes)));
            }
        }
        vec![connections, packets, bytes, left_out]
    };
    AtScrape::slow(read)
        .counter(
            "svcproxy_service_connections_total",
            "Connections (UDP: flows) forwarded to an endpoint of the service port",
            &LABELS[..5],
        )?
        .counter("svcproxy_service_packets_total", "Packets of the service port's connections", &LABELS)?
        .counter("svcproxy_service_bytes_total", "Bytes of these packets, with the IP header", &LABELS)?
        .gauge(
            "svcproxy_service_counters_left_out",
            "Selected service ports that are not counted, because there are too many",
            &LABELS[..1],
        )
}

fn labelled(family: Family, (name, counter): (String, Counter)) -> Option<(Vec<String>, CounterKind, Counter)> {
    let (kind, port) = parse(&name)?;
    let protocol = port.protocol.to_string();
    let ServicePortName { service, port, .. } = port;
    let labels = vec![family.to_string(), service.namespace.into(), service.name.into(), port.into(), protocol];
    Some((labels, kind, counter))
}
