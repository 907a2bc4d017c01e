//! The floor: the same objects sent by the shortest program that can.
//!
//! For the commands of iptables: the text that the proxy sent, fed to the same command once more. For netlink: the proxy's batch,
//! sent by nothing but a socket, in a namespace that was brought to the state before it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nf_tables::Socket;

use crate::sandbox;
use crate::subject::ipvs::Bare;
use crate::subject::kernel::Sent;

/// What a proxy sent, to be sent again.
pub enum Floor {
    /// Text for a restore command. It says what chains hold afterwards, so the state before makes no difference.
    Text(&'static str, String),
    /// Netlink: what came before, and what counts. Batches name rules by their handles, which depend on all that came before.
    Netlink(Vec<Sent>, Vec<Sent>),
}

impl Floor {
    /// Of what was sent `before` and at the event; with a command, if text was sent.
    pub fn new(command: Option<&'static str>, before: Vec<Sent>, event: Vec<Sent>) -> Floor {
        match command {
            Some(command) => {
                let text = event.iter().filter_map(|sent| match sent {
                    Sent::Text(text) => Some(text.as_str()),
                    Sent::Batch(_) | Sent::Change(_) | Sent::Call(_) => None,
                });
                Floor::Text(command, text.collect())
            }
            None => Floor::Netlink(before, event),
        }
    }

    /// Sends it once: text in the network namespace of this thread, the rest in a new one.
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
            Floor::Netlink(before, event) => {
                sandbox::fresh_network()?;
                let mut socket = Socket::open().context("open a socket for nf_tables")?;
                let is_call = |sent: &&Sent| matches!(sent, Sent::Call(_));
                let mut bare = before.iter().chain(event).find(is_call).map(|_| Bare::open()).transpose()?;
                let mut send = |sent: &Sent| match (sent, &mut bare) {
                    (Sent::Batch(batch), _) => socket.commit(batch).map(drop).context("send a batch once more"),
                    (Sent::Call(call), Some(bare)) => bare.send(call),
                    (Sent::Call(_) | Sent::Text(_) | Sent::Change(_), _) => bail!("text and calls have their own ways"),
                };
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
