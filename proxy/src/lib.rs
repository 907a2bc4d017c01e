//! `svcproxy`: a Kubernetes service proxy.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod health;
pub mod kernel;
pub mod kubeproxy_config;
pub mod mode;
pub mod model;
pub mod plan;
pub mod source;
pub mod state;
