#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod faults;
mod kubectl;
mod objects;
mod protobuf;
mod raw;
mod relay;
mod support;
