//! Has the disk begin with what was written while the next bytes are made; an island of unsafe code.
//!
//! Left alone, the system keeps what a shard of some hundred megabytes consists of until the shard is closed, and the sync
//! then waits for all of it. PostgreSQL and RocksDB do the same with their files (docs/decisions/0008).

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "the system call has no safe wrapper; it is given numbers alone")
)]

use std::fs::File;

/// Has the disk begin with the bytes of a file from `offset` on, and does not wait for it. A hint: what fails here is told
/// by the sync, and what is not begun is done there.
#[cfg(target_os = "linux")]
pub(super) fn begin(file: &File, offset: u64, bytes: u64) {
    use std::os::fd::AsRawFd as _;

    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else { return };
    // SAFETY: the call takes numbers and touches no memory of ours; the descriptor is open while `file` is borrowed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn begin(_file: &File, _offset: u64, _bytes: u64) {}
