//! Memory for payloads, aligned for vector loads and for frameworks that adopt it without a copy.

use std::sync::{Arc, Mutex, TryLockError};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Memory, WORTH_LARGE_PAGES};

/// Alignment of a buffer's first byte and, where payloads differ in size, of each payload.
pub const ALIGNMENT: usize = 64;

/// Smaller buffers are cheap to make; larger ones cost the kernel a page fault every 4 KiB.
const WORTH_KEEPING: usize = 64 << 10;

/// Bytes whose address is a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub struct AlignedBuffer {
    storage: Memory,
    start: usize,
    length: usize,
    pool: Option<Arc<Pool>>,
}

impl AlignedBuffer {
    /// `length` zeroed bytes, or a typed error where memory does not suffice.
    pub fn zeroed(length: usize) -> Result<Self> {
        let total = padded(length)?;
        Ok(Self::over(allocate(total, length)?, length, None))
    }

    /// `length` bytes of any content, for a caller that writes every one of them: memory of the pool where it
    /// has some of that size. It goes back there when the buffer is dropped, so not before its last user is gone.
    pub fn uncleared(length: usize, pool: &Arc<Pool>) -> Result<Self> {
        let total = padded(length)?;
        if total < WORTH_KEEPING {
            return Ok(Self::over(allocate(total, length)?, length, None));
        }
        let storage = match pool.take(total) {
            Some(storage) => storage,
            None => allocate(roomy(total), length)?,
        };
        Ok(Self::over(storage, length, Some(Arc::clone(pool))))
    }

    fn over(storage: Memory, length: usize, pool: Option<Arc<Pool>>) -> Self {
        let start = storage.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        AlignedBuffer { storage, start, length, pool }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.storage.get(self.start..self.start + self.length).unwrap_or_default()
    }

    /// The bytes, to be filled.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.storage.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give(std::mem::take(&mut self.storage));
        }
    }
}

/// Memory of batches that nobody has any more, for the next batches of the same loader.
///
/// To an allocator it would go back as well; from here it comes again with its pages in place and without
/// being cleared, which is what large batches spend most of their time on.
#[derive(Debug)]
pub struct Pool {
    spare: Mutex<Vec<Memory>>,
    most_buffers: usize,
    most_bytes: usize,
}

impl Pool {
    /// A pool that keeps at most so many buffers and so many bytes of them.
    pub fn new(most_buffers: usize, most_bytes: usize) -> Arc<Self> {
        Arc::new(Pool { spare: Mutex::default(), most_buffers, most_bytes })
    }

    /// Room for the batches that are ready, being read and being looked at: half as many bytes again as may be ready.
    pub fn for_prefetch(batches: u64, bytes: u64) -> Arc<Self> {
        let batches = usize::try_from(batches).unwrap_or(usize::MAX);
        let bytes = usize::try_from(bytes.saturating_add(bytes / 2)).unwrap_or(usize::MAX);
        Pool::new(batches.saturating_add(2), bytes)
    }

    /// A buffer of at least `total` bytes and not many more, of any content.
    fn take(&self, total: usize) -> Option<Memory> {
        self.with_spare(|spare| {
            let fits = |kept: &Memory| (total..=total.saturating_mul(2)).contains(&kept.len());
            let at = spare.iter().rposition(fits)?;
            Some(spare.swap_remove(at))
        })
        .flatten()
    }

    fn give(&self, storage: Memory) {
        self.with_spare(|spare| {
            let held: usize = spare.iter().map(|kept| kept.len()).sum();
            if spare.len() < self.most_buffers && held.saturating_add(storage.len()) <= self.most_bytes {
                spare.push(storage);
            }
        });
    }

    /// Never waits: in a forked child the lock may be held by a thread that does not exist there.
    fn with_spare<T>(&self, work: impl FnOnce(&mut Vec<Memory>) -> T) -> Option<T> {
        match self.spare.try_lock() {
            Ok(mut spare) => Some(work(&mut spare)),
            Err(TryLockError::Poisoned(spare)) => Some(work(&mut spare.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The size of an allocation that has `length` bytes from an aligned place on.
fn padded(length: usize) -> Result<usize> {
    // A mapping begins at a page.
    let before = if length < WORTH_LARGE_PAGES { ALIGNMENT } else { 0 };
    let total = length.checked_add(before).filter(|n| *n <= isize::MAX as usize);
    total.ok_or_else(|| not_enough(length))
}

/// A little more than is needed, so that batches of almost the same size can follow each other in it.
fn roomy(total: usize) -> usize {
    total.checked_next_multiple_of((total / 8).max(1).next_power_of_two()).unwrap_or(total)
}

fn allocate(total: usize, length: usize) -> Result<Memory> {
    Memory::cleared(total).ok_or_else(|| not_enough(length))
}

fn not_enough(length: usize) -> Error {
    Error::no_memory(format!("not enough memory for {length} bytes of payloads; use smaller batches"))
}

/// Where `lengths` payloads lie in one buffer: back to back if all have one length, otherwise each
/// on an aligned start. Gives the starts and the total.
pub fn layout(lengths: &[usize]) -> Result<(Vec<usize>, usize)> {
    let step = match lengths.first() {
        Some(first) if lengths.iter().all(|length| length == first) => 1,
        _ => ALIGNMENT,
    };
    let mut starts = Vec::with_capacity(lengths.len());
    let mut end = 0usize;
    for length in lengths {
        let start = end.checked_next_multiple_of(step).ok_or_else(too_large)?;
        starts.push(start);
        end = start.checked_add(*length).ok_or_else(too_large)?;
    }
    Ok((starts, end))
}

fn too_large() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the batch is larger than the address space; use smaller batches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zeroed() {
        for length in [0, 1, 63, 64, 1000, 100_000, WORTH_LARGE_PAGES - 1, WORTH_LARGE_PAGES] {
            let mut buffer = AlignedBuffer::zeroed(length).unwrap();
            assert_eq!(buffer.as_slice(), vec![0; length]);
            assert_eq!(buffer.as_slice().as_ptr().addr() % ALIGNMENT, 0);
            buffer.as_mut_slice().fill(1);
            assert_eq!(buffer.as_slice(), vec![1; length]);
        }
        assert!(AlignedBuffer::zeroed(usize::MAX).is_err());
    }

    fn address(buffer: &AlignedBuffer) -> usize {
        buffer.as_slice().as_ptr().addr()
    }

    #[test]
    fn memory_comes_again_only_when_its_buffer_is_gone() {
        let pool = Pool::new(2, 1 << 20);
        let first = AlignedBuffer::uncleared(100_000, &pool).unwrap();
        let place = address(&first);
        let second = AlignedBuffer::uncleared(100_000, &pool).unwrap();
        assert_ne!(address(&second), place);
        drop(first);
        let again = AlignedBuffer::uncleared(99_000, &pool).unwrap();
        assert_eq!((address(&again), again.len()), (place, 99_000));
        assert_eq!(place % ALIGNMENT, 0);
    }

    #[test]
    fn a_pool_keeps_no_more_than_it_may() {
        let pool = Pool::new(2, 300_000);
        let held = || pool.spare.lock().unwrap().iter().map(|kept| kept.len()).sum::<usize>();
        let buffers: Vec<_> = (0..4).map(|_| AlignedBuffer::uncleared(100_000, &pool).unwrap()).collect();
        drop(buffers);
        assert_eq!(pool.spare.lock().unwrap().len(), 2);
        drop(AlignedBuffer::uncleared(250_000, &pool).unwrap());
        assert!((200_000..=300_000).contains(&held()), "{}", held());
        // Far too large for what is wanted, and too small to be worth it.
        assert_ne!(AlignedBuffer::uncleared(70_000, &pool).unwrap().storage.len(), 0);
        drop(AlignedBuffer::uncleared(10, &pool).unwrap());
        assert_eq!(pool.spare.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_pool_that_is_locked_for_ever_is_done_without() {
        let pool = Pool::new(2, 1 << 20);
        let buffer = AlignedBuffer::uncleared(100_000, &pool).unwrap();
        let held = pool.spare.lock().unwrap();
        assert_eq!(AlignedBuffer::uncleared(100_000, &pool).unwrap().as_slice(), vec![0; 100_000]);
        drop(buffer);
        assert!(held.is_empty());
    }

    #[test]
    fn one_size_is_dense_and_others_are_aligned() {
        assert_eq!(layout(&[3, 3, 3]).unwrap(), (vec![0, 3, 6], 9));
        assert_eq!(layout(&[3, 0, 65, 1]).unwrap(), (vec![0, 64, 64, 192], 193));
        assert_eq!(layout(&[]).unwrap(), (vec![], 0));
        assert!(layout(&[usize::MAX, 1]).is_err());
    }
}
