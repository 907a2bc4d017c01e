//! `svclab`: a laboratory for Kubernetes service proxies.

pub mod bundle;
pub mod cli;
pub mod compare;
pub mod conformance;
pub mod control;
pub mod expect;
mod explanation;
pub mod input;
mod log;
pub mod matrix;
pub mod mode;
mod outcome_text;
pub mod promises;
pub mod report;
pub mod scenario;
pub mod shipped;
