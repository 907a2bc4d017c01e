use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::finish;

pub const LIMIT: Duration = Duration::from_secs(250);

pub fn svclab(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(Stdio::null()).current_dir(folder);
    finish(command, LIMIT)
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn ended(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}\n{}", out(output), err(output));
}
