//! Work that accompanies a mode: its failures delay no sync, and failed syncs do not stop it.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Instant;

use super::Plans;
use crate::config::NodeAddresses;
use crate::model::ServicePortName;
use crate::plan::ServicePortPlan;

pub trait Companion: Any + Send {
    fn full(&mut self, _addresses: &NodeAddresses, _plans: &dyn Plans) {}

    /// Called before each partial sync.
    fn partial(&mut self, _changed: &BTreeMap<ServicePortName, Option<ServicePortPlan>>) {}

    /// Returns whether [`Companion::follow_up`] has work to do.
    fn addresses_changed(&mut self, _addresses: &NodeAddresses) -> bool {
        false
    }

    fn detect_flush(&mut self) -> Option<String> {
        None
    }

    /// Does due work. Returns the time of the next call.
    fn follow_up(&mut self, _now: Instant) -> Option<Instant> {
        None
    }
}
