//! The modes: each writes plans down as kernel objects of its kind and brings the kernel there.

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

/// One mode at work in one address family: brings the kernel to what plans say.
pub trait Mode {
    /// What the kernel may answer.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether only a full sync will do: the kernel's state is not known.
    fn needs_full(&self) -> bool;

    /// Another program may have written to the kernel: the next sync must be a full one.
    fn require_full_sync(&mut self);

    /// The frontends of datagram protocols that full syncs have found in the kernel since the last call: a predecessor's,
    /// too.
    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)>;

    /// The ports of this node on which the program itself answers for a service port, where rules lead to it and not to an
    /// endpoint.
    fn relay_ports(&self, _name: &ServicePortName) -> Vec<u16> {
        Vec::new()
    }

    /// Service ports of which the kernel refuses rules, and why. They are left as they are; all others are kept up to date.
    fn refused(&self) -> &BTreeMap<ServicePortName, String>;

    /// Whether what this mode makes of the node's addresses differs, where the plan of the node does not.
    fn depends_on(&self, _node: &NodePlan, _before: &NodeAddresses, _after: &NodeAddresses) -> bool {
        false
    }

    /// The node's addresses or links are others now; whether [`Mode::follow_up`] has something to do for it.
    fn addresses_changed(&mut self, _addresses: &NodeAddresses) -> bool {
        false
    }

    /// What another program has taken away, in words.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn detect_flush(&mut self) -> Result<Option<String>, Self::Error>;

    /// Reads in advance what a full sync has to know, while the state is not complete yet. That sync reads again what has changed since,
    /// and what could not be read.
    fn look_ahead(&mut self) {}

    /// Moves what is kept to new memory ([`compact`](crate::kernel::memory::compact)).
    fn compact(&mut self) {}

    /// Compares the whole state with the kernel's and sends the difference.
    ///
    /// # Errors
    /// When the kernel refuses something; the next sync must be full again.
    fn full(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Result<Report, Self::Error>;

    /// Sends what changed in these service ports (`None`: gone). Does a full sync's work in no case: the caller asks
    /// [`Mode::needs_full`] first.
    ///
    /// # Errors
    /// When the kernel refuses something. The same service ports must be part of the next sync, which may be partial unless
    /// [`Mode::needs_full`] says otherwise.
    fn partial(&mut self, changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>) -> Result<Report, Self::Error>;

    /// Takes note of [`NodePlan::service_ranges`] as they are now: the next partial sync sends what that changes, and may have no other change.
    /// A mode that has no use for them does nothing, and one around another hands them on.
    fn set_service_ranges(&mut self, ranges: Vec<IpNet>);

    /// Looks after what goes on after a sync, such as backends that drain; when to come again, if at all.
    ///
    /// # Errors
    /// When the kernel refuses something.
    fn follow_up(&mut self, _now: Instant) -> Result<Option<Instant>, Self::Error> {
        Ok(None)
    }
}
