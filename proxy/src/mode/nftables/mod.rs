//! nftables mode: one table for each family, in which service ports are elements of shared maps.
//!
//! [`layout`] is what is there whatever the services: sets, maps, base chains. [`shared`] are the chains that service ports with the same
//! number of endpoints have in common, [`objects`] what one service port contributes, with [`affinity`] where it asks for that.
//! [`slots`] gives endpoints their numbers. [`ledger`] and [`sent`] know what was sent, [`found`] what was there at a start, [`wanted`] the way from
//! one to the other; [`syncer`] brings the kernel there.
//!
//! Nothing is made for one service port alone but elements, except where it asks for session affinity. A change of endpoints is a change of
//! elements, which costs the kernel the same whatever the number of services.

mod affinity;
pub mod flowtable;
mod found;
pub mod layout;
mod ledger;
pub mod objects;
mod probe;
mod sent;
pub mod shared;
pub mod slots;
pub mod syncer;
pub mod text;
mod wanted;
