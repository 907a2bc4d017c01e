//! nftables mode: one table per family. Service ports are elements of shared maps. A change of endpoints changes
//! elements; its kernel cost does not depend on the number of services.
//!
//! [`layout`] holds the fixed objects, [`shared_chains`] the chains of service ports with the same number of endpoints.
//! [`objects`] renders one service port, [`affinity`] its session affinity, [`counters`] its counters. [`endpoint_index`] gives
//! endpoints indexes, [`slots`] the slots of consistent hashing.
//! [`ledger`] and [`programmed`] record what was sent, [`found_elements`] what existed at a start, [`desired_table`]
//! the change between them. [`syncer`] runs the syncs.

mod affinity;
pub mod counters;
mod desired_table;
pub mod endpoint_index;
pub mod flowtable;
mod found_elements;
pub mod layout;
mod ledger;
pub mod objects;
mod probe;
mod programmed;
pub mod shared_chains;
pub mod slots;
pub mod syncer;
pub mod text;
