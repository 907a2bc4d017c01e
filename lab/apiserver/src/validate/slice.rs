use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde_json::json;

use super::super::error::Cause;
use super::super::selector::{is_dns_label, is_subdomain};

const MAX_ENDPOINTS: usize = 1_000;
const MAX_PORTS: usize = 20_000;
const MAX_ADDRESSES: usize = 100;
const MAX_HINTS: usize = 8;

const FAMILIES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn check(slice: &EndpointSlice, before: Option<&EndpointSlice>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if slice.address_type.is_empty() {
        causes.push(Cause::required("addressType", ""));
    } else if !FAMILIES.contains(&slice.address_type.as_str()) {
        causes.push(Cause::unsupported("addressType", &slice.address_type, &FAMILIES));
    }
    if before.is_some_and(|before| before.address_type != slice.address_type) {
        causes.push(Cause::invalid("addressType", &json!(slice.address_type), "field is immutable"));
    }
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    if endpoints.len() > MAX_ENDPOINTS {
        causes.push(too_many("endpoints", endpoints.len(), MAX_ENDPOINTS));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        one_endpoint(endpoint, &slice.address_type, &format!("endpoints[{index}]"), &mut causes);
    }
    ports(slice, &mut causes);
    causes
}

fn too_many(field: &str, count: usize, most: usize) -> Cause {
    let message = format!("Too many: {count}: must have at most {most} items");
    Cause { reason: "FieldValueTooMany", field: field.to_owned(), message }
}

fn one_endpoint(endpoint: &Endpoint, family: &str, field: &str, causes: &mut Vec<Cause>) {
    let list = format!("{field}.addresses");
    if endpoint.addresses.is_empty() {
        causes.push(Cause::required(list.clone(), "must contain at least 1 address"));
    }
    if endpoint.addresses.len() > MAX_ADDRESSES {
        causes.push(too_many(&list, endpoint.addresses.len(), MAX_ADDRESSES));
    }
    for (index, address) in endpoint.addresses.iter().enumerate() {
        let parsed = address.parse::<IpAddr>();
        let fits = match family {
            "IPv4" => parsed.as_ref().is_ok_and(IpAddr::is_ipv4),
            "IPv6" => parsed.as_ref().is_ok_and(IpAddr::is_ipv6),
            _ => is_subdomain(address),
        };
        let usable = parsed.is_ok_and(|ip| !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast());
        if !fits {
            let detail = format!("expected an address of type {family}");
            causes.push(Cause::invalid(list.clone(), &json!(address), &detail));
        } else if family != "FQDN" && !usable {
            let detail = "expected an address that is neither unspecified, loopback nor multicast";
            causes.push(Cause::invalid(format!("{list}[{index}]"), &json!(address), detail));
        }
    }
    if let Some(node) = endpoint.node_name.as_deref().filter(|node| !is_subdomain(node)) {
        causes.push(Cause::invalid(format!("{field}.nodeName"), &json!(node), "expected a node's name"));
    }
    let hints = endpoint.hints.clone().unwrap_or_default();
    for (name, count) in [
        ("forZones", hints.for_zones.map_or(0, |zones| zones.len())),
        ("forNodes", hints.for_nodes.map_or(0, |nodes| nodes.len())),
    ] {
        if count > MAX_HINTS {
            causes.push(too_many(&format!("{field}.hints.{name}"), count, MAX_HINTS));
        }
    }
}

fn ports(slice: &EndpointSlice, causes: &mut Vec<Cause>) {
    let ports = slice.ports.as_deref().unwrap_or_default();
    if ports.len() > MAX_PORTS {
        causes.push(too_many("ports", ports.len(), MAX_PORTS));
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let field = format!("ports[{index}]");
        let name = port.name.as_deref().unwrap_or_default();
        if !names.insert(name) {
            causes.push(Cause::duplicate(format!("{field}.name"), &json!(name)));
        }
        if !name.is_empty() && !is_dns_label(name, 63) {
            causes.push(Cause::invalid(format!("{field}.name"), &json!(name), "expected a DNS-1123 label"));
        }
        if let Some(protocol) = port.protocol.as_deref().filter(|protocol| !PROTOCOLS.contains(protocol)) {
            causes.push(Cause::unsupported(format!("{field}.protocol"), protocol, &PROTOCOLS));
        }
    }
}
