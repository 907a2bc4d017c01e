//! Returns free memory to the system.
#![allow(unsafe_code, reason = "mallinfo(3) and malloc_trim(3) have no safe wrappers")]

use std::thread::{self, Builder};

use nix::unistd::{SysconfVar, sysconf};

/// Less waste than this is not worth a copy of the kept data.
const LEAST_WASTE: usize = 8 << 20;

/// Notices that the process holds much more memory than it uses.
#[derive(Debug, Default)]
pub struct Waste {
    /// Bytes that the last move could not return, because other data is scattered there, such as the other family's.
    stays: usize,
}

impl Waste {
    /// Returns free memory; moves the data that is kept (`copy`) if it is scattered over much freed memory.
    pub fn give_back(&mut self, copy: impl FnOnce() + Send) {
        let is_much = || wasted().is_some_and(|(wasted, used)| self.is_much(wasted, used));
        if is_much() {
            trim();
        }
        if is_much() {
            compact(copy);
            self.stays = wasted().map_or(0, |(wasted, _)| wasted);
        }
    }

    /// More than a quarter of what is used, and half as much again as after the last move.
    fn is_much(&self, wasted: usize, used: usize) -> bool {
        wasted > LEAST_WASTE.max(used / 4) && wasted > self.stays / 2 * 3
    }
}

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

/// Bytes of anonymous memory that are resident without being used, and bytes that are used.
fn wasted() -> Option<(usize, usize)> {
    let used = used()?;
    Some((resident()?.saturating_sub(used), used))
}

/// The allocator visits all its free pieces for this, so not after every sync.
fn used() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo takes the allocator's locks. Its fields are 32 bits wide; mallinfo2 needs glibc 2.33.
        let info = unsafe { libc::mallinfo() };
        Some(info.uordblks.cast_unsigned() as usize + info.hblkhd.cast_unsigned() as usize)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Resident without the pages of files: proc_pid_statm(5).
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split_whitespace().skip(1).map(str::parse::<usize>);
    let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
    let page = usize::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    Some(resident.saturating_sub(of_files) * page)
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_move_has_to_be_worth_its_copy() {
        let is_much = |stays, wasted, used| Waste { stays: stays * MIB }.is_much(wasted * MIB, used * MIB);
        assert!(is_much(0, 9, 20) && !is_much(0, 7, 20), "the least");
        assert!(is_much(0, 26, 100) && !is_much(0, 24, 100), "a quarter of what is used");
        assert!(is_much(10, 16, 20) && !is_much(10, 14, 20), "more than the last move left");
    }

    /// One of four blocks of 1 KiB is kept, so that no page is free. Other tests may share this process and its memory.
    #[test]
    fn kept_data_that_is_scattered_is_moved() {
        let mut blocks: Vec<Option<Box<[u8]>>> = (0..131_072).map(|_| Some(vec![1; 1000].into())).collect();
        blocks.iter_mut().enumerate().filter(|(index, _)| index % 4 != 0).for_each(|(_, block)| *block = None);
        let (before, _) = wasted().unwrap();
        Waste::default().give_back(|| blocks = blocks.clone());
        let (left, used) = wasted().unwrap();
        assert!(before > 80 * MIB && left < 40 * MIB && used > 30 * MIB, "{before} became {left} beside {used} bytes");
    }
}
