use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

use super::super::syntax::{
    Checked, address, label, label_value, not_special, one_of, port, protocol, qualified_name, subdomain,
};
use super::{Findings, metadata};
use crate::model::LABEL_SERVICE_NAME;

/// The number of endpoints and ports is not limited: the API has raised its limits before.
pub(in super::super) fn slice(slice: &mut EndpointSlice) -> Findings {
    let mut findings = Findings::default();
    metadata::namespaced(&mut slice.metadata, subdomain, &mut findings);
    let labels = slice.metadata.labels.as_ref();
    if let Some(service) = labels.and_then(|l| l.get(LABEL_SERVICE_NAME)) {
        findings.check(|| format!("metadata.labels[{LABEL_SERVICE_NAME}]"), label(service));
    }
    let known = one_of(&slice.address_type, &["IPv4", "IPv6", "FQDN"]);
    if let Some(entries) = &mut slice.ports {
        ports(entries, &mut findings);
    }
    let endpoints = slice.endpoints.get_or_insert_default();
    if let Err(message) = known {
        // The proxy cannot use addresses of an unknown type.
        findings.remark("addressType", message);
        endpoints.clear();
        "FQDN".clone_into(&mut slice.address_type);
    }
    let (family, mut number) = (slice.address_type.as_str(), 0..);
    endpoints.retain_mut(|entry| {
        let i = number.next().unwrap_or(0);
        endpoint(entry, family, &|field| format!("endpoints[{i}].{field}"), &mut findings)
    });
    findings
}

fn ports(ports: &mut Vec<EndpointPort>, findings: &mut Findings) {
    let mut names = BTreeSet::new();
    let mut number = 0..;
    ports.retain_mut(|entry| {
        let i = number.next().unwrap_or(0);
        let fault = endpoint_port(entry, &|field| format!("ports[{i}].{field}"), &mut names, findings);
        fault.map_err(|(field, message)| findings.remark(field, message)).is_ok()
    });
}

/// Returns field and message of a fault.
fn endpoint_port(
    entry: &mut EndpointPort,
    at: &dyn Fn(&str) -> String,
    names: &mut BTreeSet<String>,
    findings: &mut Findings,
) -> Result<(), (String, String)> {
    let in_field = |field: &str| {
        let field = at(field);
        move |message: String| (field, message)
    };
    let name = entry.name.as_deref().unwrap_or_default();
    if !name.is_empty() {
        label(name).map_err(in_field("name"))?;
    }
    let protocol_name = entry.protocol.get_or_insert_with(|| "TCP".to_owned());
    protocol(protocol_name).map_err(in_field("protocol"))?;
    if let Some(number) = entry.port {
        port(number).map_err(in_field("port"))?;
    }
    findings.drop_if_invalid(|| at("appProtocol"), &mut entry.app_protocol, |name| qualified_name(name));
    if names.insert(name.to_owned()) {
        return Ok(());
    }
    let message = match name {
        "" => "is missing: only one port may go without a name".to_owned(),
        name => format!("the name {} is taken by an earlier port", super::super::problem::quote(name)),
    };
    Err((at("name"), message))
}

/// Returns whether the address is valid.
fn endpoint(entry: &mut Endpoint, family: &str, at: &dyn Fn(&str) -> String, findings: &mut Findings) -> bool {
    let mut number = 0..;
    let before = entry.addresses.len();
    entry.addresses.retain_mut(|text| {
        let i = number.next().unwrap_or(0);
        let canonical = endpoint_address(text, family).map(|canonical| *text = canonical);
        canonical.map_err(|message| findings.remark(format!("{}[{i}]", at("addresses")), message)).is_ok()
    });
    if entry.addresses.is_empty() {
        if before == 0 {
            findings.remark(at("addresses"), "has no address");
        }
        return false;
    }
    // Node and zone are only compared with this node's: an invalid name matches none.
    findings.drop_if_invalid(|| at("nodeName"), &mut entry.node_name, |name| subdomain(name));
    findings.drop_if_invalid(|| at("hostname"), &mut entry.hostname, |name| label(name));
    findings.drop_if_invalid(|| at("zone"), &mut entry.zone, |zone| label_value(zone));
    let Some(hints) = &mut entry.hints else { return true };
    for (i, zone) in hints.for_zones.iter_mut().flatten().enumerate() {
        if let Err(message) = named_zone(&zone.name) {
            findings.remark(at(&format!("hints.forZones[{i}].name")), message);
            zone.name.clear();
        }
    }
    for (i, node) in hints.for_nodes.iter_mut().flatten().enumerate() {
        if let Err(message) = subdomain(&node.name) {
            findings.remark(at(&format!("hints.forNodes[{i}].name")), message);
            node.name.clear();
        }
    }
    true
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
