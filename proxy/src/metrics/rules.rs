use std::sync::{Mutex, PoisonError};

use prometheus::Error;
use tracing::debug;

use super::at_scrape::as_value;
use super::{AtScrape, Samples};
use crate::kernel::iptables::{CountedRule, IptablesError};
use crate::kernel::writer::CounterReader;
use crate::mode::iptables_family::iptables::connections::{ConnectionCounts, CountKind, CountedPort};
use crate::mode::iptables_family::rules::{common, names};
use crate::model::{Family, ServiceSelection};
use crate::ruleset::Table;

/// Exports the number of INVALID packets that `KUBE-FORWARD` dropped, summed over all families as in kube-proxy.
pub fn invalid_packets(counters: Vec<CounterReader>) -> Result<AtScrape, Error> {
    let help = "Packets that conntrack called INVALID and that were dropped";
    AtScrape::slow(move || vec![sum(&counters, Table::Filter, names::FORWARD, "--ctstate INVALID")]).counter(
        "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
        help,
        &[],
    )
}

/// Exports how many connections to node ports on 127.0.0.1 were accepted. kube-proxy's metric has this name, too; its
/// rules in the nat table see the first packet of each connection.
pub fn localhost_node_ports(counters: Vec<CounterReader>) -> Result<AtScrape, Error> {
    AtScrape::slow(move || vec![sum(&counters, Table::Nat, names::MARK_MASQ, common::LOOPBACK_COUNT)]).counter(
        "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
        "Packets accepted on node ports of the loopback range, the first one of each connection",
        &[],
    )
}

/// Sums the packets of the chain's rules that contain `text`. Without such a rule there is no sample.
fn sum(counters: &[CounterReader], table: Table, chain: &str, text: &str) -> Samples {
    let rules = counters.iter().filter_map(|one| or_logged(one.of_chain(table, chain))).flatten();
    let packets: Vec<u64> = rules.filter(|rule| rule.rule.contains(text)).map(|rule| rule.packets).collect();
    if packets.is_empty() { Vec::new() } else { vec![(Vec::new(), as_value(packets.iter().sum()))] }
}

pub fn service_ports(counters: Vec<(Family, CounterReader)>, selection: ServiceSelection) -> Result<AtScrape, Error> {
    let state: Vec<_> =
        counters.into_iter().map(|(family, one)| (family, one, Mutex::new(ConnectionCounts::default()))).collect();
    let read = move || {
        let (mut connections, mut refused): (Samples, Samples) = Default::default();
        for (family, counters, known) in &state {
            // After a failure the metric keeps the previous counts.
            let Some(rules) = or_logged(of_both_tables(counters)) else { continue };
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let selected = known.update(rules).iter().filter(|(meter, _)| selection.contains(&meter.service));
            for (meter, count) in selected {
                let mut labels = labels(*family, meter);
                let count = as_value(*count);
                match reason(meter.sort) {
                    None => connections.push((labels, count)),
                    Some(reason) => {
                        labels.push(reason.to_owned());
                        refused.push((labels, count));
                    }
                }
            }
        }
        vec![connections, refused]
    };
    let labels = ["ip_family", "namespace", "service", "port", "protocol", "reason"];
    AtScrape::slow(read)
        .counter(
            "svcproxy_service_connections_total",
            "Connections (UDP: flows) forwarded to an endpoint of the service port",
            &labels[..5],
        )?
        .counter("svcproxy_service_refused_packets_total", "Packets to the service port that were refused", &labels)
}

fn of_both_tables(counters: &CounterReader) -> Result<Vec<CountedRule>, IptablesError> {
    let mut rules = counters.of_table(Table::Nat)?;
    rules.extend(counters.of_table(Table::Filter)?);
    Ok(rules)
}

fn labels(family: Family, meter: &CountedPort) -> Vec<String> {
    let CountedPort { service, port, protocol, .. } = meter.clone();
    vec![family.to_string(), service.namespace.into(), service.name.into(), port, protocol]
}

fn reason(sort: CountKind) -> Option<&'static str> {
    match sort {
        CountKind::Connection => None,
        CountKind::NoEndpoints => Some("no_endpoints"),
        CountKind::NoLocalEndpoints => Some("no_local_endpoints"),
        CountKind::SourceRange => Some("source_range"),
    }
}

/// Logs failures only for debugging: the sync logs them, too.
fn or_logged<T>(read: Result<T, IptablesError>) -> Option<T> {
    read.inspect_err(|error| debug!(%error, "cannot read counters")).ok()
}
