use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde_json::json;

use super::super::error::Cause;

const FIELD: &str = "spec.cidrs";

pub(super) fn check(cidr: &ServiceCIDR, before: Option<&ServiceCIDR>) -> Vec<Cause> {
    let of = |cidr: &ServiceCIDR| cidr.spec.as_ref().and_then(|spec| spec.cidrs.clone()).unwrap_or_default();
    let ranges = of(cidr);
    if ranges.is_empty() {
        return vec![Cause::required(FIELD, "at least one CIDR required")];
    }
    if let Some(before) = before.map(of) {
        let changed = ranges.iter().enumerate().filter(|(index, range)| before.get(*index) != Some(*range));
        let causes = changed.map(|(index, range)| {
            Cause::invalid(format!("{FIELD}[{index}]"), &json!(range), "field is immutable once set")
        });
        return causes.collect();
    }
    let bad = ranges.iter().enumerate().filter(|(_, range)| !is_canonical(range));
    bad.map(|(index, range)| {
        Cause::invalid(format!("{FIELD}[{index}]"), &json!(range), "must be a range whose host bits are zero")
    })
    .collect()
}

fn is_canonical(text: &str) -> bool {
    text.parse::<IpNet>().is_ok_and(|range| range.trunc() == range && range.to_string() == text)
}
