//! `svclab`: a laboratory for Kubernetes service proxies.

pub mod cli;
pub mod compare;
pub mod expect;
pub mod input;
pub mod report;
pub mod scenario;
