//! Payloads of one length, cut into columns: the same bytes of every payload next to each other.

use std::slice::ChunksExactMut;
use std::sync::Arc;

use super::buffer::ALIGNMENT;
use crate::error::{Error, ErrorKind, Result, invalid};

/// More parts than this cannot be read with one system call, and nothing is gained any more.
const MOST_COLUMNS: usize = 256;

/// Where every payload is cut: the widths of its parts in bytes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    widths: Arc<[usize]>,
    record_bytes: usize,
}

impl Split {
    /// A split of payloads whose length is the sum of `widths`.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if there are no widths, too many, or one of 0, or if they are too large together.
    pub fn new(widths: &[usize]) -> Result<Self> {
        if widths.is_empty() || widths.len() > MOST_COLUMNS || widths.contains(&0) {
            let count = widths.len();
            let message = format!("a split has {count} widths; give 1 to {MOST_COLUMNS}, each at least 1");
            return Err(invalid(message));
        }
        let total = widths.iter().try_fold(0usize, |sum, width| sum.checked_add(*width));
        let record_bytes = total.filter(|n| *n <= isize::MAX as usize).ok_or_else(too_large)?;
        Ok(Split { widths: widths.into(), record_bytes })
    }

    /// Bytes of one part of each payload, in order.
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// The length that all payloads must have.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Where the column of each part begins in a buffer of `count` payloads; each is aligned.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if that is more than an address space holds.
    pub fn column_starts(&self, count: usize) -> Result<Vec<usize>> {
        let mut starts = Vec::with_capacity(self.widths.len());
        self.place(count, |start| starts.push(start))?;
        Ok(starts)
    }

    /// Bytes of a buffer of `count` payloads.
    pub(super) fn buffer_bytes(&self, count: usize) -> Result<usize> {
        self.place(count, |_| ())
    }

    fn place(&self, count: usize, mut begins: impl FnMut(usize)) -> Result<usize> {
        let mut end = 0usize;
        for width in &*self.widths {
            let start = end.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
            begins(start);
            end = width.checked_mul(count).and_then(|n| start.checked_add(n)).ok_or_else(too_large)?;
        }
        Ok(end)
    }

    /// The columns of `count` payloads in a buffer, each as the places of its parts; gaps are cleared.
    pub(super) fn columns_mut<'a>(&self, count: usize, buffer: &'a mut [u8]) -> Vec<ChunksExactMut<'a, u8>> {
        let mut columns = Vec::with_capacity(self.widths.len());
        let (mut rest, mut end) = (buffer, 0usize);
        for width in &*self.widths {
            let gap = end.wrapping_neg() % ALIGNMENT;
            let (between, from) = rest.split_at_mut_checked(gap).unwrap_or_default();
            between.fill(0);
            let (column, others) = from.split_at_mut_checked(width * count).unwrap_or_default();
            columns.push(column.chunks_exact_mut(*width));
            rest = others;
            end += gap + width * count;
        }
        columns
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the batch is larger than the address space; use smaller batches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_lie_where_their_starts_say() {
        let split = Split::new(&[3, 64, 1]).unwrap();
        assert_eq!(split.record_bytes(), 68);
        assert_eq!(split.column_starts(5).unwrap(), [0, 64, 384]);
        assert_eq!(split.buffer_bytes(5).unwrap(), 389);
        let mut buffer = vec![9u8; 389];
        for (number, column) in (1u8..).zip(split.columns_mut(5, &mut buffer)) {
            assert_eq!(column.len(), 5);
            column.for_each(|part| part.fill(number));
        }
        let expected = [vec![1; 15], vec![0; 49], vec![2; 320], vec![3; 5]].concat();
        assert_eq!(buffer, expected);
    }

    #[test]
    fn absurd_widths_are_refused() {
        for widths in [vec![], vec![0], vec![1, 0], vec![1; 257], vec![usize::MAX, 1], vec![usize::MAX]] {
            assert!(Split::new(&widths).is_err(), "{widths:?}");
        }
        let wide = Split::new(&[isize::MAX as usize]).unwrap();
        assert!(wide.column_starts(3).is_err());
    }
}
