use std::collections::BTreeSet;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::super::error::Cause;
use super::super::selector::is_dns_label;
use crate::objects::ingress_of;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// A day, in seconds.
const LONGEST_AFFINITY: i32 = 86_400;

pub(super) fn check(service: &Service, before: Option<&Service>) -> Vec<Cause> {
    let Some(spec) = &service.spec else {
        return vec![Cause::required("spec", "")];
    };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    // An invalid cluster IP is the only error: kube-apiserver allocates addresses before it validates other fields.
    if let Some(ip) = spec.cluster_ip.as_ref().filter(|ip| kind != "ExternalName" && !is_valid_cluster_ip(ip)) {
        return vec![Cause::invalid("spec.clusterIPs[0]", &json!(ip), ADDRESS)];
    }
    let mut causes = Vec::new();
    enumerated_fields(spec, &mut causes);
    ports(spec, kind, &mut causes);
    if kind == "ExternalName" && spec.external_name.as_deref().unwrap_or_default().is_empty() {
        causes.push(Cause::required("spec.externalName", "an ExternalName service needs one"));
    }
    addresses(spec, kind, before.and_then(|before| before.spec.as_ref()), &mut causes);
    families(spec, &mut causes);
    published_addresses(service, kind, before, &mut causes);
    affinity(spec, &mut causes);
    traffic(spec, kind, &mut causes);
    if let Some(before) = before.and_then(|before| before.spec.as_ref()) {
        immutable_fields(before, spec, kind, &mut causes);
    }
    causes
}

fn enumerated_fields(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    let fields: [(&str, Option<&String>, &[&str]); 6] = [
        ("spec.type", spec.type_.as_ref(), &TYPES),
        ("spec.sessionAffinity", spec.session_affinity.as_ref(), &["ClientIP", "None"]),
        ("spec.externalTrafficPolicy", spec.external_traffic_policy.as_ref(), &["Cluster", "Local"]),
        ("spec.internalTrafficPolicy", spec.internal_traffic_policy.as_ref(), &["Cluster", "Local"]),
        (
            "spec.ipFamilyPolicy",
            spec.ip_family_policy.as_ref(),
            &["PreferDualStack", "RequireDualStack", "SingleStack"],
        ),
        (
            "spec.trafficDistribution",
            spec.traffic_distribution.as_ref(),
            &["PreferClose", "PreferSameNode", "PreferSameZone"],
        ),
    ];
    for (field, value, supported) in fields {
        if let Some(value) = value.filter(|value| !supported.contains(&value.as_str())) {
            causes.push(Cause::unsupported(field, value, supported));
        }
    }
    let families = spec.ip_families.iter().flatten().enumerate();
    for (index, family) in families.filter(|(_, family)| !matches!(family.as_str(), "IPv4" | "IPv6")) {
        causes.push(Cause::unsupported(format!("spec.ipFamilies[{index}]"), family, &["IPv4", "IPv6"]));
    }
}

fn ports(spec: &ServiceSpec, kind: &str, causes: &mut Vec<Cause>) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    let headless = spec.cluster_ip.as_deref() == Some("None");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        one_port(port, &field, causes);
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        match port.name.as_deref().unwrap_or_default() {
            "" if ports.len() > 1 => causes.push(Cause::required(format!("{field}.name"), "several ports need names")),
            "" => {}
            name if !names.insert(name) => causes.push(Cause::duplicate(format!("{field}.name"), &json!(name))),
            _ => {}
        }
        if !numbers.insert((port.port, protocol)) {
            causes.push(Cause::duplicate(field.clone(), &json!({"port": port.port, "protocol": protocol})));
        }
        let Some(number) = port.node_port.filter(|number| *number != 0) else { continue };
        if kind == "ClusterIP" {
            let detail = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(format!("{field}.nodePort"), detail));
        } else if !node_ports.insert((number, protocol)) {
            causes.push(Cause::duplicate(format!("{field}.nodePort"), &json!(number)));
        }
    }
}

fn one_port(port: &ServicePort, field: &str, causes: &mut Vec<Cause>) {
    const RANGE: &str = "must be between 1 and 65535, inclusive";
    if !(1..=65_535).contains(&port.port) {
        causes.push(Cause::invalid(format!("{field}.port"), &json!(port.port), RANGE));
    }
    if let Some(protocol) = port.protocol.as_deref().filter(|protocol| !PROTOCOLS.contains(protocol)) {
        causes.push(Cause::unsupported(format!("{field}.protocol"), protocol, &PROTOCOLS));
    }
    if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty() && !is_dns_label(name, 63)) {
        causes.push(Cause::invalid(format!("{field}.name"), &json!(name), "expected a DNS-1123 label"));
    }
    match &port.target_port {
        None if !(1..=65_535).contains(&port.port) => {
            causes.push(Cause::invalid(format!("{field}.targetPort"), &json!(port.port), RANGE));
        }
        Some(IntOrString::Int(number)) if !(1..=65_535).contains(number) => {
            causes.push(Cause::invalid(format!("{field}.targetPort"), &json!(number), RANGE));
        }
        Some(IntOrString::String(name)) if !is_port_name(name) => {
            let detail =
                "a port name has at most 15 lower-case letters, digits and single '-', and at least one letter";
            causes.push(Cause::invalid(format!("{field}.targetPort"), &json!(name), detail));
        }
        _ => {}
    }
}

/// Whether `name` is a service name by RFC 6335.
fn is_port_name(name: &str) -> bool {
    is_dns_label(name, 15) && !name.contains("--") && name.bytes().any(|byte| byte.is_ascii_lowercase())
}

const ADDRESS: &str = "must be a valid IP address";

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

fn is_valid_cluster_ip(ip: &str) -> bool {
    ip.is_empty() || ip == "None" || is_address(ip)
}

fn addresses(spec: &ServiceSpec, kind: &str, before: Option<&ServiceSpec>, causes: &mut Vec<Cause>) {
    let cluster_ips = spec.cluster_ips.as_deref().unwrap_or_default();
    for (index, ip) in cluster_ips.iter().enumerate().filter(|(_, ip)| *ip != "None" && !ip.is_empty()) {
        if !is_address(ip) {
            causes.push(Cause::invalid(format!("spec.clusterIPs[{index}]"), &json!(ip), ADDRESS));
        }
    }
    if let Some(ip) = spec.cluster_ip.as_ref().filter(|ip| *ip != "None" && !ip.is_empty()) {
        if kind == "ExternalName" {
            causes.push(Cause::forbidden("spec.clusterIP", "may not be set when `type` is 'ExternalName'"));
        } else if cluster_ips.first().is_some_and(|first| first != ip)
            // If only `clusterIP` changed, the update fails with "field is immutable" instead.
            && before.is_none_or(|before| before.cluster_ips.as_deref() != Some(cluster_ips))
        {
            causes.push(Cause::invalid("spec.clusterIPs", &json!(cluster_ips), "first value must match `clusterIP`"));
        }
    }
    for (index, ip) in spec.external_ips.iter().flatten().enumerate() {
        let parsed = ip.parse::<std::net::IpAddr>();
        if !parsed.is_ok_and(|ip| !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()) {
            let detail = "expected an IP address that is neither unspecified, loopback nor multicast";
            causes.push(Cause::invalid(format!("spec.externalIPs[{index}]"), &json!(ip), detail));
        }
    }
    for (index, range) in spec.load_balancer_source_ranges.iter().flatten().enumerate() {
        // kube-apiserver trims white space around a range.
        if range.trim().parse::<IpNet>().is_err() {
            let field = format!("spec.LoadBalancerSourceRanges[{index}]");
            causes.push(Cause::invalid(field, &json!(range), "must be a valid CIDR value"));
        }
    }
}

fn families(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    let families = spec.ip_families.as_deref().unwrap_or_default();
    for (index, family) in families.iter().enumerate() {
        if families.iter().take(index).any(|other| other == family) {
            causes.push(Cause::duplicate(format!("spec.ipFamilies[{index}]"), &json!(family)));
        }
    }
    let single = spec.ip_family_policy.as_deref() == Some("SingleStack");
    if let (true, Some(policy)) = (single && families.len() > 1, &spec.ip_family_policy) {
        let detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple ipFamilies are specified";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", &json!(policy), detail));
    }
}

fn published_addresses(service: &Service, kind: &str, before: Option<&Service>, causes: &mut Vec<Cause>) {
    let ingress = ingress_of(service);
    if before.is_some_and(|before| ingress_of(before) == ingress) {
        return;
    }
    let field = "status.loadBalancer.ingress";
    if kind != "LoadBalancer" && !ingress.is_empty() {
        causes.push(Cause::forbidden(field, "may only be used when `spec.type` is LoadBalancer"));
        return;
    }
    for (index, entry) in ingress.iter().enumerate() {
        if let Some(ip) = entry.ip.as_ref().filter(|ip| !is_address(ip)) {
            causes.push(Cause::invalid(format!("{field}[{index}].ip"), &json!(ip), ADDRESS));
        }
        if let Some(mode) = entry.ip_mode.as_deref().filter(|mode| !matches!(*mode, "VIP" | "Proxy")) {
            causes.push(Cause::unsupported(format!("{field}[{index}].ipMode"), mode, &["Proxy", "VIP"]));
        }
    }
}

fn affinity(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    let client_ip = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let Some(seconds) = client_ip.and_then(|client_ip| client_ip.timeout_seconds) else { return };
    // kube-apiserver drops the setting if the Service has no affinity.
    if spec.session_affinity.as_deref() == Some("ClientIP") && !(1..=LONGEST_AFFINITY).contains(&seconds) {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        causes.push(Cause::invalid(field, &json!(seconds), "must be greater than 0 and at most 86400"));
    }
}

fn traffic(spec: &ServiceSpec, kind: &str, causes: &mut Vec<Cause>) {
    let external = kind != "ClusterIP" || spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    if let Some(policy) = spec.external_traffic_policy.as_ref().filter(|_| !external || kind == "ExternalName") {
        let detail = "may only be set for externally-accessible services";
        causes.push(Cause::invalid("spec.externalTrafficPolicy", &json!(policy), detail));
    }
    let checked = kind == "LoadBalancer" && spec.external_traffic_policy.as_deref() == Some("Local");
    if let Some(port) = spec.health_check_node_port.filter(|port| *port != 0 && !checked) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid("spec.healthCheckNodePort", &json!(port), detail));
    }
    let ranges = spec.load_balancer_source_ranges.as_ref();
    for (is_set, field) in [
        (ranges.is_some_and(|ranges| !ranges.is_empty()), "spec.LoadBalancerSourceRanges"),
        (spec.load_balancer_class.is_some(), "spec.loadBalancerClass"),
        (spec.allocate_load_balancer_node_ports.is_some(), "spec.allocateLoadBalancerNodePorts"),
    ] {
        if is_set && kind != "LoadBalancer" {
            causes.push(Cause::forbidden(field, "may only be used when `type` is 'LoadBalancer'"));
        }
    }
}

fn immutable_fields(before: &ServiceSpec, now: &ServiceSpec, kind: &str, causes: &mut Vec<Cause>) {
    const IMMUTABLE: &str = "field is immutable";
    let old_kind = before.type_.as_deref().unwrap_or("ClusterIP");
    if kind == "ExternalName" || old_kind == "ExternalName" {
        return;
    }
    // An empty cluster IP keeps the old one.
    let changed = |old: Option<&String>, new: Option<&String>| {
        new.is_some_and(|new| !new.is_empty() && old.is_some_and(|old| old != new))
    };
    if changed(before.cluster_ip.as_ref(), now.cluster_ip.as_ref()) {
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!([now.cluster_ip]), IMMUTABLE));
    }
    let class = (before.load_balancer_class.as_ref(), now.load_balancer_class.as_ref());
    if old_kind == "LoadBalancer" && kind == "LoadBalancer" && class.0 != class.1 {
        causes.push(Cause::invalid("spec.loadBalancerClass", &json!(class.1), IMMUTABLE));
    }
    if let (Some(old), Some(new)) = (before.health_check_node_port, now.health_check_node_port)
        && old != new
        && new != 0
    {
        causes.push(Cause::invalid("spec.healthCheckNodePort", &json!(new), IMMUTABLE));
    }
}
