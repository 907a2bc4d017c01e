//! What holds for every cluster, in-process: the proxy's rules, walked by the simulator, against what the oracle promises.
//!
//! This is the only place that knows all three (with `lab/kernel-properties`, which adds the kernel). They know nothing of
//! each other, and what lies between them is what lies between them on a machine: API objects go in ([`proxies`]), the text
//! that `iptables-save`, `nft list ruleset`, `ipset save` and `ipvsadm -Sn` print comes out and is read again ([`programs`]), and packets walk
//! over [`machines`] with the addresses and links of the oracle's world. [`judge`] puts a question to both judges and compares, [`disagreement`] tells a disagreement,
//! [`sweep`] does so for clusters that nobody wrote by hand, and [`mutants`] breaks rules to see who notices.

pub mod disagreement;
pub mod judge;
pub mod machines;
pub mod mutants;
pub mod nft_meaning;
pub mod node;
pub mod programs;
pub mod proxies;
pub mod snapshots;
pub mod sweep;
