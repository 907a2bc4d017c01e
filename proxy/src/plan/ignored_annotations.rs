//! Service ports whose Service's annotations have no effect on this node.

use std::collections::BTreeMap;
use std::fmt;

use super::ServicePortPlan;
use super::affinity::AcrossPortsIgnored;
use super::flow_fate::{FateIgnored, NOT_ALLOWED};
use super::load_balancing::BalancingIgnored;
use crate::model::{ObjectKey, ServiceAnnotation, ServicePortName};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationIgnored {
    AffinityAcrossPorts(AcrossPortsIgnored),
    FlowFate(FateIgnored),
    LoadBalancing(BalancingIgnored),
    /// Every mode can fall back, but the configuration does not allow it.
    LocalFallback,
    /// Every mode can limit sources, but the configuration does not allow it.
    SourceRanges,
}

impl AnnotationIgnored {
    pub fn annotation(self) -> ServiceAnnotation {
        match self {
            AnnotationIgnored::AffinityAcrossPorts(_) => ServiceAnnotation::AffinityAcrossPorts,
            AnnotationIgnored::FlowFate(_) => ServiceAnnotation::FlowFate,
            AnnotationIgnored::LoadBalancing(_) => ServiceAnnotation::LoadBalancing,
            AnnotationIgnored::LocalFallback => ServiceAnnotation::LocalFallback,
            AnnotationIgnored::SourceRanges => ServiceAnnotation::SourceRanges,
        }
    }
}

impl fmt::Display for AnnotationIgnored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnnotationIgnored::AffinityAcrossPorts(why) => why.fmt(f),
            AnnotationIgnored::FlowFate(why) => why.fmt(f),
            AnnotationIgnored::LoadBalancing(why) => why.fmt(f),
            AnnotationIgnored::LocalFallback | AnnotationIgnored::SourceRanges => f.write_str(NOT_ALLOWED),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IgnoredAnnotations(BTreeMap<ServicePortName, Vec<AnnotationIgnored>>);

impl IgnoredAnnotations {
    /// Records a plan; `None`: the service port was deleted.
    pub fn record(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
        match plan.filter(|plan| !plan.annotations_ignored.is_empty()) {
            Some(plan) => drop(self.0.insert(name.clone(), plan.annotations_ignored.clone())),
            None => drop(self.0.remove(name)),
        }
    }

    pub fn by_service(&self) -> BTreeMap<(&ObjectKey, ServiceAnnotation), AnnotationIgnored> {
        let each = self.0.iter().flat_map(|(name, all)| all.iter().map(|why| (&name.service, *why)));
        each.map(|(service, why)| ((service, why.annotation()), why)).collect()
    }
}
