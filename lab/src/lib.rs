//! `svclab`: a laboratory for Kubernetes service proxies.

pub mod cluster;
pub mod netns;
pub mod traffic;
