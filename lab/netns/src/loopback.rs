use tokio::runtime::Handle;

use super::NetnsError;
use super::links::Links;

const LOOPBACK: u32 = 1;

/// Sets the sandbox's loopback up.
pub async fn loopback_up() -> Result<(), NetnsError> {
    Links::open("the sandbox", &Handle::current())?.up(LOOPBACK).await
}
