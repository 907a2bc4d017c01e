//! Memory that is free inside of this process, given back to the system.
#![allow(unsafe_code, reason = "malloc_trim(3) has no safe wrapper")]

/// Gives back what is free. A full sync of a large cluster handles its whole text once, several times the size of what
/// is kept; the C library would keep that room until the next one, an hour later.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time by any thread; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
