//! Namespaces that somebody else has made: a container's, for example.

use std::fs::File;
use std::io;
use std::panic::resume_unwind;
use std::thread;

use nix::sched::CloneFlags;

use super::sys;

/// Runs `work` in the network namespace that `namespace` refers to (a file such as `/proc/4711/ns/net`), on a thread that ends with
/// it. Sockets that it makes belong there for good. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// When the namespace cannot be entered.
pub fn in_network<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let visit = scope.spawn(|| sys::join(namespace, CloneFlags::CLONE_NEWNET).map(|()| work()));
        visit.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
