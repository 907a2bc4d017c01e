//! The annotations by which a Service asks this proxy for more than Kubernetes' rules.

use ipnet::IpNet;

use super::{FlowFate, LoadBalancing};

/// The prefix of every such annotation. It is no domain: this project owns none.
pub const ANNOTATION_PREFIX: &str = "svcproxy/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceAnnotation {
    /// Whether the ports of a Service with session affinity remember clients together: `none` or `all`.
    AffinityAcrossPorts,
    /// [`FlowFate`].
    FlowFate,
    /// Where external packets under policy Local go on a node without endpoints: `none` or `cluster`.
    LocalFallback,
    /// [`LoadBalancing`].
    LoadBalancing,
    /// The sources that may use node ports and external IPs: [`source_ranges`].
    SourceRanges,
}

impl ServiceAnnotation {
    pub const ALL: [ServiceAnnotation; 5] = [
        ServiceAnnotation::AffinityAcrossPorts,
        ServiceAnnotation::FlowFate,
        ServiceAnnotation::LocalFallback,
        ServiceAnnotation::LoadBalancing,
        ServiceAnnotation::SourceRanges,
    ];

    /// Returns the name without [`ANNOTATION_PREFIX`].
    pub fn name(self) -> &'static str {
        match self {
            ServiceAnnotation::AffinityAcrossPorts => "affinity-across-ports",
            ServiceAnnotation::FlowFate => "flow-fate",
            ServiceAnnotation::LocalFallback => "local-fallback",
            ServiceAnnotation::LoadBalancing => "load-balancing",
            ServiceAnnotation::SourceRanges => "source-ranges",
        }
    }

    pub fn key(self) -> &'static str {
        match self {
            ServiceAnnotation::AffinityAcrossPorts => "svcproxy/affinity-across-ports",
            ServiceAnnotation::FlowFate => "svcproxy/flow-fate",
            ServiceAnnotation::LocalFallback => "svcproxy/local-fallback",
            ServiceAnnotation::LoadBalancing => "svcproxy/load-balancing",
            ServiceAnnotation::SourceRanges => "svcproxy/source-ranges",
        }
    }

    /// Parses a name without [`ANNOTATION_PREFIX`].
    pub fn named(name: &str) -> Result<ServiceAnnotation, String> {
        let found = ServiceAnnotation::ALL.into_iter().find(|annotation| annotation.name() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = ServiceAnnotation::ALL.into_iter().map(ServiceAnnotation::name).collect();
            format!("{name:?} is no annotation of svcproxy, which has {}", names.join(", "))
        })
    }

    pub fn check(self, value: &str) -> Result<(), String> {
        match self {
            ServiceAnnotation::AffinityAcrossPorts => affinity_across_ports(value).map(drop),
            ServiceAnnotation::FlowFate => value.parse::<FlowFate>().map(drop),
            ServiceAnnotation::LocalFallback => local_fallback(value).map(drop),
            ServiceAnnotation::LoadBalancing => value.parse::<LoadBalancing>().map(drop),
            ServiceAnnotation::SourceRanges => source_ranges(value).map(drop),
        }
    }
}

/// Whether all ports of a Service send a client to one pod.
pub fn affinity_across_ports(value: &str) -> Result<bool, String> {
    match value {
        "none" => Ok(false),
        "all" => Ok(true),
        _ => Err(format!("{value:?} is neither none nor all")),
    }
}

/// Whether external packets under policy Local may go to other nodes' endpoints.
pub fn local_fallback(value: &str) -> Result<bool, String> {
    match value {
        "none" => Ok(false),
        "cluster" => Ok(true),
        _ => Err(format!("{value:?} is neither none nor cluster")),
    }
}

/// Parses networks of both families, separated by commas.
pub fn source_ranges(value: &str) -> Result<Vec<IpNet>, String> {
    let network = |text: &str| {
        let range = text.parse::<IpNet>().ok();
        // The length of an IPv4-mapped network counts IPv6 bits.
        let range = range.filter(|range| !matches!(range, IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some()));
        range.map(|range| range.trunc()).ok_or_else(|| format!("{text:?} is not a network (address/length)"))
    };
    value.split(',').map(|text| network(text.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ranges_are_networks_of_both_families() {
        let parsed =
            |value| source_ranges(value).map(|ranges| ranges.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            parsed("10.1.2.3/8, 2001:db8::/32,0.0.0.0/0").unwrap(),
            ["10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0"]
        );
        for (bad, part) in [
            ("", ""),
            ("10.0.0.0/8,", ""),
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.0/33", "10.0.0.0/33"),
            ("10.0.0.0/8 192.0.2.0/24", "10.0.0.0/8 192.0.2.0/24"),
            ("::ffff:10.0.0.0/104", "::ffff:10.0.0.0/104"),
        ] {
            assert_eq!(source_ranges(bad).unwrap_err(), format!("{part:?} is not a network (address/length)"));
        }
    }

    #[test]
    fn a_key_is_the_prefix_and_the_name() {
        for annotation in ServiceAnnotation::ALL {
            assert_eq!(annotation.key(), format!("{ANNOTATION_PREFIX}{}", annotation.name()));
            assert_eq!(ServiceAnnotation::named(annotation.name()), Ok(annotation));
        }
        assert!(ServiceAnnotation::named("x").unwrap_err().contains("flow-fate"));
    }
}
