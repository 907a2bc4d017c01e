//! Brings a lab up in a microVM, with a shell outside the lab's sandbox.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use svclab_microvm::session::TerminalSize;
use svclab_microvm::session::inside::Session;

use crate::exit::{Exit, FAILED, status_of};

/// The banner's file in the guest's memory; the lab writes it once it is up.
const BANNER: &str = "/out/banner";
const POLL: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(super) struct GuestUpArgs {
    /// The size of the terminal, as JSON [default: no terminal].
    #[arg(long, value_name = "JSON", value_parser = parse_size)]
    terminal: Option<TerminalSize>,
    /// The terminal's TERM.
    #[arg(long, value_name = "TERM", default_value = "dumb")]
    term: String,
    /// The shell's prompt.
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// The arguments of `up`.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    up: Vec<String>,
}

fn parse_size(text: &str) -> Result<TerminalSize, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

pub(super) fn run(args: &GuestUpArgs) -> Result<u8, Exit> {
    let failed = |what: &str, error: std::io::Error| Exit::unable(format!("{what}: {error}"));
    let own = std::env::current_exe().map_err(|error| failed("cannot find svclab itself", error))?;
    let mut command = Command::new(own);
    command.arg("up").args(["--banner", BANNER]).args(&args.up).stdin(Stdio::null()).stdout(Stdio::null());
    let mut lab = command.spawn().map_err(|error| failed("cannot bring the lab up", error))?;
    let banner = loop {
        if let Ok(banner) = std::fs::read_to_string(BANNER) {
            break banner;
        }
        if let Ok(Some(status)) = lab.try_wait() {
            // `up` printed the error.
            return Err(Exit { status: status_of(status), message: String::new() });
        }
        std::thread::sleep(POLL);
    };
    let session = Session::open(args.terminal).map_err(|error| failed("the microVM's second serial line", error))?;
    let lost = |error| failed("the shell", error);
    session.say(&banner).map_err(lost)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let watch = {
        let (session, is_over) = (session.another().map_err(lost)?, Arc::clone(&is_over));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                if let Ok(Some(status)) = lab.try_wait() {
                    let _ = session.say(&format!("\nsvclab: the lab is gone ({status}); `exit` ends the microVM\n"));
                    return;
                }
                std::thread::sleep(POLL);
            }
            // Ends the lab: the microVM waits for processes that hold standard error.
            let _ = lab.kill();
            let _ = lab.wait();
        })
    };
    let status = session.run(&mut shell(args)).map_err(lost)?;
    is_over.store(true, Ordering::Release);
    let _ = watch.join();
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

fn shell(args: &GuestUpArgs) -> Command {
    let home = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut shell = if args.terminal.is_some() {
        let mut shell = Command::new("setsid");
        shell.args(["-c", "sh"]);
        shell
    } else {
        Command::new("sh")
    };
    shell.current_dir(home).env("TERM", &args.term).env("PS1", &args.prompt);
    shell
}
