//! Memory for payloads, aligned for vector loads and for frameworks that adopt it without a copy.

use crate::error::{Error, ErrorKind, Result};

/// Alignment of a buffer's first byte and, where payloads differ in size, of each payload.
pub const ALIGNMENT: usize = 64;

/// Zeroed bytes whose address is a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub struct AlignedBuffer {
    storage: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// `length` zeroed bytes, or a typed error where memory does not suffice.
    pub fn zeroed(length: usize) -> Result<Self> {
        /// From here on, ask before taking: a failed allocation would end the process.
        const ASK_FIRST: usize = 64 << 20;
        let refuse = || {
            Error::new(
                ErrorKind::Io,
                format!("not enough memory for {length} bytes of payloads; use smaller batches"),
            )
        };
        let total = length.checked_add(ALIGNMENT).filter(|n| *n <= isize::MAX as usize).ok_or_else(refuse)?;
        if total >= ASK_FIRST {
            Vec::<u8>::new().try_reserve_exact(total).map_err(|_| refuse())?;
        }
        let storage = vec![0u8; total];
        let start = storage.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(AlignedBuffer { storage, start, length })
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
        for length in [0, 1, 63, 64, 1000, 100_000] {
            let mut buffer = AlignedBuffer::zeroed(length).unwrap();
            assert_eq!(buffer.as_slice(), vec![0; length]);
            assert_eq!(buffer.as_slice().as_ptr().addr() % ALIGNMENT, 0);
            buffer.as_mut_slice().fill(1);
            assert_eq!(buffer.as_slice(), vec![1; length]);
        }
        assert!(AlignedBuffer::zeroed(usize::MAX).is_err());
    }

    #[test]
    fn one_size_is_dense_and_others_are_aligned() {
        assert_eq!(layout(&[3, 3, 3]).unwrap(), (vec![0, 3, 6], 9));
        assert_eq!(layout(&[3, 0, 65, 1]).unwrap(), (vec![0, 64, 64, 192], 193));
        assert_eq!(layout(&[]).unwrap(), (vec![], 0));
        assert!(layout(&[usize::MAX, 1]).is_err());
    }
}
