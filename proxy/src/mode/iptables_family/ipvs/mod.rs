//! IPVS mode: virtual servers, addresses on `kube-ipvs0`, IP sets, and iptables rules that match the sets whatever the
//! number of services.
//!
//! [`objects`] renders one service port, [`desired`] adds up all, [`rules`] and [`jumps`] are constant, [`text`]
//! prints. [`observed`] reads the kernel's objects, [`steps`] orders changes, [`syncer`] is the
//! [renderer](super::engine::render::Renderer), [`drain`] removes drained backends, [`teardown`] removes everything,
//! [`prepare`] writes kernel settings.

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

#[derive(Debug, thiserror::Error)]
pub enum IpvsError {
    #[error(transparent)]
    Iptables(#[from] IptablesError),
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error("the set {name} is of type {found}, not {wanted}: destroy it (ipset destroy {name})")]
    SetType { name: String, found: String, wanted: &'static str },
}
