//! Returns freed memory to the system: the auditor idles with what its largest audit used otherwise.
#![allow(unsafe_code, reason = "malloc_trim(3) has no safe wrapper")]

#[cfg(target_env = "gnu")]
pub(super) fn trim() {
    // SAFETY: malloc_trim takes no pointer, and is safe to call from any thread.
    unsafe { nix::libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn trim() {}
