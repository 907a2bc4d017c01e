use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::super::syntax::{address, network, not_special, one_of, subdomain};
use super::Findings;
use super::service::{HEADLESS, is};

pub(super) fn spec(spec: &mut ServiceSpec, findings: &mut Findings) {
    cluster_ips(spec, findings);
    let mut number = 0..;
    spec.external_ips.get_or_insert_default().retain_mut(|text| {
        let i = number.next().unwrap_or(0);
        let usable = address(text).and_then(|ip| not_special(ip).map(|()| *text = ip.to_string()));
        usable.map_err(|message| findings.remark(format!("spec.externalIPs[{i}]"), message)).is_ok()
    });
    if spec.external_ips.as_ref().is_some_and(Vec::is_empty) {
        spec.external_ips = None;
    }
    spec.load_balancer_ip = spec.load_balancer_ip.take().filter(|text| !text.is_empty());
    let field = || "spec.loadBalancerIP".to_owned();
    findings.drop_if_invalid(field, &mut spec.load_balancer_ip, |text| address(text).map(|_| ()));
    if let Some(ip) = spec.load_balancer_ip.as_deref().and_then(|text| address(text).ok()) {
        spec.load_balancer_ip = Some(ip.to_string());
    }
    let balanced = is(spec, "LoadBalancer");
    let ranges = spec.load_balancer_source_ranges.get_or_insert_default();
    if !ranges.is_empty() && !balanced {
        findings.remark("spec.loadBalancerSourceRanges", "is only for the type LoadBalancer");
        ranges.clear();
    }
    // An invalid range rejects the object: without it fewer or all callers would be allowed.
    for (i, text) in ranges.iter_mut().enumerate() {
        let field = || format!("spec.loadBalancerSourceRanges[{i}]");
        if let Some(net) = findings.check(field, network(text)) {
            *text = net.to_string();
        }
    }
}

/// Checks the addresses; makes `clusterIP`, `clusterIPs` and `ipFamilies` agree.
fn cluster_ips(spec: &mut ServiceSpec, findings: &mut Findings) {
    let first = spec.cluster_ip.take().filter(|ip| !ip.is_empty());
    let mut all = spec.cluster_ips.take().unwrap_or_default();
    let single = all.is_empty();
    if single {
        all.extend(first.clone());
    }
    let canonical = |text: &str| address(text).map(|ip| ip.to_string());
    for (i, text) in all.iter_mut().enumerate() {
        if i == 0 && text == HEADLESS {
            continue;
        }
        let field = || match single {
            true => "spec.clusterIP".to_owned(),
            false => format!("spec.clusterIPs[{i}]"),
        };
        if let Some(ip) = findings.check(field, canonical(text)) {
            *text = ip;
        }
    }
    if let (Some(first), false) = (first, single) {
        let first = canonical(&first).unwrap_or(first);
        if all.first() != Some(&first) {
            findings.add("spec.clusterIPs[0]", "differs from spec.clusterIP");
        }
    }
    if !all.is_empty() && is(spec, "ExternalName") {
        findings.remark("spec.clusterIP", "is not for the type ExternalName");
        all.clear();
    }
    if all.first().is_some_and(|ip| ip == HEADLESS) {
        if all.len() > 1 {
            findings.add("spec.clusterIPs", "has an address beside \"None\"");
        }
        if is(spec, "NodePort") || is(spec, "LoadBalancer") {
            findings.add("spec.clusterIP", "\"None\" is only for the type ClusterIP");
        }
        families(spec, &[], findings);
    } else {
        families(spec, &all, findings);
    }
    let policies = ["SingleStack", "PreferDualStack", "RequireDualStack"];
    let field = || "spec.ipFamilyPolicy".to_owned();
    findings.drop_if_invalid(field, &mut spec.ip_family_policy, |policy| one_of(policy, &policies));
    spec.cluster_ip = all.first().cloned();
    spec.cluster_ips = (!all.is_empty()).then_some(all);
}

fn families(spec: &mut ServiceSpec, all: &[String], findings: &mut Findings) {
    let families: Vec<_> = all.iter().filter_map(|ip| ip.parse().ok()).map(family).collect();
    let mut stated = spec.ip_families.take().unwrap_or_default();
    let mut number = 0..;
    stated.retain(|family| {
        let i = number.next().unwrap_or(0);
        let fault = one_of(family, &["IPv4", "IPv6"]).err().or_else(|| {
            let of_address = families.get(i).filter(|of_address| *of_address != family)?;
            Some(format!("is not {of_address} as spec.clusterIPs[{i}] is"))
        });
        fault.into_iter().for_each(|message| findings.remark(format!("spec.ipFamilies[{i}]"), message));
        one_of(family, &["IPv4", "IPv6"]).is_ok()
    });
    if families.len() == all.len() && !families.is_empty() {
        if all.len() > 2 || (all.len() == 2 && families[0] == families[1]) {
            findings.add("spec.clusterIPs", "takes one address, or one of each family");
        }
        // The addresses' families override a different `ipFamilies`.
        stated = families.into_iter().map(str::to_owned).collect();
    }
    spec.ip_families = (!stated.is_empty()).then_some(stated);
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

pub(super) fn status(service: &mut Service, findings: &mut Findings) {
    let balanced = service.spec.as_ref().is_some_and(|s| is(s, "LoadBalancer"));
    let balancer = service.status.as_mut().and_then(|s| s.load_balancer.as_mut());
    let Some(ingresses) = balancer.and_then(|b| b.ingress.as_mut()) else {
        return;
    };
    if !ingresses.is_empty() && !balanced {
        ingresses.clear();
        findings.remark("status.loadBalancer.ingress", "is only for the type LoadBalancer");
    }
    for (i, ingress) in ingresses.iter_mut().enumerate() {
        let at = |field: &str| format!("status.loadBalancer.ingress[{i}].{field}");
        ingress.hostname = ingress.hostname.take().filter(|name| !name.is_empty());
        findings.drop_if_invalid(|| at("hostname"), &mut ingress.hostname, |name| subdomain(name));
        let ip = ingress.ip.take().filter(|ip| !ip.is_empty());
        let ip = ip.and_then(|text| match address(&text) {
            Ok(ip) => Some(ip),
            Err(message) => {
                findings.remark(at("ip"), message);
                None
            }
        });
        if ip.is_some() {
            ingress.ip_mode.get_or_insert_with(|| "VIP".to_owned());
        }
        findings.drop_if_invalid(
            || at("ipMode"),
            &mut ingress.ip_mode,
            |mode| match ip {
                Some(_) => one_of(mode, &["VIP", "Proxy"]),
                None => Err("is only for an ingress with an ip".to_owned()),
            },
        );
        // As in kube-proxy, an ingress with an unknown `ipMode` is not used.
        ingress.ip = ip.filter(|_| ingress.ip_mode.is_some()).map(|ip| ip.to_string());
    }
}
