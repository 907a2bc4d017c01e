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
use crate::plan::stale_flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::SyncReport;
pub use plans::Plans;

pub trait Mode {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether the kernel's state is unknown.
    fn needs_full(&self) -> bool;

    fn require_full_sync(&mut self);

    /// Returns UDP and SCTP frontends that full syncs have found since the last call, also a previous proxy's.
    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)>;

    /// Returns the ports on which this process answers for a service port, if rules redirect to them.
    fn relay_ports(&self, _name: &ServicePortName) -> Vec<u16> {
        Vec::new()
    }

    /// Returns service ports whose rules the kernel refuses, with the reason. Their objects stay.
    fn refused(&self) -> &BTreeMap<ServicePortName, String>;

    /// Whether changed addresses change the rules although the node's plan stays the same.
    fn depends_on(&self, _node: &NodePlan, _before: &NodeAddresses, _after: &NodeAddresses) -> bool {
        false
    }

    /// Describes an object that another program has deleted.
    fn detect_flush(&mut self) -> Result<Option<String>, Self::Error>;

    /// Reads the tables while API objects load. The full sync reads later changes.
    fn look_ahead(&mut self) {}

    fn compact(&mut self) {}

    /// Compares the whole state with the kernel's and sends the difference. After an error the next sync must be full
    /// again.
    fn full(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans)
    -> Result<SyncReport, Self::Error>;

    /// Sends the changed service ports; `None`: deleted. The caller checks [`Mode::needs_full`] first.
    ///
    /// After an error the next sync must include the same service ports. It may be partial unless [`Mode::needs_full`]
    /// returns true.
    fn partial(
        &mut self,
        changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<SyncReport, Self::Error>;

    /// Replaces [`NodePlan::service_ranges`]; the next partial sync sends the difference.
    fn set_service_ranges(&mut self, _ranges: Vec<IpNet>) {}

    /// Does work after a sync, such as the removal of drained backends. Returns the time of the next call.
    fn follow_up(&mut self, _now: Instant) -> Result<Option<Instant>, Self::Error> {
        Ok(None)
    }
}
