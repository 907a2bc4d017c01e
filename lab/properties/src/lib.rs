//! Properties of every cluster: the simulator walks packets through the proxy's rules, and the oracle says what is
//! promised.
//! Only this crate and `lab/kernel-properties` use the proxy's library, the simulator and the oracle together. They
//! exchange what they exchange on a node. [`proxies`] turns API objects into listings (`iptables-save`, `nft list
//! ruleset`, `ipset save`, `ipvsadm -Sn`), [`node_states`] reads the listings, and packets pass the [`machines`] of the
//! oracle's world. [`judge`] compares, [`disagreement`] prints a difference, [`sweep`] draws clusters, and [`mutants`]
//! breaks rules to test the properties.

pub mod disagreement;
pub mod judge;
pub mod machines;
pub mod mutants;
pub mod nft_compare;
pub mod node;
pub mod node_states;

pub mod proxies;
pub mod snapshots;
pub mod sweep;
