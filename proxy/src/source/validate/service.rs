use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::syntax::{Checked, container_port_name, label, one_of, port, protocol, qualified_name, subdomain};
use super::{Findings, metadata, service_address, service_policy};

pub(super) const HEADLESS: &str = "None";

pub(in super::super) fn service(service: &mut Service) -> Findings {
    let mut findings = Findings::default();
    metadata::namespaced(&mut service.metadata, label, &mut findings);
    metadata::annotations(&mut service.metadata, &mut findings);
    let Some(spec) = service.spec.as_mut() else {
        findings.add("spec", "is missing");
        return findings;
    };
    let kind = spec.type_.get_or_insert_with(|| "ClusterIP".to_owned());
    let kinds = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
    if let Err(message) = one_of(kind, &kinds) {
        // As in kube-proxy, an unknown type is treated as ClusterIP.
        "ClusterIP".clone_into(kind);
        findings.remark("spec.type", message);
    }
    ports(spec, &mut findings);
    external_name(spec, &mut findings);
    service_address::spec(spec, &mut findings);
    service_address::status(service, &mut findings);
    if let Some(spec) = service.spec.as_mut() {
        service_policy::check(spec, &mut findings);
    }
    findings
}

pub(super) fn is(spec: &ServiceSpec, kind: &str) -> bool {
    spec.type_.as_deref() == Some(kind)
}

fn external_name(spec: &mut ServiceSpec, findings: &mut Findings) {
    let needed = is(spec, "ExternalName");
    let rule = |name: &String| match name.is_empty() && !needed {
        true => Ok(()),
        false => subdomain(name.strip_suffix('.').unwrap_or(name)),
    };
    findings.drop_if_invalid(|| "spec.externalName".to_owned(), &mut spec.external_name, rule);
}

/// Rejects a Service without any valid port.
fn ports(spec: &mut ServiceSpec, findings: &mut Findings) {
    let headless = spec.cluster_ip.as_deref() == Some(HEADLESS);
    let needless = headless || is(spec, "ExternalName");
    let has_node_ports = is(spec, "NodePort") || is(spec, "LoadBalancer");
    let ports = spec.ports.get_or_insert_default();
    if ports.is_empty() && !needless {
        findings.add("spec.ports", "has no port");
    }
    let mut taken = UsedPorts { several: ports.len() > 1, ..UsedPorts::default() };
    let (mut faults, mut number) = (Vec::new(), 0..);
    ports.retain_mut(|entry| {
        let i = number.next().unwrap_or(0);
        let at = |field: &str| format!("spec.ports[{i}].{field}");
        one_port(entry, &at, findings);
        let fault = taken.take(entry);
        if fault.is_ok() {
            entry.node_port = entry.node_port.filter(|number| *number != 0);
            let protocol = entry.protocol.clone().unwrap_or_default();
            findings.drop_if_invalid(
                || at("nodePort"),
                &mut entry.node_port,
                |number| match has_node_ports {
                    true => taken.node_port(*number, protocol),
                    false => Err("is only for the types NodePort and LoadBalancer".to_owned()),
                },
            );
        }
        fault.map_err(|(field, message)| faults.push((at(field), message))).is_ok()
    });
    let usable = !ports.is_empty() || needless;
    for (field, message) in faults {
        if usable {
            findings.remark(field, message);
        } else {
            findings.add(field, message);
        }
    }
}

#[derive(Default)]
struct UsedPorts {
    several: bool,
    names: BTreeSet<String>,
    numbers: BTreeSet<(i32, String)>,
    node_ports: BTreeSet<(i32, String)>,
}

impl UsedPorts {
    /// Returns field and message of a fault.
    fn take(&mut self, entry: &ServicePort) -> Result<(), (&'static str, String)> {
        let name = entry.name.as_deref().unwrap_or_default();
        let protocol_name = entry.protocol.clone().unwrap_or_default();
        port(entry.port).map_err(|message| ("port", message))?;
        protocol(&protocol_name).map_err(|message| ("protocol", message))?;
        if name.is_empty() && self.several {
            return Err(("name", "is missing: each of several ports needs a name".to_owned()));
        }
        if !name.is_empty() {
            label(name).map_err(|message| ("name", message))?;
            if self.names.contains(name) {
                return Err(("name", format!("the name {name:?} is taken by an earlier port")));
            }
        }
        if !self.numbers.insert((entry.port, protocol_name.clone())) {
            return Err(("port", format!("{} {protocol_name} is taken by an earlier port", entry.port)));
        }
        self.names.insert(name.to_owned());
        Ok(())
    }

    fn node_port(&mut self, number: i32, protocol: String) -> Checked {
        port(number)?;
        let message = format!("{number} {protocol} is taken by an earlier port");
        if self.node_ports.insert((number, protocol)) { Ok(()) } else { Err(message) }
    }
}

/// Checks a port; removes invalid values that a proxy does not need.
fn one_port(entry: &mut ServicePort, at: &dyn Fn(&str) -> String, findings: &mut Findings) {
    let name = entry.protocol.get_or_insert_with(|| "TCP".to_owned());
    if name.is_empty() {
        "TCP".clone_into(name);
    }
    findings.drop_if_invalid(|| at("appProtocol"), &mut entry.app_protocol, |name| qualified_name(name));
    // An invalid target port does not matter: the proxy uses the ports of EndpointSlices.
    findings.drop_if_invalid(
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
