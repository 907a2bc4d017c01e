use crate::plan::ServicePortPlan;

/// Plans, computed one by one: together they would take much memory.
pub trait Plans {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_>;
}

impl Plans for &[ServicePortPlan] {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_> {
        Box::new(<[ServicePortPlan]>::iter(self).cloned())
    }
}
