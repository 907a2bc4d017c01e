use prometheus::Error;

use super::HealthState;
use crate::metrics::AtScrape;
use crate::model::Family;

/// Exports applied resource versions that are decimal (all since Kubernetes 1.35, KEP-5504).
pub fn applied_versions(health: HealthState) -> Result<AtScrape, Error> {
    let read = move || {
        let families = health.snapshot().families;
        let samples = families.iter().flat_map(|(family, one)| {
            let api = &one.applied.api;
            let kinds = [
                ("services", &api.services),
                ("endpointslices", &api.endpoint_slices),
                ("nodes", &api.nodes),
                ("servicecidrs", &api.service_cidrs),
                ("manifests", &one.applied.manifests),
            ];
            kinds.into_iter().filter_map(|(kind, version)| sample(*family, kind, version.as_deref()?))
        });
        vec![samples.collect()]
    };
    let help = "The newest resourceVersion of each kind of object that is in the kernel";
    AtScrape::new(read).gauge("svcproxy_applied_resource_version", help, &["ip_family", "kind"])
}

/// Exports whether the rules are those of a state file.
pub fn recalled_state(health: HealthState) -> Result<AtScrape, Error> {
    let read = move || {
        let families = health.snapshot().families;
        let samples = families
            .iter()
            .map(|(family, one)| (vec![family.to_string()], if one.applied.recalled.is_some() { 1.0 } else { 0.0 }));
        vec![samples.collect()]
    };
    let help = "Whether the rules are those of the state file, because the API server has not answered yet";
    AtScrape::new(read).gauge("svcproxy_state_file_in_use", help, &["ip_family"])
}

fn sample(family: Family, kind: &str, version: &str) -> Option<(Vec<String>, f64)> {
    version.parse::<u64>().ok()?;
    Some((vec![family.to_string(), kind.to_owned()], version.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::AppliedVersions;
    use crate::metrics::Metrics;
    use crate::model::ResourceVersions;
    use std::time::Duration;

    #[test]
    fn each_family_and_kind_has_its_version() {
        let health = HealthState::new(Duration::from_secs(30), &Family::ALL);
        let metrics = Metrics::new(&[]).unwrap();
        metrics.register(applied_versions(health.clone()).unwrap()).unwrap();
        assert!(!metrics.text().unwrap().contains("svcproxy_applied"), "nothing yet");
        let api =
            ResourceVersions { services: Some("123456789".into()), nodes: Some("x".into()), ..Default::default() };
        health.synced(Family::V6, &AppliedVersions { api, ..AppliedVersions::default() });
        let text = metrics.text().unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| line.starts_with("svcproxy_applied")).collect();
        assert_eq!(samples, [r#"svcproxy_applied_resource_version{ip_family="IPv6",kind="services"} 123456789"#]);
    }
}
