//! How many bytes this thread has allocated at most at one time.
#![expect(
    unsafe_code,
    reason = "an allocator is an unsafe trait; every call goes to the system's one unchanged"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
pub(crate) struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counted before it is granted: what is refused was asked for all the same.
fn note(bytes: isize) {
    // Nothing is counted while a thread ends.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(bytes));
        PEAK.with(|peak| peak.set(peak.get().max(now.get())));
    });
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: each method hands its arguments to the system's allocator and gives back what that gave.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        note(-signed(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old bytes and the new ones exist together while they are copied.
        note(signed(size));
        note(-signed(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(start, layout, size) }
    }
}

/// The result of `work` and the most that it held at one time beyond what was held before.
pub(crate) fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let result = work();
    (result, usize::try_from(PEAK.get().saturating_sub(before)).unwrap_or(0))
}
