//! The lab's Kubernetes API as clients meet it: over real sockets, through the `kube` crate, as `kubectl` asks, and
//! through `kubectl` itself where it is installed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod faults;
mod kubectl;
mod objects;
mod raw;
mod relay;
mod support;
