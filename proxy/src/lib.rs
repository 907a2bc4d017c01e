pub mod cli;
pub mod config;
pub mod daemon;
pub mod events;
#[doc(hidden)]
pub mod fuzzing;
pub mod habits;
pub mod health;
pub mod http;
pub mod kernel;
pub mod kubeproxy_config;
pub mod metrics;
pub mod mode;
pub mod model;
pub mod mutants;
pub mod nftables;
pub mod plan;
pub mod port_range;
pub mod relay;
mod removed_objects;
pub mod ruleset;
pub mod small_file;
pub mod source;
pub mod state;
#[doc(hidden)]
pub mod testing;
pub mod zpages;
