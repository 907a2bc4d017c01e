use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Failed};

pub fn unable(why: &str) -> Result<Completion, Failed> {
    if std::env::var_os("CI").is_some() {
        return Err(format!("THIS MACHINE CANNOT RUN IT: {why}").into());
    }
    Ok(Completion::ignored_with(format!("THIS MACHINE CANNOT RUN IT: {why}")))
}

pub fn finish(mut command: Command, limit: Duration) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let (done, waiter) = std::sync::mpsc::channel::<()>();
    let killer = std::thread::spawn(move || {
        if waiter.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    killer.join().unwrap();
    output
}

/// Runs this program again with `argument`: only a process with one thread can enter a sandbox. Status 3: no sandbox.
pub fn run_again(argument: &str, limit: Duration) -> Result<Completion, Failed> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(argument).stdin(Stdio::null());
    let output = finish(command, limit);
    match output.status.code() {
        Some(0) => Ok(Completion::Completed),
        Some(3) => unable(said(&output).trim()),
        _ => Err(format!("{}\n{}", output.status, said(&output)).into()),
    }
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until `condition` holds; panics with `what` after a minute.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut pause = Duration::from_millis(1);
    while !condition() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Whether `pid` is `ancestor` or one of its descendants.
pub fn descends(pid: i32, ancestor: u32) -> bool {
    let mut pid = pid;
    loop {
        if u32::try_from(pid) == Ok(ancestor) {
            return true;
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<i32>().ok());
        match parent {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
}
