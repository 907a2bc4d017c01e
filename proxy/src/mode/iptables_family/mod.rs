pub mod engine;
pub mod iptables;
pub mod ipvs;
pub mod rules;
pub mod userspace;
