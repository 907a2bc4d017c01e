//! Memory that is free inside of this process, given back to the system.
#![allow(unsafe_code, reason = "malloc_trim(3) has no safe wrapper")]

use std::thread::{self, Builder};

/// Gives back what is free, after `copy` has replaced what stays by copies of itself.
///
/// A full sync of a large cluster makes several times of what is kept, in between. What is kept is then spread over pages that are
/// free but for it: of 5,000 services with 10 endpoints 10 MB, over 40 MB. The copies are made on a thread of their own, because the
/// C library gives a new thread an arena without such holes (`arena_get2` in glibc's `malloc/arena.c`).
pub fn compact(copy: impl FnOnce() + Send) {
    give_back();
    thread::scope(|scope| {
        // Where the limits allow no thread, everything stays where it is.
        let _ = Builder::new().name("compact".to_owned()).spawn_scoped(scope, copy);
    });
    give_back();
}

fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time by any thread; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
