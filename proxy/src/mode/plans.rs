use crate::plan::ServicePortPlan;

/// Computed on each iteration: the plans of a large cluster are never in memory together.
pub trait Plans {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_>;
}

impl Plans for &[ServicePortPlan] {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_> {
        Box::new(<[ServicePortPlan]>::iter(self).cloned())
    }
}
