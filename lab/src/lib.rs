//! `svclab`: a laboratory for Kubernetes service proxies.

pub mod bundle;
pub mod compare;
pub mod conformance;
pub mod control;
mod exit;
pub mod expect;
mod explanation;
mod find;
pub mod input;
mod log;
pub mod matrix;
pub mod merge;
pub mod mode;
mod outcome_text;
pub mod promises;
pub mod report;
pub mod scenario;
pub mod shard;
pub mod shipped;

mod complete;
#[macro_use]
mod console;

pub mod cli;
mod schedule;
