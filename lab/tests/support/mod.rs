#![allow(dead_code, unused_imports, reason = "no test file uses all of this")]

pub mod command;
pub mod nightly;
mod process;
pub mod runs;

pub use process::{descends, eventually, finish, said, unable};
