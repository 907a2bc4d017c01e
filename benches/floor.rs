//! The floor: the same objects sent by the shortest program that can.
//!
//! For the commands of iptables: the text that the proxy sent, fed to the same command once more. For netlink: the proxy's batch,
//! sent by nothing but a socket, in a namespace that was brought to the state before it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nf_tables::{Batch, Socket};

use crate::sandbox;
use crate::subject::kernel::Sent;

/// What a proxy sent, to be sent again.
pub enum Floor {
    /// Text for a restore command. It says what chains hold afterwards, so the state before makes no difference.
    Text(&'static str, String),
    /// Batches: what came before, and those that count. They name rules by their handles, which depend on all that came before.
    Batches(Vec<Batch>, Vec<Batch>),
}

impl Floor {
    /// Of what was sent `before` and at the event; with a command, if text was sent.
    pub fn new(command: Option<&'static str>, before: Vec<Sent>, event: Vec<Sent>) -> Floor {
        let batches = |sent: Vec<Sent>| {
            let batch = |sent| match sent {
                Sent::Batch(batch) => Some(batch),
                Sent::Text(_) => None,
            };
            sent.into_iter().filter_map(batch).collect()
        };
        match command {
            Some(command) => {
                let text = event.iter().filter_map(|sent| match sent {
                    Sent::Text(text) => Some(text.as_str()),
                    Sent::Batch(_) => None,
                });
                Floor::Text(command, text.collect())
            }
            None => Floor::Batches(batches(before), batches(event)),
        }
    }

    /// Sends it once: text in the network namespace of this thread, batches in a new one.
    ///
    /// # Errors
    /// When the command or the kernel refuses it.
    pub fn send(&self) -> Result<Duration> {
        match self {
            Floor::Text(command, text) => {
                let start = Instant::now();
                restore(command, text)?;
                Ok(start.elapsed())
            }
            Floor::Batches(before, event) => {
                sandbox::fresh_network()?;
                let mut socket = Socket::open().context("open a socket for nf_tables")?;
                let mut send = |batch| socket.commit(batch).map(drop).context("send a batch once more");
                before.iter().try_for_each(&mut send)?;
                let start = Instant::now();
                event.iter().try_for_each(&mut send)?;
                Ok(start.elapsed())
            }
        }
    }
}

fn restore(command: &str, text: &str) -> Result<()> {
    let mut child = Command::new(command)
        .args(["-w", "5", "--noflush"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {command} (Debian package iptables)"))?;
    let written = child.stdin.take().context("the command's input")?.write_all(text.as_bytes());
    let output = child.wait_with_output().with_context(|| format!("wait for {command}"))?;
    if !output.status.success() {
        bail!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    written.with_context(|| format!("write to {command}"))
}
