//! Counts allocations by thread. A program that counts has [`Counting`] as its global allocator.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::{AddAssign, Sub};

use serde::{Deserialize, Serialize};

pub struct Counting;

/// Allocations, freed ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocated {
    /// Allocations and reallocations.
    pub times: u64,
    pub bytes: u64,
}

thread_local! {
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { times: 0, bytes: 0 }) };
}

impl Allocated {
    /// Returns the allocations of this thread so far; zero unless [`Counting`] is the allocator.
    pub fn by_this_thread() -> Allocated {
        ALLOCATED.get()
    }
}

impl Sub for Allocated {
    type Output = Allocated;

    fn sub(self, before: Allocated) -> Allocated {
        Allocated { times: self.times - before.times, bytes: self.bytes - before.bytes }
    }
}

impl AddAssign for Allocated {
    fn add_assign(&mut self, more: Allocated) {
        self.times += more.times;
        self.bytes += more.bytes;
    }
}

fn count(bytes: usize) {
    // The counter is gone while the thread ends.
    let _ = ALLOCATED.try_with(|allocated| {
        let Allocated { times, bytes: before } = allocated.get();
        allocated.set(Allocated { times: times + 1, bytes: before + bytes as u64 });
    });
}

// SAFETY: passes every call to the system's allocator unchanged; the count allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps the contract of the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
