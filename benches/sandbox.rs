//! A sandbox for rules: user, mount and network namespaces of its own.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::options::BenchOptions;

/// The environment variable with the options, set only inside the sandbox.
const INSIDE: &str = "SVCBENCH_INSIDE";

/// Whether this process runs in a microVM, which needs no sandbox.
static IN_GUEST: AtomicBool = AtomicBool::new(false);

pub fn is_guest() {
    IN_GUEST.store(true, Ordering::Relaxed);
}

pub fn inside() -> Result<Option<BenchOptions>> {
    let Some(text) = env::var_os(INSIDE) else { return Ok(None) };
    let options =
        serde_json::from_slice(text.as_encoded_bytes()).with_context(|| format!("{INSIDE} is not for people"))?;
    // iptables-legacy locks /run/xtables.lock. A private /run keeps that lock apart from the host's.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).context("mount a private /run")?;
    std::fs::create_dir_all(svclab_netns::sandbox::WORK_DIR).context("make the lab's work directory")?;
    Ok(Some(options))
}

/// Executes this program in new namespaces by `unshare` (util-linux). Returns only at a failure.
///
/// Only the host's root may exceed `net.core.wmem_max`, which `iptables-nft-restore` needs, so a user namespace is
/// created only where needed.
pub fn enter(options: &BenchOptions, arguments: &[OsString]) -> Result<()> {
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

/// Moves this thread and its later children to a new network namespace.
pub fn fresh_network() -> Result<()> {
    if env::var_os(INSIDE).is_none() && !IN_GUEST.load(Ordering::Relaxed) {
        bail!("fresh_network outside the sandbox: call enter first");
    }
    unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
    if IN_GUEST.load(Ordering::Relaxed) {
        // While `lo` is down every destination counts as broadcast, which IPVS rejects (`__inet_dev_addr_type`,
        // net/ipv4/fib_frontend.c).
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("start ip")?;
        ensure!(up.success(), "ip link set lo up: {up}");
    }
    Ok(())
}
