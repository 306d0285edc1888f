//! Has the processor bring what will be read soon from memory to its caches; an island of unsafe code.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instruction takes an address; that of a reference is one of our own")
)]

/// Begins to bring what is at a place, and does not wait for it. A hint: it changes nothing.
#[cfg(target_arch = "x86_64")]
pub(crate) fn prefetch<T>(place: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    // SAFETY: the instruction reads nothing that the program sees and never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch<T>(_place: &T) {}
