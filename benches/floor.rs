//! The floor: the proxy's transactions, sent again by the shortest possible program.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nf_tables::NfSocket;

use crate::sandbox;
use crate::subject::ipvs::Bare;
use crate::subject::kernel::SentTransaction;

/// The transactions of a proxy, to send them again.
pub enum Floor {
    /// Text for a restore command. The state before the event does not matter.
    Text(&'static str, String),
    /// The batches before the event, and those of the event: they name rules by handles of earlier batches.
    Netlink(Vec<SentTransaction>, Vec<SentTransaction>),
}

impl Floor {
    pub fn new(command: Option<&'static str>, before: Vec<SentTransaction>, event: Vec<SentTransaction>) -> Floor {
        match command {
            Some(command) => {
                let text = event.iter().filter_map(|sent| match sent {
                    SentTransaction::Text(text) => Some(text.as_str()),
                    SentTransaction::Batch(_) | SentTransaction::Change(_) | SentTransaction::Call(_) => None,
                });
                Floor::Text(command, text.collect())
            }
            None => Floor::Netlink(before, event),
        }
    }

    /// Sends text in the network namespace of this thread, and netlink messages in a new one.
    pub fn send(&self) -> Result<Duration> {
        match self {
            Floor::Text(command, text) => {
                let start = Instant::now();
                restore(command, text)?;
                Ok(start.elapsed())
            }
            Floor::Netlink(before, event) => {
                sandbox::fresh_network()?;
                let mut socket = NfSocket::open().context("open a socket for nf_tables")?;
                let is_call = |sent: &&SentTransaction| matches!(sent, SentTransaction::Call(_));
                let mut bare = before.iter().chain(event).find(is_call).map(|_| Bare::open()).transpose()?;
                let mut send = |sent: &SentTransaction| match (sent, &mut bare) {
                    (SentTransaction::Batch(batch), _) => {
                        socket.commit(batch).map(drop).context("send a batch once more")
                    }
                    (SentTransaction::Call(call), Some(bare)) => bare.send(call),
                    (SentTransaction::Call(_) | SentTransaction::Text(_) | SentTransaction::Change(_), _) => {
                        bail!("text and calls have their own ways")
                    }
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
