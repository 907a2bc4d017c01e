//! The floor: the same objects sent by the shortest program that can.
//!
//! For the commands of iptables: the text that the proxy sent, fed to the same command once more. Where a writer of netlink
//! messages is measured, its batch belongs here, sent by nothing but a socket.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Feeds `texts`, joined, to a restore command.
///
/// # Errors
/// When the command cannot be started, or refuses the text.
pub fn restore(command: &str, texts: &str) -> Result<()> {
    let mut child = Command::new(command)
        .args(["-w", "5", "--noflush"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {command} (Debian package iptables)"))?;
    let written = child.stdin.take().context("the command's input")?.write_all(texts.as_bytes());
    let output = child.wait_with_output().with_context(|| format!("wait for {command}"))?;
    if !output.status.success() {
        bail!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    written.with_context(|| format!("write to {command}"))
}
