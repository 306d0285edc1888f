//! A column of text that grows by memory it asked for: Arrow's own builder ends the process where it is refused.

use arrow_array::LargeStringArray;
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer};

use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// Text, cell after cell.
#[derive(Debug)]
pub(super) struct Texts {
    /// Where each cell ends, after the 0 where the first begins; empty before the first.
    ends: Vec<i64>,
    text: Vec<u8>,
    /// A bit each.
    valid: NullBufferBuilder,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { ends: Vec::new(), text: Vec::new(), valid: NullBufferBuilder::new(0) }
    }
}

impl Texts {
    /// Room for so many more cells, with so many bytes together.
    pub(super) fn reserve(&mut self, cells: usize, bytes: usize) -> Result<()> {
        memory::reserve("metadata", &mut self.ends, cells.saturating_add(1))?;
        memory::reserve("metadata", &mut self.text, bytes)
    }

    /// Appends a cell, for which there is [room](Self::reserve).
    pub(super) fn append(&mut self, cell: Option<&str>) {
        if self.ends.is_empty() {
            self.ends.push(0);
        }
        self.valid.append(cell.is_some());
        self.text.extend_from_slice(cell.unwrap_or_default().as_bytes());
        // Fits: a list has fewer than 2^63 bytes.
        self.ends.push(self.text.len() as i64);
    }

    /// The cells so far as an array.
    pub(super) fn finish(mut self) -> Result<LargeStringArray> {
        if self.ends.is_empty() {
            self.ends.push(0);
        }
        let ends = OffsetBuffer::new(self.ends.into());
        let array = LargeStringArray::try_new(ends, Buffer::from_vec(self.text), self.valid.finish());
        array.map_err(|e| Error::new(ErrorKind::Bug, format!("metadata text: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;

    use super::*;

    #[test]
    fn cells_come_back() {
        assert_eq!(Texts::default().finish().unwrap().len(), 0);
        let cells = [Some("a"), None, Some(""), Some("žluť"), None];
        let mut texts = Texts::default();
        for cell in cells {
            texts.reserve(1, cell.map_or(0, str::len)).unwrap();
            texts.append(cell);
        }
        assert_eq!(texts.finish().unwrap().iter().collect::<Vec<_>>(), cells);
    }
}
