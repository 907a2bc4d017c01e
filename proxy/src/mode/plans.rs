//! What a full sync is made of.

use crate::plan::ServicePortPlan;

/// The plans of all service ports, made as they are asked for: those of a large cluster are not kept.
pub trait Plans {
    /// Each of them once.
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_>;
}

impl Plans for &[ServicePortPlan] {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_> {
        Box::new(<[ServicePortPlan]>::iter(self).cloned())
    }
}
