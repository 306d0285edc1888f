//! Payloads of one length, cut into columns: the same bytes of every payload next to each other.

use std::ops::Range;
use std::slice::ChunksExactMut;
use std::sync::Arc;

use super::buffer::ALIGNMENT;
use crate::error::{Error, ErrorKind, Result, invalid};

/// More parts than this cannot be read with one system call, and nothing is gained any more.
const MOST_COLUMNS: usize = 256;

/// So many bytes beside the widest part are copied in less time than a read into several places takes longer than one
/// into a single place.
const MOST_BESIDE: usize = 1024;

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

    /// The columns of `count` payloads in a buffer, each as the places of its parts.
    pub(super) fn columns_mut<'a>(&self, count: usize, buffer: &'a mut [u8]) -> Vec<ChunksExactMut<'a, u8>> {
        let columns = self.walk(count, buffer, |_| ());
        columns.map(|(width, column)| column.chunks_exact_mut(width)).collect()
    }

    /// Clears what lies between the columns.
    pub(super) fn clear_gaps(&self, count: usize, buffer: &mut [u8]) {
        self.walk(count, buffer, |gap| gap.fill(0)).for_each(drop);
    }

    /// Each column with its width; the bytes before it go to `between`.
    fn walk<'a>(
        &self,
        count: usize,
        buffer: &'a mut [u8],
        between: impl Fn(&mut [u8]),
    ) -> impl Iterator<Item = (usize, &'a mut [u8])> {
        let (mut rest, mut end) = (buffer, 0usize);
        self.widths.iter().map(move |width| {
            let gap = end.wrapping_neg() % ALIGNMENT;
            let (before, from) = std::mem::take(&mut rest).split_at_mut_checked(gap).unwrap_or_default();
            between(before);
            let (column, others) = from.split_at_mut_checked(width * count).unwrap_or_default();
            rest = others;
            end += gap + width * count;
            (*width, column)
        })
    }
}

/// Payloads that are read in one piece: the widest of its parts to where it belongs, and the others, on both sides of it,
/// over what is there. That is put back, and they go to their columns.
pub(super) struct Around<'a> {
    split: &'a Split,
    starts: Vec<usize>,
    widest: usize,
    /// Bytes of a payload before its widest part, and after it.
    sides: [usize; 2],
    beside: [u8; MOST_BESIDE],
}

impl<'a> Around<'a> {
    /// None where too much lies beside the widest part.
    pub(super) fn new(split: &'a Split, count: usize) -> Result<Option<Self>> {
        let Some((widest, width)) = split.widths.iter().enumerate().max_by_key(|(_, width)| **width) else {
            return Ok(None);
        };
        let before = split.widths.iter().take(widest).sum();
        let sides = [before, split.record_bytes - width - before];
        let few = split.record_bytes - width <= MOST_BESIDE;
        let starts = split.column_starts(count)?;
        Ok(few.then_some(Around { split, starts, widest, sides, beside: [0; MOST_BESIDE] }))
    }

    /// Where in the buffer the payload at `place` is read to. It is within: of each column beside the widest one, there is
    /// at least one part on that side.
    pub(super) fn span(&self, place: usize) -> Range<usize> {
        let start = self.part(self.widest, place).map_or(0, |widest| widest.start - self.sides[0]);
        start..start + self.split.record_bytes
    }

    /// Exchanges what is kept for what lies in the span beside the widest part.
    pub(super) fn exchange(&mut self, span: &Range<usize>, buffer: &mut [u8]) {
        let [before, after] = self.sides;
        let kept = self.beside.split_at_mut(before);
        let spans = [span.start..span.start + before, span.end - after..span.end];
        for (kept, span) in [kept.0, kept.1].into_iter().zip(spans) {
            let there = buffer.get_mut(span).unwrap_or_default();
            if let Some(kept) = kept.get_mut(..there.len()) {
                kept.swap_with_slice(there);
            }
        }
    }

    /// Writes what is kept to the columns, as the parts of the payload at `place`.
    pub(super) fn spread(&self, place: usize, buffer: &mut [u8]) {
        let mut rest = self.beside.as_slice();
        for column in (0..self.starts.len()).filter(|column| *column != self.widest) {
            let part = self.part(column, place).and_then(|part| buffer.get_mut(part)).unwrap_or_default();
            let Some((kept, others)) = rest.split_at_checked(part.len()) else { break };
            part.copy_from_slice(kept);
            rest = others;
        }
    }

    fn part(&self, column: usize, place: usize) -> Option<Range<usize>> {
        let width = *self.split.widths.get(column)?;
        let start = place.checked_mul(width)?.checked_add(*self.starts.get(column)?)?;
        Some(start..start.checked_add(width)?)
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
        split.clear_gaps(5, &mut buffer);
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
