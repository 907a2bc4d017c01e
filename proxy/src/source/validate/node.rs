use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec};

use super::super::syntax::{Checked, address, network, subdomain};
use super::{Findings, metadata};

pub(in super::super) fn node(node: &mut Node) -> Findings {
    let mut findings = Findings::default();
    metadata::named(&mut node.metadata, subdomain, &mut findings);
    if let Some(spec) = node.spec.as_mut() {
        pod_cidrs(spec, &mut findings);
    }
    let addresses = node.status.as_mut().and_then(|s| s.addresses.as_mut());
    if let Some(addresses) = addresses {
        let mut number = 0..;
        addresses.retain_mut(|entry| own_address(entry, number.next().unwrap_or_default(), &mut findings));
    }
    findings
}

/// Returns whether to keep the address.
fn own_address(entry: &mut NodeAddress, number: usize, findings: &mut Findings) -> bool {
    let field = || format!("status.addresses[{number}].address");
    let fault = match entry.type_.as_str() {
        "InternalIP" | "ExternalIP" => address(&entry.address).map(|ip| entry.address = ip.to_string()),
        _ => host_name(&entry.address),
    };
    fault.map_err(|message| findings.remark(field(), message)).is_ok()
}

/// Checks the ranges; makes `podCIDR` and `podCIDRs` agree.
fn pod_cidrs(spec: &mut NodeSpec, findings: &mut Findings) {
    let first = spec.pod_cidr.take().filter(|c| !c.is_empty());
    let mut all = spec.pod_cidrs.take().unwrap_or_default();
    if all.is_empty() {
        all.extend(first.clone());
    }
    let mut families = Vec::new();
    for (i, text) in all.iter_mut().enumerate() {
        if let Some(net) = findings.check(|| format!("spec.podCIDRs[{i}]"), network(text)) {
            *text = net.to_string();
            families.push(net.addr().is_ipv4());
        }
    }
    if all.len() > 2 || matches!(families[..], [a, b] if a == b) {
        findings.add("spec.podCIDRs", "takes one network, or one of each family");
    }
    if let Some(first) = first
        && let Some(net) = findings.check(|| "spec.podCIDR".to_owned(), network(&first))
        && all.first() != Some(&net.to_string())
    {
        findings.add("spec.podCIDRs[0]", "differs from spec.podCIDR");
    }
    spec.pod_cidr = all.first().cloned();
    spec.pod_cidrs = (!all.is_empty()).then_some(all);
}

/// Checks a host name, which unlike an object's name may have upper-case letters.
fn host_name(text: &str) -> Checked {
    let lower = text.to_ascii_lowercase();
    subdomain(lower.strip_suffix('.').unwrap_or(&lower))
}
