use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::Current as _;

/// Memory that stays the same for so long has settled.
const CALM: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the bytes of slabs, per-CPU memory and `vmalloc`. Other programs change them too.
pub(super) fn of_kernel() -> Result<u64> {
    let info = procfs::Meminfo::current().context("read /proc/meminfo")?;
    Ok(info.slab + info.per_cpu.unwrap_or_default() + info.vmalloc_used)
}

/// Returns the settled resident memory (`VmRSS`) of a process in bytes.
pub(super) async fn settled(pid: i32) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    let mut before = resident(pid)?;
    loop {
        tokio::time::sleep(CALM).await;
        let now = resident(pid)?;
        if now == before || Instant::now() > deadline {
            return Ok(now);
        }
        before = now;
    }
}

fn resident(pid: i32) -> Result<u64> {
    let status =
        procfs::process::Process::new(pid).and_then(|process| process.status()).context("look at the proxy")?;
    status.vmrss.map(|kilobytes| kilobytes * 1024).context("the proxy has ended")
}
