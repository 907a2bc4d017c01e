//! The modes: each turns plans into kernel objects of its kind and programs them.

pub mod assemble;
pub mod companion;
pub mod family;
pub mod flowtable;
pub mod iptables_family;
pub mod localhost;
pub mod nftables;
mod plans;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ipnet::IpNet;

use crate::config::NodeAddresses;
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::Report;
pub use plans::Plans;

/// A mode in one address family: makes the kernel's objects match the plans.
pub trait Mode {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether the kernel's state is unknown, so that only a full sync is safe.
    fn needs_full(&self) -> bool;

    /// Makes the next sync a full one, because another program may have written to the kernel.
    fn require_full_sync(&mut self);

    /// The frontends of UDP and SCTP that full syncs have found in the kernel since the last call, those of a previous proxy
    /// included.
    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)>;

    /// The ports of this node on which this process answers for a service port, where rules redirect to the process and not
    /// to an endpoint.
    fn relay_ports(&self, _name: &ServicePortName) -> Vec<u16> {
        Vec::new()
    }

    /// Service ports whose rules the kernel refuses, with the reason. Their objects stay as they are; all other service ports
    /// are kept up to date.
    fn refused(&self) -> &BTreeMap<ServicePortName, String>;

    /// Whether the rules change with these addresses although the node's plan does not.
    fn depends_on(&self, _node: &NodePlan, _before: &NodeAddresses, _after: &NodeAddresses) -> bool {
        false
    }

    /// Describes an object that another program has deleted.
    ///
    /// # Errors
    /// The kernel cannot be read.
    fn detect_flush(&mut self) -> Result<Option<String>, Self::Error>;

    /// Reads what a full sync needs while the source still loads. The full sync reads again what has changed since.
    fn look_ahead(&mut self) {}

    /// Moves the state to new memory ([`compact`](crate::kernel::memory::compact)).
    fn compact(&mut self) {}

    /// Compares the whole state with the kernel's and sends the difference.
    ///
    /// # Errors
    /// The kernel refuses a change; the next sync must be full again.
    fn full(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Result<Report, Self::Error>;

    /// Sends what changed in these service ports (`None`: deleted). The caller checks [`Mode::needs_full`] first.
    ///
    /// # Errors
    /// The kernel refuses a change. The same service ports must be part of the next sync, which may be partial unless
    /// [`Mode::needs_full`] returns true.
    fn partial(&mut self, changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>) -> Result<Report, Self::Error>;

    /// Replaces [`NodePlan::service_ranges`]: the next partial sync sends the difference, even without other changes.
    fn set_service_ranges(&mut self, _ranges: Vec<IpNet>) {}

    /// Does what is due after a sync, such as the removal of drained backends. Returns the time of the next call.
    ///
    /// # Errors
    /// The kernel refuses a change.
    fn follow_up(&mut self, _now: Instant) -> Result<Option<Instant>, Self::Error> {
        Ok(None)
    }
}
