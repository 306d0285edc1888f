//! The payloads of a batch as they were read, and laid out the other way when that is asked for.

use datasetrt_core::read::buffer::{AlignedBuffer, layout};
use datasetrt_core::read::{Payloads as CorePayloads, Places, Split};
use datasetrt_core::{Error, memory};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySequence};

use crate::buffer::PayloadBuffer;
use crate::error::{OrRaise as _, invalid, to_py};

/// Bytes of Python, written by `fill`. Where Python has no memory for it, that is an error of ours.
pub(crate) fn python_bytes<'py>(
    py: Python<'py>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<()>,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, length, fill).map_err(|error| match error.is_instance_of::<PyMemoryError>(py) {
        true => {
            let message = format!(
                "not enough memory for {length} bytes in one piece; free memory, or read on a machine with more"
            );
            to_py(py, &Error::no_memory(message))
        }
        false => error,
    })
}

/// The same of what is in memory.
pub(crate) fn copied<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    /// Less is copied without being cleared first, and is had wherever anything is.
    const SMALL_BYTES: usize = 32 << 10;
    if bytes.len() <= SMALL_BYTES {
        return Ok(PyBytes::new(py, bytes));
    }
    python_bytes(py, bytes.len(), |out| {
        out.copy_from_slice(bytes);
        Ok(())
    })
}

/// Payloads in memory that Python may write to.
pub(crate) struct Payloads {
    lengths: Vec<usize>,
    content: Content,
}

enum Content {
    Rows(Rows),
    /// As columns, and as rows from the first time on that somebody wants them so.
    Columns {
        buffer: Py<PayloadBuffer>,
        split: Split,
        rows: PyOnceLock<Rows>,
    },
}

/// Payloads one after the other.
pub(crate) struct Rows {
    pub(crate) buffer: Py<PayloadBuffer>,
    pub(crate) starts: Vec<usize>,
}

impl Rows {
    /// Copies a payload.
    pub(crate) fn copy(&self, at: usize, out: &mut [u8]) {
        self.buffer.get().copy(self.starts.get(at).copied().unwrap_or_default(), out);
    }

    /// All of them as one view.
    pub(crate) fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.buffer.bind(py).as_any())
    }
}

/// What a view of Python takes, with the place of it in a list.
const VIEW_BYTES: usize = 192;

/// Parts of a view, by where each begins and how long it is.
pub(crate) fn parts<'py>(
    view: &Bound<'py, PyMemoryView>,
    places: impl ExactSizeIterator<Item = (usize, usize)>,
) -> PyResult<Bound<'py, PyList>> {
    memory::ask("views of payloads", places.len().saturating_mul(VIEW_BYTES)).or_raise(view.py())?;
    // Not by `PySlice::new`, which never lets go of the numbers that it is made of: 64 bytes for each payload.
    let view = view.cast::<PySequence>()?;
    let list = PyList::empty(view.py());
    for (start, length) in places {
        list.append(view.get_slice(start, start + length)?)?;
    }
    Ok(list)
}

impl Payloads {
    pub(crate) fn new(py: Python<'_>, payloads: CorePayloads) -> PyResult<Self> {
        let buffer = Py::new(py, PayloadBuffer::new(payloads.buffer))?;
        let content = match payloads.places {
            Places::Rows(starts) => Content::Rows(Rows { buffer, starts }),
            Places::Columns(split) => Content::Columns { buffer, split, rows: PyOnceLock::new() },
        };
        Ok(Payloads { lengths: payloads.lengths, content })
    }

    pub(crate) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The length that all payloads share, or two that differ.
    pub(crate) fn one_length(&self) -> Result<usize, (usize, usize)> {
        let first = self.lengths.first().copied().unwrap_or_default();
        self.lengths.iter().find(|length| **length != first).map_or(Ok(first), |other| Err((first, *other)))
    }

    /// The payloads one after the other.
    pub(crate) fn rows(&self, py: Python<'_>) -> PyResult<&Rows> {
        match &self.content {
            Content::Rows(rows) => Ok(rows),
            Content::Columns { buffer, split, rows } => {
                rows.get_or_try_init(py, || self.joined(py, buffer.get(), split))
            }
        }
    }

    fn joined(&self, py: Python<'_>, columns: &PayloadBuffer, split: &Split) -> PyResult<Rows> {
        let count = self.lengths.len();
        let joined = || {
            let (starts, total) = layout(&self.lengths)?;
            let mut buffer = AlignedBuffer::zeroed(total)?;
            let mut rest = buffer.as_mut_slice();
            let column_starts = split.column_starts(count)?;
            for at in 0..count {
                for (start, width) in column_starts.iter().zip(split.widths()) {
                    let (out, others) =
                        std::mem::take(&mut rest).split_at_mut_checked(*width).unwrap_or_default();
                    columns.copy(start + at * width, out);
                    rest = others;
                }
            }
            Ok((buffer, starts))
        };
        let (buffer, starts) = py.detach(joined).or_raise(py)?;
        Ok(Rows { buffer: Py::new(py, PayloadBuffer::new(buffer))?, starts })
    }

    /// One view a width: that part of every payload, one after the other.
    pub(crate) fn split<'py>(&self, py: Python<'py>, widths: &[usize]) -> PyResult<Bound<'py, PyList>> {
        let wanted = Split::new(widths).or_raise(py)?;
        let length = self.one_length();
        if !self.lengths.is_empty() && length != Ok(wanted.record_bytes()) {
            let found = match length {
                Ok(length) => format!("{length} bytes"),
                Err((a, b)) => format!("different sizes, such as {a} and {b} bytes"),
            };
            let message = format!(
                "split: the widths make {} bytes, the payloads have {found}; cut what was packed",
                wanted.record_bytes()
            );
            return Err(invalid(py, message));
        }
        let view = match &self.content {
            Content::Columns { buffer, split, .. } if *split == wanted => {
                PyMemoryView::from(buffer.bind(py).as_any())?
            }
            _ => {
                let rows = self.rows(py)?;
                let cut = self.cut(py, rows, &wanted)?;
                PyMemoryView::from(Bound::new(py, PayloadBuffer::new(cut))?.as_any())?
            }
        };
        let count = self.lengths.len();
        let starts = wanted.column_starts(count).or_raise(py)?;
        parts(&view, starts.iter().zip(wanted.widths()).map(|(start, width)| (*start, width * count)))
    }

    fn cut(&self, py: Python<'_>, rows: &Rows, split: &Split) -> PyResult<AlignedBuffer> {
        let (count, from) = (self.lengths.len(), rows.buffer.get());
        let cut = || {
            let starts = split.column_starts(count)?;
            let end = starts.iter().zip(split.widths()).map(|(start, width)| start + width * count).max();
            let mut buffer = AlignedBuffer::zeroed(end.unwrap_or_default())?;
            let out = buffer.as_mut_slice();
            for (at, row) in rows.starts.iter().enumerate() {
                let mut place = *row;
                for (start, width) in starts.iter().zip(split.widths()) {
                    let part = start + at * width;
                    from.copy(place, out.get_mut(part..part + width).unwrap_or_default());
                    place += width;
                }
            }
            Ok(buffer)
        };
        py.detach(cut).or_raise(py)
    }
}
