//! All system calls and child processes: small adapters behind traits with strict fakes.

pub mod addresses;
pub mod capabilities;
pub mod command;
pub mod conntrack;
pub mod descriptors;
pub mod dummy;
pub mod input_policy;
pub mod instance;
pub mod ipset;
pub mod iptables;
pub mod iptables_nft;
pub mod ipvs;
pub mod limits;
pub mod memory;
pub(crate) mod multicast;
pub mod netlink;
mod next_hops;
pub mod nftables;
pub mod packet_filter;
pub mod sysctl;
pub mod threads;
pub mod uplink;
pub mod watch;
pub mod writer;
