//! One program, because each program links everything again.
#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "a test may panic, and says why it did not run")]

#[cfg(target_endian = "little")]
mod bytes;
mod kernel_compat;
mod kernel_dumps;
mod kernel_expressions;
mod kernel_socket;
mod support;
