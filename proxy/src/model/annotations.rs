//! The annotations by which a Service asks this proxy for more than Kubernetes' rules.

use super::FlowFate;

/// The prefix of every such annotation. It is no domain: this project owns none.
pub const ANNOTATION_PREFIX: &str = "svcproxy/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceAnnotation {
    /// [`FlowFate`].
    FlowFate,
}

impl ServiceAnnotation {
    pub const ALL: [ServiceAnnotation; 1] = [ServiceAnnotation::FlowFate];

    /// Returns the name without [`ANNOTATION_PREFIX`].
    pub fn name(self) -> &'static str {
        match self {
            ServiceAnnotation::FlowFate => "flow-fate",
        }
    }

    pub fn key(self) -> &'static str {
        match self {
            ServiceAnnotation::FlowFate => "svcproxy/flow-fate",
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
        }
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
