//! Network namespaces of other programs.

use std::fs::File;
use std::io;
use std::panic::resume_unwind;
use std::thread;

use nix::sched::CloneFlags;

use super::sys;

/// Runs `work` in the network namespace `/proc/4711/ns/net`, on a temporary thread. Needs `CAP_SYS_ADMIN`.
pub fn in_network<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let visit = scope.spawn(|| sys::join(namespace, CloneFlags::CLONE_NEWNET).map(|()| work()));
        visit.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
