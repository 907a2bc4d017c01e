//! Returns free memory to the system.
#![allow(unsafe_code, reason = "malloc_trim(3) has no safe wrapper")]

use std::thread::{self, Builder};

/// Copies the data to keep (`copy`) on another thread, and frees memory.
///
/// Costs memory for both copies, so it is worthwhile only if the kept data is scattered over much freed memory. glibc gives
/// a new thread an arena without holes (`arena_get2` in `malloc/arena.c`).
pub fn compact(copy: impl FnOnce() + Send) {
    trim();
    thread::scope(|scope| {
        let _ = Builder::new().name("compact".to_owned()).spawn_scoped(scope, copy);
    });
    trim();
}

/// Returns free pages to the system.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
