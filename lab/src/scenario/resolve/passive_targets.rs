//! Targets of steps without requests to a service: scans, health checks, published addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::{ObjectKey, Store, family_name};
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_spec::PROXY_HEALTH_PORT;

use super::{ClientRoute, SILENCE, addresses, aim, family_of, place};
use crate::expect::Mismatch;
use crate::scenario::error::Problem;
use crate::scenario::file::{ExpectFile, HealthCheckFile, OneFamily, ProbeFile, ProtocolFile, ScanFile};

pub(in crate::scenario) struct ScanPlan {
    pub from: ClusterHost,
    pub address: IpAddr,
    pub route: Option<ClientRoute>,
    pub patience: Duration,
    pub ports: BTreeSet<u16>,
    pub open: BTreeSet<u16>,
}

pub(in crate::scenario) fn scan(store: &Store, file: &ScanFile, expect: &ExpectFile) -> Result<ScanPlan, Problem> {
    let Some(open) = &expect.open else {
        return Err(Problem::new(file.from.referenced, "scan: expected `open`, the list of ports that are to answer"));
    };
    let probe_file = ProbeFile {
        protocol: Some(ProtocolFile::Tcp),
        family: file.family.clone(),
        via: file.via.clone(),
        timeout: file.timeout,
        ..ProbeFile::plain(&file.from, &file.to)
    };
    let (probe, route) = aim(store, &probe_file, SILENCE)?;
    let (from, address, patience) = (probe.from, probe.to.ip(), probe.timeout);
    let ports: BTreeSet<u16> = match &file.ports {
        Some(ports) => ports.0.iter().flat_map(|ports| ports.value.0.clone()).collect(),
        None => (1..=u16::MAX).collect(),
    };
    if let Some(stray) = open.value.iter().find(|port| !ports.contains(port)) {
        return Err(Problem::new(open.referenced, format!("open: {stray} is none of the `ports` that are scanned")));
    }
    Ok(ScanPlan { from, address, route, patience, ports, open: open.value.iter().copied().collect() })
}

pub(in crate::scenario) fn judge_scan(plan: &ScanPlan, open: &BTreeSet<u16>) -> (String, Option<Mismatch>) {
    let seen = format!("open: {}", list(open));
    let wanted = || format!("of {} these TCP ports are open: {}", plan.address, list(&plan.open));
    let wrong = (*open != plan.open).then(|| Mismatch::new(wanted(), &seen));
    (seen, wrong)
}

fn list(ports: &BTreeSet<u16>) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    if ports.is_empty() { "none".to_owned() } else { ports.join(", ") }
}

/// Returns the asking host and the address of a service's health check, or of the proxy's own health, on a node.
pub(in crate::scenario) fn health_check(
    store: &Store,
    node: &str,
    file: &HealthCheckFile,
) -> Result<(ClusterHost, SocketAddr), Problem> {
    let problem = |message: String| Problem::new(Location::UNKNOWN, message);
    let from = match &file.from {
        Some(from) => place(store, from)?,
        None => ClusterHost::Node(node.to_owned()),
    };
    let port = match &file.service {
        Some(service) => health_check_node_port(store, &service.value.0)?,
        None => PROXY_HEALTH_PORT,
    };
    let addresses = addresses(store, &ClusterHost::Node(node.to_owned())).map_err(problem)?;
    let (family, at) = family_of(store, file.family.as_ref());
    let address = addresses.iter().find(|address| family_name(**address) == family);
    let address = address.ok_or_else(|| Problem::new(at, format!("node {node} has no {family} address")))?;
    Ok((from, SocketAddr::new(*address, port)))
}

fn health_check_node_port(store: &Store, service: &ObjectKey) -> Result<u16, Problem> {
    let problem = |message: String| Problem::new(Location::UNKNOWN, message);
    let object = store.service(service).map_err(|error| problem(error.to_string()))?;
    let port =
        object.spec.as_ref().and_then(|spec| spec.health_check_node_port).and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| {
        problem(format!(
            "service {service} has no healthCheckNodePort: it is for type LoadBalancer with externalTrafficPolicy Local"
        ))
    })
}

/// Returns a service's first published address, of `family` if that is given.
pub(in crate::scenario) fn vip(
    store: &Store,
    service: &ObjectKey,
    family: Option<&Spanned<OneFamily>>,
) -> Result<IpAddr, Problem> {
    let problem = |message: String| Problem::new(Location::UNKNOWN, message);
    store.service(service).map_err(|error| problem(error.to_string()))?;
    let mut vips = store.vips_of(service).into_iter().map(|vip| vip.address);
    let found = match family {
        None => vips.next(),
        Some(family) => vips.find(|vip| vip.is_ipv4() == (family.value == OneFamily::Ipv4)),
    };
    found.ok_or_else(|| problem(format!("service {service} has no such load-balancer address")))
}
