//! What runs beside a mode: its failures delay no sync, and a sync that fails does not stop it.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Instant;

use super::Plans;
use crate::config::NodeAddresses;
use crate::model::ServicePortName;
use crate::plan::ServicePortPlan;

pub trait Companion: Any + Send {
    /// Before each full sync.
    fn full(&mut self, _addresses: &NodeAddresses, _plans: &dyn Plans) {}

    /// Before each partial sync, with the service ports that changed (`None`: deleted).
    fn partial(&mut self, _changed: &BTreeMap<ServicePortName, Option<ServicePortPlan>>) {}

    /// Returns whether [`Companion::follow_up`] has work to do.
    fn addresses_changed(&mut self, _addresses: &NodeAddresses) -> bool {
        false
    }

    /// Describes an object of this companion that another program has deleted.
    fn detect_flush(&mut self) -> Option<String> {
        None
    }

    /// Does the work that is due. Returns the time of the next call.
    fn follow_up(&mut self, _now: Instant) -> Option<Instant> {
        None
    }
}
