//! A scenario's cluster in the simulator: the same machines, links and routes as of network namespaces, and on every node the
//! rules that a proxy prints. No kernel, no privileges, no luck but a seeded one.
//!
//! [`rendered`] reads what a node's rules are, [`render`] asks svcproxy for them, `drain` knows what stays of those before,
//! [`machines`] builds the network. [`lab`] is all of it with the objects: `calls` sends requests, by way of relays in
//! userspace mode, [`looks`] sees what there is, [`run`] carries a scenario out.

mod backend;
mod calls;
mod counters;
mod drain;
pub mod lab;
pub mod looks;
pub mod machines;
pub mod render;
pub mod rendered;
pub mod run;
mod targets;
