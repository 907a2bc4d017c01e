//! Properties that hold for every cluster: under the proxy's rules the simulator has the outcomes that the oracle
//! promises.
//!
//! [`proxies`] turns API objects into listings (`iptables-save`, `nft list ruleset`, `ipset save`, `ipvsadm -Sn`),
//! [`node_states`] reads them, and packets pass the [`machines`]. [`judge`] compares, [`sweep`] draws clusters, and
//! [`mutants`] breaks rules to test the properties.

pub mod disagreement;
pub mod judge;
pub mod machines;
pub mod mutants;
pub mod nft_compare;
pub mod node;
pub mod node_kinds;
pub mod node_states;

pub mod proxies;
pub mod snapshots;
pub mod sweep;
