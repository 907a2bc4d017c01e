//! Service v1: type and ports. Addresses and policies have files of their own.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::syntax::{container_port_name, label, one_of, port, protocol, qualified_name, subdomain};
use super::{Findings, metadata, service_address, service_policy};

/// Whether a Service's `clusterIP` says that it is headless.
pub(super) const HEADLESS: &str = "None";

/// Checks a Service, fills in defaults and brings its addresses into canonical form.
pub(in super::super) fn service(service: &mut Service) -> Findings {
    let mut findings = Findings::default();
    metadata::namespaced(&mut service.metadata, label, &mut findings);
    let Some(spec) = service.spec.as_mut() else {
        findings.add("spec", "is missing");
        return findings;
    };
    let kind = spec.type_.get_or_insert_with(|| "ClusterIP".to_owned());
    let kinds = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
    findings.check(|| "spec.type".to_owned(), one_of(kind, &kinds));
    ports(spec, &mut findings);
    external_name(spec, &mut findings);
    service_address::spec(spec, &mut findings);
    service_address::status(service, &mut findings);
    if let Some(spec) = service.spec.as_mut() {
        service_policy::check(spec, &mut findings);
    }
    findings
}

/// Whether the Service is of this type.
pub(super) fn is(spec: &ServiceSpec, kind: &str) -> bool {
    spec.type_.as_deref() == Some(kind)
}

fn external_name(spec: &mut ServiceSpec, findings: &mut Findings) {
    let needed = is(spec, "ExternalName");
    let rule = |name: &String| match name.is_empty() && !needed {
        true => Ok(()),
        false => subdomain(name.strip_suffix('.').unwrap_or(name)),
    };
    findings.needless(|| "spec.externalName".to_owned(), &mut spec.external_name, rule);
}

fn ports(spec: &mut ServiceSpec, findings: &mut Findings) {
    let headless = spec.cluster_ip.as_deref() == Some(HEADLESS);
    let needless = headless || is(spec, "ExternalName");
    let has_node_ports = is(spec, "NodePort") || is(spec, "LoadBalancer");
    let ports = spec.ports.get_or_insert_default();
    if ports.is_empty() && !needless {
        findings.add("spec.ports", "has no port");
    }
    let several = ports.len() > 1;
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let mut node_ports = BTreeSet::new();
    for (i, entry) in ports.iter_mut().enumerate() {
        let at = |field: &str| format!("spec.ports[{i}].{field}");
        one_port(entry, &at, findings);
        let name = entry.name.as_deref().unwrap_or_default();
        if name.is_empty() && several {
            findings.add(at("name"), "is missing: each of several ports needs a name");
        } else if !name.is_empty() && !names.insert(name.to_owned()) {
            findings.add(at("name"), format!("the name {name:?} is taken by an earlier port"));
        }
        let protocol = entry.protocol.clone().unwrap_or_default();
        if !numbers.insert((entry.port, protocol.clone())) {
            let message = format!("{} {protocol} is taken by an earlier port", entry.port);
            findings.add(at("port"), message);
        }
        let Some(node_port) = entry.node_port.filter(|p| *p != 0) else {
            continue;
        };
        findings.check(|| at("nodePort"), port(node_port));
        if !has_node_ports {
            findings.add(at("nodePort"), "is only for the types NodePort and LoadBalancer");
        }
        if !node_ports.insert((node_port, protocol.clone())) {
            let message = format!("{node_port} {protocol} is taken by an earlier port");
            findings.add(at("nodePort"), message);
        }
    }
}

fn one_port(entry: &mut ServicePort, at: &dyn Fn(&str) -> String, findings: &mut Findings) {
    findings.check(|| at("port"), port(entry.port));
    let name = entry.protocol.get_or_insert_with(|| "TCP".to_owned());
    if name.is_empty() {
        "TCP".clone_into(name);
    }
    findings.check(|| at("protocol"), protocol(name));
    if let Some(name) = entry.name.as_deref().filter(|n| !n.is_empty()) {
        findings.check(|| at("name"), label(name));
    }
    findings.needless(|| at("appProtocol"), &mut entry.app_protocol, |name| qualified_name(name));
    // Slices say where a port leads.
    findings.needless(
        || at("targetPort"),
        &mut entry.target_port,
        |target| match target {
            IntOrString::Int(0) => Ok(()),
            IntOrString::Int(number) => port(*number),
            IntOrString::String(name) if name.is_empty() => Ok(()),
            IntOrString::String(name) => container_port_name(name),
        },
    );
    let said = |target: &IntOrString| match target {
        IntOrString::Int(number) => *number != 0,
        IntOrString::String(name) => !name.is_empty(),
    };
    entry.target_port = entry.target_port.take().filter(said).or(Some(IntOrString::Int(entry.port)));
}
