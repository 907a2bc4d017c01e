//! The annotations by which a Service asks this proxy for more than Kubernetes' rules.

use super::{FlowFate, LoadBalancing};

/// The prefix of every such annotation. It is no domain: this project owns none.
pub const ANNOTATION_PREFIX: &str = "svcproxy/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceAnnotation {
    /// [`FlowFate`].
    FlowFate,
    /// Where external packets under policy Local go on a node without endpoints: `none` or `cluster`.
    LocalFallback,
    /// [`LoadBalancing`].
    LoadBalancing,
}

impl ServiceAnnotation {
    pub const ALL: [ServiceAnnotation; 3] =
        [ServiceAnnotation::FlowFate, ServiceAnnotation::LocalFallback, ServiceAnnotation::LoadBalancing];

    /// Returns the name without [`ANNOTATION_PREFIX`].
    pub fn name(self) -> &'static str {
        match self {
            ServiceAnnotation::FlowFate => "flow-fate",
            ServiceAnnotation::LocalFallback => "local-fallback",
            ServiceAnnotation::LoadBalancing => "load-balancing",
        }
    }

    pub fn key(self) -> &'static str {
        match self {
            ServiceAnnotation::FlowFate => "svcproxy/flow-fate",
            ServiceAnnotation::LocalFallback => "svcproxy/local-fallback",
            ServiceAnnotation::LoadBalancing => "svcproxy/load-balancing",
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
            ServiceAnnotation::FlowFate => value.parse::<FlowFate>().map(drop),
            ServiceAnnotation::LocalFallback => local_fallback(value).map(drop),
            ServiceAnnotation::LoadBalancing => value.parse::<LoadBalancing>().map(drop),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_prefix_and_the_name() {
        for annotation in ServiceAnnotation::ALL {
            assert_eq!(annotation.key(), format!("{ANNOTATION_PREFIX}{}", annotation.name()));
            assert_eq!(ServiceAnnotation::named(annotation.name()), Ok(annotation));
        }
        assert!(ServiceAnnotation::named("x").unwrap_err().contains("flow-fate"));
    }
}
