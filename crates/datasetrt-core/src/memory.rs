//! Memory that is asked for before it is taken, in large pages where there is much of it.
//!
//! The kernel clears fresh memory page by page, at the first touch of each, and clears two megabytes at once several times as
//! fast as 4 KiB by 4 KiB (docs/decisions/0009).

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::error::{Error, Result};

/// The large pages of the processors that the wheels are made for.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Less comes from the allocator, which often has it in place. Where a virtual machine gives its free memory back to the
/// host, all memory that is not in place costs as much as its bytes.
pub(crate) const WORTH_LARGE_PAGES: usize = 16 << 20;

/// Bytes of this process alone.
#[derive(Debug)]
pub(crate) struct Memory {
    held: Held,
    bytes: usize,
}

#[derive(Debug)]
enum Held {
    Allocated(Vec<u8>),
    /// Of no file. It may be a little longer.
    Mapped(MmapMut),
}

impl Memory {
    /// So many cleared bytes, or None where the system refuses them: a failed allocation of a `Vec` would end the process.
    pub(crate) fn cleared(bytes: usize) -> Option<Self> {
        if bytes >= WORTH_LARGE_PAGES {
            let mapped = MmapMut::map_anon(in_large_pages(bytes)).ok()?;
            // Unasked, most systems use small ones. A refusal changes nothing else.
            #[cfg(target_os = "linux")]
            let _ = mapped.advise(memmap2::Advice::HugePage);
            return Some(Memory { held: Held::Mapped(mapped), bytes });
        }
        Vec::<u8>::new().try_reserve_exact(bytes).ok()?;
        Some(Memory { held: Held::Allocated(vec![0; bytes]), bytes })
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory { held: Held::Allocated(Vec::new()), bytes: 0 }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let held: &[u8] = match &self.held {
            Held::Allocated(held) => held,
            Held::Mapped(held) => held,
        };
        held.get(..self.bytes).unwrap_or_default()
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        let held: &mut [u8] = match &mut self.held {
            Held::Allocated(held) => held,
            Held::Mapped(held) => held,
        };
        held.get_mut(..self.bytes).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// What is smaller is not asked for: where the system refuses that, no error can be made any more.
const WORTH_ASKING: usize = 4 << 10;

/// Whether the system has so many bytes in one piece at this moment, which are then taken by code that would end the process
/// where they are refused: that of Arrow, of NumPy, and the collections of the standard library. `what` they are for
/// completes a sentence.
///
/// # Errors
///
/// `io` if it has not.
pub fn ask(what: &str, bytes: usize) -> Result<()> {
    if bytes < WORTH_ASKING || Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    Err(refused(what, bytes))
}

/// An empty list with room for so many items. `what` they are completes a sentence.
///
/// # Errors
///
/// `io` if the system refuses the memory.
pub fn list<T>(what: &str, items: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(items).map_err(|_| refused(what, items.saturating_mul(size_of::<T>())))?;
    Ok(list)
}

/// A list of what an iterator gives, which knows how many items it has.
///
/// # Errors
///
/// `io` if the system refuses the memory.
pub fn collect<T>(what: &str, items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut list = list(what, items.len())?;
    list.extend(items);
    Ok(list)
}

/// Appends to a list, which has room for many more items then.
///
/// # Errors
///
/// `io`, and the list as it was, if the system refuses the memory.
pub fn push<T>(what: &str, list: &mut Vec<T>, item: T) -> Result<()> {
    reserve(what, list, 1)?;
    list.push(item);
    Ok(())
}

/// Room for so many more items.
///
/// # Errors
///
/// `io`, and the list as it was, if the system refuses the memory.
pub fn reserve<T>(what: &str, list: &mut Vec<T>, more: usize) -> Result<()> {
    let bytes = list.len().saturating_add(more).saturating_mul(size_of::<T>());
    list.try_reserve(more).map_err(|_| refused(what, bytes))
}

/// The error where the system refuses so many bytes. `what` they are for completes a sentence.
pub fn refused(what: &str, bytes: usize) -> Error {
    let message =
        format!("not enough memory for {bytes} bytes of {what}; free memory, or use fewer rows at once");
    Error::no_memory(message)
}

/// What to map for so many bytes: a little more, if that fills large pages. The kernel begins a mapping at the border of
/// one if it ends at one.
fn in_large_pages(bytes: usize) -> usize {
    let filled = bytes.checked_next_multiple_of(LARGE_PAGE_BYTES);
    filled.filter(|filled| filled - bytes <= bytes / 8).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn memory_is_cleared_and_can_be_written_whatever_its_size() {
        for bytes in [0, 1, 4095, WORTH_LARGE_PAGES - 1, WORTH_LARGE_PAGES, WORTH_LARGE_PAGES + 4097] {
            let mut memory = Memory::cleared(bytes).unwrap();
            assert_eq!(*memory, vec![0; bytes]);
            memory.fill(7);
            assert_eq!(memory.as_ref(), vec![7; bytes]);
        }
        assert!(Memory::default().is_empty());
    }

    #[test]
    fn memory_that_cannot_be_had_is_none() {
        assert!(Memory::cleared(isize::MAX as usize).is_none());
        assert!(Memory::cleared(usize::MAX).is_none());
    }

    #[test]
    fn lists_that_cannot_be_had_are_errors() {
        let bytes = isize::MAX as usize;
        for refused in
            [ask("rows", bytes), list::<u64>("rows", bytes).map(drop), list::<u8>("rows", bytes).map(drop)]
        {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Io);
            assert!(refused.message().starts_with("not enough memory for "), "{refused}");
            assert!(refused.message().contains(" bytes of rows; "), "{refused}");
        }
        assert_eq!(ask("rows", WORTH_ASKING), Ok(()));
        let mut items = collect("rows", 3..6).unwrap();
        push("rows", &mut items, 9).unwrap();
        assert_eq!(items, [3, 4, 5, 9]);
    }

    #[test]
    fn what_is_added_fills_large_pages_and_is_little() {
        assert_eq!(in_large_pages(16_700_000), 16 << 20);
        assert_eq!(in_large_pages(16 << 20), 16 << 20);
        for bytes in [LARGE_PAGE_BYTES + 1, (8 << 20) + 1, usize::MAX] {
            assert_eq!(in_large_pages(bytes), bytes);
        }
    }
}
