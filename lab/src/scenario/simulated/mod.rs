//! A scenario's cluster in the simulator: the same machines, links and routes as of network namespaces, and on every node the
//! rules that a proxy prints. No kernel, no privileges, no luck but a seeded one.
//!
//! [`program`] reads what a node's rules are, [`render`] asks svcproxy for them, [`machines`] builds the network, `lab` is all
//! of it with the objects, [`run`] carries a scenario out in it.

mod aim;
mod lab;
pub mod machines;
mod notes;
pub mod program;
pub mod render;
pub mod run;
