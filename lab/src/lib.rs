//! `svclab`: a laboratory for Kubernetes service proxies.

pub mod apiserver;
pub mod cli;
pub mod cluster;
pub mod compare;
pub mod expect;
pub mod input;
pub mod microvm;
pub mod netns;
pub mod objects;
pub mod report;
pub mod scenario;
pub mod traffic;
