//! A place where rules can be loaded without anybody noticing: own user, mount and network namespaces.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::options::Options;

/// Set in the process that already is inside, to its options.
const INSIDE: &str = "SVCBENCH_INSIDE";

/// This process is in a microVM's guest, which is sandbox enough.
static IN_GUEST: AtomicBool = AtomicBool::new(false);

/// Says so.
pub fn is_guest() {
    IN_GUEST.store(true, Ordering::Relaxed);
}

/// The options of the process outside, if this one is inside the sandbox.
///
/// # Errors
/// When the environment variable is not what [`enter`] sets.
pub fn inside() -> Result<Option<Options>> {
    let Some(text) = env::var_os(INSIDE) else { return Ok(None) };
    let options =
        serde_json::from_slice(text.as_encoded_bytes()).with_context(|| format!("{INSIDE} is not for people"))?;
    // iptables-legacy locks /run/xtables.lock: a private one neither waits for the host nor holds it up.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).context("mount a private /run")?;
    std::fs::create_dir_all(svclab_netns::sandbox::WORK_DIR).context("make the lab's work directory")?;
    Ok(Some(options))
}

/// Starts this program again inside the sandbox, through `unshare` (util-linux), which makes the namespaces while no thread
/// exists yet; returns only when that fails.
///
/// A user namespace only where it must be: `iptables-nft-restore` sends a whole transaction as one message, and only the
/// real root may make the socket's buffer larger than `net.core.wmem_max` for it. An ordinary user's proxy has to send
/// several, which takes longer.
///
/// # Errors
/// When this machine does not let the namespaces be made.
pub fn enter(options: &Options, arguments: &[OsString]) -> Result<()> {
    let program = env::current_exe().context("find this program's own path")?;
    let as_root = ["--mount", "--net", "--"];
    let trial = Command::new("unshare").args(as_root).arg("true").output();
    let is_root = trial.context("start `unshare` (Debian package util-linux)")?.status.success();
    let user = ["--user", "--map-root-user"];
    let error = Command::new("unshare")
        .args(if is_root { &[][..] } else { &user })
        .args(as_root)
        .arg(program)
        .args(arguments)
        .env(INSIDE, serde_json::to_string(options).context("hand the options over")?)
        .exec();
    Err(error).context("start `unshare` (Debian package util-linux)")
}

/// Puts this thread, and every child it starts from now on, into a new and empty network namespace. The one before
/// goes when no process is left in it.
///
/// # Errors
/// Outside the sandbox, and when the kernel refuses.
pub fn fresh_network() -> Result<()> {
    if env::var_os(INSIDE).is_none() && !IN_GUEST.load(Ordering::Relaxed) {
        bail!("fresh_network outside the sandbox: call enter first");
    }
    unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
    if IN_GUEST.load(Ordering::Relaxed) {
        // Without any address IPVS takes no destination: every one is a broadcast address then (`__inet_dev_addr_type`,
        // net/ipv4/fib_frontend.c).
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("start ip")?;
        ensure!(up.success(), "ip link set lo up: {up}");
    }
    Ok(())
}
