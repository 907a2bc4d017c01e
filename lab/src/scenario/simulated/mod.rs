//! Scenarios in the simulator: hosts, links and routes as in network namespaces, and svcproxy's printed rules on every
//! node. Needs no kernel and no privileges; the seed decides all random choices.
//!
//! [`render`] runs svcproxy, [`rendered`] reads its output, `drain` and `lost_flows` add what
//! a proxy remembers of earlier objects, [`machines`]
//! builds the network. [`lab`] is a cluster with its objects, `calls` sends requests, [`outcomes`] reads state, [`run`]
//! carries out a scenario.

mod backend;
mod calls;
mod counters;
mod drain;
pub mod lab;
mod lost_flows;
pub mod machines;
pub mod outcomes;
mod reach;
pub mod render;
pub mod rendered;
pub mod run;
mod targets;
