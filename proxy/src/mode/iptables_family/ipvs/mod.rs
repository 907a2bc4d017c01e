//! IPVS mode: plans as virtual servers, addresses on `kube-ipvs0`, IP sets, and a handful of iptables rules that look
//! things up in the sets and are the same however many services there are.
//!
//! [`objects`] writes one service port down, [`desired`] adds all up, [`rules`] and [`jumps`] are the constant part,
//! [`text`] prints it all. [`observed`] is what the kernel has, [`steps`] what has to be done in which order, [`syncer`]
//! does it and [`drain`] looks after backends that leave; [`teardown`] takes everything away again, [`prepare`] sets what
//! IPVS needs once at the start. The kernel is behind [`crate::kernel::ipvs`], [`crate::kernel::ipset`],
//! [`crate::kernel::dummy`] and [`crate::kernel::iptables`].

pub mod desired;
pub mod drain;
pub mod jumps;
pub mod kernel;
pub mod objects;
pub mod observed;
pub mod prepare;
pub mod rules;
pub mod sets;
pub mod steps;
pub mod syncer;
pub mod teardown;
pub mod text;

use crate::kernel::iptables::IptablesError;
use crate::kernel::netlink::NetlinkError;

/// What went wrong in IPVS mode.
#[derive(Debug, thiserror::Error)]
pub enum IpvsError {
    /// With the rules.
    #[error(transparent)]
    Iptables(#[from] IptablesError),
    /// With virtual servers, sets or addresses.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Another program has made a set of ours with another type.
    #[error("the set {name} is of type {found}, not {wanted}: destroy it (ipset destroy {name})")]
    SetType {
        /// The set's name.
        name: String,
        /// Its type.
        found: String,
        /// The type that it must have.
        wanted: &'static str,
    },
}
