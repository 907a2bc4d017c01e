use crate::plan::ServicePortPlan;

/// Computed one by one: a large cluster's plans are never in memory together.
pub trait Plans {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_>;
}

impl Plans for &[ServicePortPlan] {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_> {
        Box::new(<[ServicePortPlan]>::iter(self).cloned())
    }
}
