//! The network namespace of the program itself.

use tokio::runtime::Handle;

use super::NetnsError;
use super::links::Links;

/// `lo` is the first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// Sets the loopback interface of the sandbox up, for servers of the lab's own that no node is to see.
///
/// # Errors
/// When the kernel refuses, as it does outside of a sandbox.
pub async fn loopback_up() -> Result<(), NetnsError> {
    Links::open("the sandbox", &Handle::current())?.up(LOOPBACK).await
}
