//! Targets of steps without requests to a service: scans, health checks, published addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::{ObjectKey, Store};
use svclab_cluster::traffic::probe::ClusterHost;

use super::{ClientRoute, SILENCE, addresses, aim};
use crate::expect::Mismatch;
use crate::scenario::error::Problem;
use crate::scenario::file::{ExpectFile, OneFamily, ProbeFile, ProtocolFile, ScanFile};

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

/// Returns the address of a service's health check on a node, of `family` or else of the first family.
pub(in crate::scenario) fn health_check(
    store: &Store,
    node: &str,
    service: &ObjectKey,
    family: Option<&Spanned<OneFamily>>,
) -> Result<SocketAddr, Problem> {
    let problem = |message: String| Problem::new(Location::UNKNOWN, message);
    let object = store.service(service).map_err(|error| problem(error.to_string()))?;
    let port =
        object.spec.as_ref().and_then(|spec| spec.health_check_node_port).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or_else(|| {
        problem(format!(
            "service {service} has no healthCheckNodePort: it is for type LoadBalancer with externalTrafficPolicy Local"
        ))
    })?;
    let addresses = addresses(store, &ClusterHost::Node(node.to_owned())).map_err(problem)?;
    let wanted = |address: &&IpAddr| family.is_none_or(|family| address.is_ipv4() == (family.value == OneFamily::Ipv4));
    let address = addresses.iter().find(wanted);
    let address = address.ok_or_else(|| {
        let at = family.map_or(Location::UNKNOWN, |family| family.referenced);
        Problem::new(at, format!("node {node} has no address of that family"))
    })?;
    Ok(SocketAddr::new(*address, port))
}

pub(in crate::scenario) fn vip(store: &Store, service: &ObjectKey) -> Result<IpAddr, Problem> {
    let problem = |message: String| Problem::new(Location::UNKNOWN, message);
    store.service(service).map_err(|error| problem(error.to_string()))?;
    let vips = store.vips_of(service);
    vips.first()
        .map(|vip| vip.address)
        .ok_or_else(|| problem(format!("service {service} has no load-balancer address")))
}
