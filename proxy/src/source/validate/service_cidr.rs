use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::super::syntax::{Checked, network, subdomain};
use super::{Findings, metadata};

/// Removes invalid ranges and a second range of a family.
pub(in super::super) fn service_cidr(object: &mut ServiceCIDR) -> Findings {
    let mut findings = Findings::default();
    metadata::named(&mut object.metadata, subdomain, &mut findings);
    let ranges = object.spec.as_mut().and_then(|spec| spec.cidrs.as_mut()).filter(|ranges| !ranges.is_empty());
    let Some(ranges) = ranges else {
        findings.add("spec.cidrs", "has no network");
        return findings;
    };
    let (mut number, mut families) = (0.., Vec::new());
    ranges.retain_mut(|text| {
        let at = number.next().unwrap_or(0);
        let fault = range(text, &mut families);
        fault.map_err(|message| findings.remark(format!("spec.cidrs[{at}]"), message)).is_ok()
    });
    findings
}

/// Rejects a range of all addresses, which the API allows.
fn range(text: &mut String, families: &mut Vec<bool>) -> Checked {
    let range = network(text)?;
    let (is_v4, family) = if range.addr().is_ipv4() { (true, "IPv4") } else { (false, "IPv6") };
    if range.prefix_len() == 0 {
        return Err(format!("{range} is every address, and not a range of cluster IPs"));
    }
    if families.contains(&is_v4) {
        return Err(format!("{range} is a second network of {family}: a ServiceCIDR has at most one of each family"));
    }
    families.push(is_v4);
    *text = range.to_string();
    Ok(())
}
