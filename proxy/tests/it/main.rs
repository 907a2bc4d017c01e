//! All tests are one program, because linking is slow.
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test may panic, and says why it did not run"
)]

mod abuse;
mod affinity_across_ports;
mod check;
mod claims;
mod configuration;
mod configuration_faults;
mod daemon;
mod deploy;
mod flow_fate;
mod fuzzing;
mod hard_start;
mod history;
mod ipvs;
mod ipvs_published;
mod kernel_addresses;
mod kernel_conntrack;
mod kernel_flow_fate;
mod kernel_flowtable;
mod kernel_iptables;
mod kernel_iptables_nft;
mod kernel_ipvs;
mod kernel_kubernetes;
mod kernel_localhost;
mod kernel_metrics;
mod kernel_nftables;
mod kernel_service_counters;
mod kernel_userspace;
mod kubernetes_source;
mod layers;
mod localhost;
mod log_reader;
mod manifests;
mod manual;
mod many_ports;
mod nftables;
mod node_warnings;
mod plan;
mod refusals;
mod relay;
mod shipping;
mod start;
mod support;
mod userspace;
