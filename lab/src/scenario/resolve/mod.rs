mod passive_targets;
mod promise;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::ServicePort;
use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::{ObjectKey, Store, family_name};
use svclab_cluster::traffic::probe::{ClusterHost, Probe};
use svclab_netns::dscp::MAX_DSCP;
use svclab_spec::Protocol;
use svclab_spec::nth_address;

use super::error::Problem;
use super::file::{ConnectFile, ExpectFile, OneFamily, ProbeFile, ProtocolFile, TrafficFile};
use super::values::{PlaceRef, ProbeTarget, ServiceFrontend};
use crate::expect::ProbePromise;

use promise::{count, wanted};

pub(super) use passive_targets::{ScanPlan, health_check, judge_scan, scan, vip};

/// The limit for a promised answer. Only a broken promise takes this long.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A longer silence counts as a drop. Within one machine an answer takes far less than a millisecond.
const SILENCE: Duration = Duration::from_millis(700);
/// The most requests at a time: each has a socket.
const MOST_AT_A_TIME: usize = 10_000;
const CONCURRENCY: usize = 16;
/// The largest request over a stream, in bytes: far more than any window.
const MOST_BYTES: usize = 1_000_000;
/// The largest datagram whose answer, which says more, fits into a datagram of 65,507 bytes.
const MOST_BYTES_OF_DATAGRAM: usize = 65_000;

#[derive(Debug, Clone)]
pub struct ProbePlan {
    pub probe: Probe,
    pub count: usize,
    pub concurrency: usize,
    pub route: Option<ClientRoute>,
    pub wanted: ProbePromise,
    /// Whether requests are independent draws: no affinity, changing source ports.
    pub drawn: bool,
    pub pair: bool,
}

pub(super) type ClientRoute = (String, IpNet, String);

pub(super) fn probe(store: &Store, file: &ProbeFile, expect: &ExpectFile) -> Result<ProbePlan, Problem> {
    let mut wanted = wanted(store, expect, &place(store, &file.from)?, file.from.referenced)?;
    let concurrency = at_a_time(file, &wanted)?;
    if let ProbePromise::Answered { turns: Some(at_a_time), .. } = &mut wanted {
        *at_a_time = concurrency;
    }
    let count = count(file.count.as_ref(), &wanted, expect)?;
    if count > 1 && file.source_port.is_some() {
        return Err(Problem::new(file.from.referenced, "sourcePort: one port serves one probe; leave out `count`"));
    }
    let patience = if matches!(wanted, ProbePromise::Dropped | ProbePromise::Unanswered) { SILENCE } else { PATIENCE };
    let (probe, route) = aim(store, file, patience)?;
    let pair = file.pair.as_ref().is_some_and(|pair| pair.value);
    if let Some(at) = file.pair.as_ref().filter(|_| pair && probe.protocol != Protocol::Udp) {
        return Err(Problem::new(
            at.referenced,
            format!("pair: two datagrams at once go over UDP, not {}", probe.protocol),
        ));
    }
    if let Some(written) = expect.saw_dscp.as_ref().filter(|_| probe.protocol == Protocol::Sctp) {
        return Err(Problem::new(written.referenced, "sawDscp: servers of SCTP cannot know it"));
    }
    // Pairs are not independent draws: the second datagram takes the first one's path.
    let drawn = file.source_port.is_none() && !pair && !has_affinity(store, &file.to.value);
    Ok(ProbePlan { drawn, pair, probe, count, concurrency, route, wanted })
}

fn bounded(concurrency: Option<usize>, at: Location) -> Result<Option<usize>, Problem> {
    match concurrency {
        Some(number) if number > MOST_AT_A_TIME => {
            Err(Problem::new(at, format!("concurrency: expected at most {MOST_AT_A_TIME} at a time")))
        }
        other => Ok(other),
    }
}

/// Returns the number of parallel requests, by default 1 for `turns`: parallel requests have no order.
fn at_a_time(file: &ProbeFile, wanted: &ProbePromise) -> Result<usize, Problem> {
    let written = bounded(file.concurrency, file.from.referenced)?;
    let ProbePromise::Answered { turns: Some(_), by, sticky, .. } = wanted else {
        return Ok(written.unwrap_or(CONCURRENCY).max(1));
    };
    if by.len() < 2 || *sticky {
        let message = "spread: turns are for two pods or more, and contradict `sticky`";
        return Err(Problem::new(file.from.referenced, message));
    }
    Ok(written.unwrap_or(1).max(1))
}

fn has_affinity(store: &Store, to: &ProbeTarget) -> bool {
    let of = |service: &ObjectKey| store.service(service).ok()?.spec.as_ref()?.session_affinity.clone();
    match to {
        ProbeTarget::Service { service, .. } => of(service).is_some_and(|affinity| affinity == "ClientIP"),
        ProbeTarget::Pod(..) | ProbeTarget::Node(..) | ProbeTarget::Address(_) => false,
    }
}

pub(super) fn aim(
    store: &Store,
    file: &ProbeFile,
    patience: Duration,
) -> Result<(Probe, Option<ClientRoute>), Problem> {
    let from = place(store, &file.from)?;
    let protocol = file.protocol.map(|protocol| match protocol {
        ProtocolFile::Tcp => Protocol::Tcp,
        ProtocolFile::Udp => Protocol::Udp,
        ProtocolFile::Sctp => Protocol::Sctp,
    });
    let (to, protocol) = target(store, &file.to, protocol, family_of(store, file.family.as_ref()))?;
    let route = route(store, &from, file.via.as_ref(), to)?;
    let most = if protocol == Protocol::Udp { MOST_BYTES_OF_DATAGRAM } else { MOST_BYTES };
    if let Some(bytes) = file.bytes.as_ref().filter(|bytes| bytes.value > most) {
        return Err(Problem::new(bytes.referenced, format!("bytes: expected at most {most} over {protocol}")));
    }
    let probe = Probe {
        from,
        to,
        protocol,
        source_address: file.source_address.map(|ip| ip.0),
        source_port: file.source_port,
        bytes: file.bytes.as_ref().map_or(0, |bytes| bytes.value),
        dscp: file.dscp.as_ref().map_or(Ok(0), dscp)?,
        timeout: file.timeout.map_or(patience, |span| span.0),
    };
    Ok((probe, route))
}

fn dscp(written: &Spanned<u8>) -> Result<u8, Problem> {
    let message = || Problem::new(written.referenced, format!("expected a DSCP of 0 to {MAX_DSCP}"));
    (written.value <= MAX_DSCP).then_some(written.value).ok_or_else(message)
}

pub(super) fn connect(store: &Store, file: &ConnectFile, expect: &ExpectFile) -> Result<ProbePlan, Problem> {
    let probe_file = ProbeFile {
        protocol: Some(ProtocolFile::Tcp),
        family: file.family.clone(),
        via: file.via.clone(),
        source_port: file.source_port,
        ..ProbeFile::plain(&file.from, &file.to)
    };
    let plan = probe(store, &probe_file, expect)?;
    match &plan.wanted {
        ProbePromise::Answered { by, .. } if by.iter().any(|(_, share)| share.is_some()) => {
            Err(Problem::new(file.name.referenced, "one connection shows no proportions"))
        }
        _ => Ok(plan),
    }
}

pub(super) fn traffic(store: &Store, file: &TrafficFile) -> Result<(ObjectKey, Probe, Option<ClientRoute>), Problem> {
    let ProbeTarget::Service { service, .. } = &file.to.value else {
        return Err(Problem::new(
            file.to.referenced,
            "traffic: expected a service, whose endpoints say who may answer",
        ));
    };
    let probe_file = ProbeFile {
        protocol: file.protocol,
        family: file.family.clone(),
        via: file.via.clone(),
        source_port: file.source_port.as_ref().map(|port| port.value),
        ..ProbeFile::plain(&file.from, &file.to)
    };
    let (probe, route) = aim(store, &probe_file, PATIENCE)?;
    bounded(file.concurrency, file.from.referenced)?;
    let alone = probe.protocol == Protocol::Udp && file.concurrency.is_none_or(|number| number == 1);
    if let Some(port) = file.source_port.as_ref().filter(|_| !alone) {
        let message =
            "traffic.sourcePort: one port has room for UDP alone, and one request at a time (`concurrency: 1`)";
        return Err(Problem::new(port.referenced, message));
    }
    Ok((service.clone(), probe, route))
}

/// Returns the promise of a `send` step; `None` if the connection must be dead.
pub(super) fn send(store: &Store, expect: &ExpectFile) -> Result<Option<ProbePromise>, Problem> {
    if expect.reset == Some(false) {
        return Err(Problem::new(Location::UNKNOWN, "reset is `true` or left out; say `answered` instead"));
    }
    if expect.alive == Some(false) || expect.reset == Some(true) {
        let more = expect.answered.is_some() || expect.same_as.is_some() || expect.differs_from.is_some();
        let message = "a connection that is not alive answers nothing";
        return if more { Err(Problem::new(Location::UNKNOWN, message)) } else { Ok(None) };
    }
    if expect.answered.is_some() {
        return wanted(store, expect, &ClusterHost::LoadBalancer, Location::UNKNOWN).map(Some);
    }
    Ok(Some(ProbePromise::Answered {
        by: everybody(store),
        source: None,
        sticky: false,
        turns: None,
        all: false,
        dscp: None,
    }))
}

fn everybody(store: &Store) -> Vec<(String, Option<f64>)> {
    store.cluster_spec().pods.iter().map(|pod| (format!("{}/{}", pod.namespace, pod.name), None)).collect()
}

pub(super) fn place(store: &Store, place: &Spanned<PlaceRef>) -> Result<ClusterHost, Problem> {
    addresses(store, &place.value.0)
        .map(|_| place.value.0.clone())
        .map_err(|message| Problem::new(place.referenced, message))
}

/// Returns a place's source addresses. A node also has the first address of each pod range.
pub(super) fn addresses(store: &Store, place: &ClusterHost) -> Result<Vec<IpAddr>, String> {
    let spec = store.cluster_spec();
    let none = |kind: &str, name: &str, known: Vec<&str>| {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("there is no {kind} {name:?} (there is: {known})")
    };
    match place {
        ClusterHost::Pod { namespace, name } => {
            let key = ObjectKey::new(Some(namespace), name);
            store.pod(&key).map(|pod| pod.addresses.clone()).map_err(|error| error.to_string())
        }
        ClusterHost::Node(name) => spec
            .nodes
            .iter()
            .find(|node| node.name == *name)
            .map(|node| {
                let own = node.pod_cidrs.iter().filter_map(|range| nth_address(*range, 1));
                let links = [spec.overlay_addresses(node), spec.second_addresses(node)].concat();
                node.addresses.iter().chain(&node.extra_addresses).copied().chain(own).chain(links).collect()
            })
            .ok_or_else(|| none("node", name, spec.nodes.iter().map(|node| node.name.as_str()).collect())),
        ClusterHost::Client(name) => spec
            .clients
            .iter()
            .find(|client| client.name == *name)
            .map(|client| client.addresses.clone())
            .ok_or_else(|| none("client", name, spec.clients.iter().map(|client| client.name.as_str()).collect())),
        ClusterHost::LoadBalancer => spec
            .load_balancer
            .map(|balancer| balancer.addresses)
            .ok_or_else(|| "this cluster has no load balancer; `cluster.loadBalancer: true` gives it one".to_owned()),
    }
}

fn family_of(store: &Store, written: Option<&Spanned<OneFamily>>) -> (&'static str, Location) {
    match written {
        Some(family) if family.value == OneFamily::Ipv4 => ("IPv4", family.referenced),
        Some(family) => ("IPv6", family.referenced),
        None => (
            store.cluster_spec().node_network.first().map_or("IPv4", |range| family_name(range.addr())),
            Location::UNKNOWN,
        ),
    }
}

fn target(
    store: &Store,
    to: &Spanned<ProbeTarget>,
    protocol: Option<Protocol>,
    (family, _): (&str, Location),
) -> Result<(SocketAddr, Protocol), Problem> {
    let problem = |message: String| Problem::new(to.referenced, message);
    let nth_of_family = |addresses: Vec<IpAddr>, number: usize, whose: String| {
        let found = addresses.into_iter().filter(|address| family_name(*address) == family).nth(number);
        let which = if number == 0 { String::new() } else { format!(" #{}", number + 1) };
        found.ok_or_else(|| problem(format!("{whose} has no {family} address{which}")))
    };
    let of_family = |addresses: Vec<IpAddr>, whose: String| nth_of_family(addresses, 0, whose);
    let default = protocol.unwrap_or(Protocol::Tcp);
    match &to.value {
        ProbeTarget::Address(address) => Ok((*address, default)),
        ProbeTarget::Pod(key, port) => {
            let pod = store.pod(key).map_err(|error| problem(error.to_string()))?;
            Ok((SocketAddr::new(of_family(pod.addresses.clone(), format!("pod {key}"))?, *port), default))
        }
        ProbeTarget::Node(name, port) => {
            let found = addresses(store, &ClusterHost::Node(name.clone())).map_err(problem)?;
            Ok((SocketAddr::new(of_family(found, format!("node {name}"))?, *port), default))
        }
        ProbeTarget::Service { frontend, service, port } => {
            let object = store.service(service).map_err(|error| problem(error.to_string()))?;
            let spec = object.spec.clone().unwrap_or_default();
            let entry = service_port(spec.ports.as_deref().unwrap_or_default(), port.as_deref(), protocol)
                .map_err(|message| problem(format!("service {service}: {message}")))?;
            let spoken = match entry.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            };
            let (candidates, nth, number) = match frontend {
                ServiceFrontend::ClusterIp => (parse_all(spec.cluster_ips), 0, entry.port),
                ServiceFrontend::ExternalIp(nth) => (parse_all(spec.external_ips), *nth, entry.port),
                ServiceFrontend::LoadBalancer(nth) => {
                    let vips = store.vips_of(service);
                    (vips.into_iter().map(|vip| vip.address).collect(), *nth, entry.port)
                }
                ServiceFrontend::NodePort(node) => {
                    let found = addresses(store, &ClusterHost::Node(node.clone())).map_err(problem)?;
                    let number =
                        entry.node_port.ok_or_else(|| problem(format!("service {service} has no node port there")))?;
                    (found, 0, number)
                }
            };
            let address = nth_of_family(candidates, nth, format!("that frontend of service {service}"))?;
            let number = u16::try_from(number).map_err(|_| problem(format!("{number} is no port")))?;
            Ok((SocketAddr::new(address, number), spoken))
        }
    }
}

fn parse_all(texts: Option<Vec<String>>) -> Vec<IpAddr> {
    texts.into_iter().flatten().filter_map(|text| text.parse().ok()).collect()
}

fn service_port<'a>(
    ports: &'a [ServicePort],
    wanted: Option<&str>,
    protocol: Option<Protocol>,
) -> Result<&'a ServicePort, String> {
    let spoken = |port: &ServicePort| {
        protocol.is_none_or(|protocol| port.protocol.as_deref() == Some(protocol.to_string().as_str()))
    };
    let named = |port: &ServicePort| {
        wanted.is_none_or(|wanted| port.name.as_deref() == Some(wanted) || port.port.to_string() == wanted)
    };
    let mut found = ports.iter().filter(|port| spoken(port) && named(port));
    match (found.next(), found.next()) {
        (Some(port), None) => Ok(port),
        (first, _) => {
            let list: Vec<String> = ports
                .iter()
                .map(|port| {
                    format!(
                        "{} {}/{}",
                        port.name.as_deref().unwrap_or("(unnamed)"),
                        port.port,
                        port.protocol.as_deref().unwrap_or("TCP")
                    )
                })
                .collect();
            let problem = if first.is_some() { "more than one port fits" } else { "no such port" };
            Err(format!("{problem}; it has: {}", list.join(", ")))
        }
    }
}

fn route(
    store: &Store,
    from: &ClusterHost,
    via: Option<&Spanned<String>>,
    to: SocketAddr,
) -> Result<Option<(String, IpNet, String)>, Problem> {
    let Some(via) = via else { return Ok(None) };
    let ClusterHost::Client(client) = from else {
        return Err(Problem::new(via.referenced, "via: only a client outside the cluster needs a route"));
    };
    let node = via.value.strip_prefix("node/").unwrap_or(&via.value).to_owned();
    addresses(store, &ClusterHost::Node(node.clone())).map_err(|message| Problem::new(via.referenced, message))?;
    Ok(Some((client.clone(), IpNet::from(to.ip()), node)))
}
