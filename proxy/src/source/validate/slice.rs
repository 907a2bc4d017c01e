//! EndpointSlice v1 of discovery.k8s.io.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::super::syntax::{
    Checked, address, label, label_value, not_special, one_of, port, protocol, qualified_name, subdomain,
};
use super::{Findings, metadata};

/// The label that names the Service whose endpoints a slice holds.
pub(in super::super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Most endpoints of a slice (API reference, `EndpointSlice.endpoints`).
const ENDPOINTS: usize = 1000;
/// Most ports of a slice (API server's limit since Kubernetes 1.31; 100 before).
const PORTS: usize = 20_000;
/// Most addresses of an endpoint (API reference, `Endpoint.addresses`).
const ADDRESSES: usize = 100;

/// Checks a slice, fills in defaults and brings its addresses into canonical form.
pub(in super::super) fn slice(slice: &mut EndpointSlice) -> Findings {
    let mut findings = Findings::default();
    metadata::namespaced(&mut slice.metadata, subdomain, &mut findings);
    let labels = slice.metadata.labels.as_ref();
    if let Some(service) = labels.and_then(|l| l.get(SERVICE_NAME)) {
        findings.check(|| format!("metadata.labels[{SERVICE_NAME}]"), label(service));
    }
    let family = slice.address_type.as_str();
    findings.check(|| "addressType".to_owned(), one_of(family, &["IPv4", "IPv6", "FQDN"]));
    ports(slice.ports.as_deref_mut().unwrap_or_default(), &mut findings);
    let endpoints = slice.endpoints.as_deref_mut().unwrap_or_default();
    if endpoints.len() > ENDPOINTS {
        let message = format!("{} endpoints are more than {ENDPOINTS}", endpoints.len());
        findings.add("endpoints", message);
    }
    for (i, entry) in endpoints.iter_mut().enumerate() {
        endpoint(entry, family, &|field| format!("endpoints[{i}].{field}"), &mut findings);
    }
    findings
}

fn ports(ports: &mut [k8s_openapi::api::discovery::v1::EndpointPort], findings: &mut Findings) {
    if ports.len() > PORTS {
        findings.add("ports", format!("{} ports are more than {PORTS}", ports.len()));
    }
    let mut names = BTreeSet::new();
    for (i, entry) in ports.iter_mut().enumerate() {
        let at = |field: &str| format!("ports[{i}].{field}");
        let name = entry.name.as_deref().unwrap_or_default();
        if !name.is_empty() {
            findings.check(|| at("name"), label(name));
        }
        if !names.insert(name.to_owned()) {
            let message = match name {
                "" => "is missing: only one port may go without a name".to_owned(),
                name => format!("the name {} is taken by an earlier port", super::super::problem::quote(name)),
            };
            findings.add(at("name"), message);
        }
        if let Some(number) = entry.port {
            findings.check(|| at("port"), port(number));
        }
        let name = entry.protocol.get_or_insert_with(|| "TCP".to_owned());
        findings.check(|| at("protocol"), protocol(name));
        findings.needless(|| at("appProtocol"), &mut entry.app_protocol, |name| qualified_name(name));
    }
}

fn endpoint(entry: &mut Endpoint, family: &str, at: &dyn Fn(&str) -> String, findings: &mut Findings) {
    let count = entry.addresses.len();
    if count == 0 || count > ADDRESSES {
        let message = format!("has {count} addresses; it takes 1-{ADDRESSES}");
        findings.add(at("addresses"), message);
    }
    for (i, text) in entry.addresses.iter_mut().enumerate() {
        let field = || format!("{}[{i}]", at("addresses"));
        if let Some(canonical) = findings.check(field, endpoint_address(text, family)) {
            *text = canonical;
        }
    }
    if let Some(name) = entry.node_name.as_deref() {
        findings.check(|| at("nodeName"), subdomain(name));
    }
    findings.needless(|| at("hostname"), &mut entry.hostname, |name| label(name));
    // Hints name the zones that count.
    findings.needless(|| at("zone"), &mut entry.zone, |zone| label_value(zone));
    let hints = entry.hints.as_ref();
    for (i, zone) in hints.and_then(|h| h.for_zones.as_ref()).into_iter().flatten().enumerate() {
        findings.check(|| at(&format!("hints.forZones[{i}].name")), named_zone(&zone.name));
    }
    for (i, node) in hints.and_then(|h| h.for_nodes.as_ref()).into_iter().flatten().enumerate() {
        findings.check(|| at(&format!("hints.forNodes[{i}].name")), subdomain(&node.name));
    }
}

fn named_zone(name: &str) -> Checked {
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    label_value(name)
}

fn endpoint_address(text: &str, family: &str) -> Checked<String> {
    if family == "FQDN" {
        return subdomain(text.strip_suffix('.').unwrap_or(text)).map(|()| text.to_owned());
    }
    let ip = address(text)?;
    if matches!((family, ip.is_ipv4()), ("IPv4", false) | ("IPv6", true)) {
        return Err(format!("{ip} is no {family} address, as addressType says"));
    }
    not_special(ip)?;
    Ok(ip.to_string())
}
