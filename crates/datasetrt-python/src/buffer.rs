//! Payload memory that Python may write to. The island of unsafe code of this crate.
#![expect(
    unsafe_code,
    reason = "the buffer protocol hands out raw pointers; each block says why it is sound"
)]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use datasetrt_core::read::buffer::AlignedBuffer;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The memory of one batch: 64-byte aligned, writable, not used for another batch while anything refers to it.
///
/// Use it through the buffer protocol, for example with `memoryview`.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct PayloadBuffer {
    memory: Arc<Memory>,
}

/// Keeps the allocation alive and remembers where it is. The allocation is never touched through
/// `_owner` again: from here on all access goes through the pointer, as with any exporter of memory.
struct Memory {
    start: NonNull<u8>,
    length: usize,
    _owner: AlignedBuffer,
}

// SAFETY: the pointer is to memory that `_owner` owns and does not move; threads that use it follow
// the rules of the buffer protocol, which leaves their coordination to Python code.
unsafe impl Send for Memory {}
// SAFETY: as above; no method of `Memory` writes.
unsafe impl Sync for Memory {}

impl PayloadBuffer {
    pub(crate) fn new(mut owner: AlignedBuffer) -> Self {
        let bytes = owner.as_mut_slice();
        let length = bytes.len();
        let start = NonNull::from(bytes).cast::<u8>();
        PayloadBuffer { memory: Arc::new(Memory { start, length, _owner: owner }) }
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.length
    }

    /// Copies a part; what Python code writes at the same moment from another thread may or may not be in it.
    pub(crate) fn copy(&self, start: usize, out: &mut [u8]) {
        let fits = start.checked_add(out.len()).is_some_and(|end| end <= self.memory.length);
        if fits {
            // SAFETY: `start` is inside the allocation, or one past it for an empty part.
            let from = unsafe { self.memory.start.add(start) };
            // SAFETY: `fits` says that the part is inside the allocation; `out` is other memory, because
            // nobody in Rust has a reference to this one.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        }
    }

    /// The same memory for Arrow, without a copy.
    pub(crate) fn to_arrow(&self) -> arrow_buffer::Buffer {
        let owner = Arc::clone(&self.memory);
        // SAFETY: the memory has this length and lives as long as `owner`, which Arrow keeps.
        unsafe { arrow_buffer::Buffer::from_custom_allocation(self.memory.start, self.memory.length, owner) }
    }
}

#[pymethods]
impl PayloadBuffer {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill in"));
        }
        let memory = Arc::clone(&slf.get().memory);
        let length =
            isize::try_from(memory.length).map_err(|_| PyBufferError::new_err("buffer is too large"))?;
        // SAFETY: `view` is not null and CPython's to fill in; the exporter `slf` is kept alive by the view,
        // and with it the memory, which never moves.
        let failed = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.start.as_ptr().cast(), length, 0, flags)
        };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __len__(&self) -> usize {
        self.len()
    }
}

/// A C-contiguous buffer of any element type, held while its bytes are looked at.
pub(crate) struct Contiguous(PyUntypedBuffer);

impl Contiguous {
    /// The object's buffer; nothing if it has none of this kind, such as a scalar without a shape.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        PyUntypedBuffer::get(object).ok().filter(PyUntypedBuffer::is_c_contiguous).map(Contiguous)
    }

    /// The bytes. Other threads may write to them meanwhile only by breaking the buffer protocol's rule for
    /// readers; the caller runs no Python code while it has them.
    pub(crate) fn bytes(&self) -> &[u8] {
        let length = self.0.len_bytes();
        let Some(start) = NonNull::new(self.0.buf_ptr().cast::<u8>()).filter(|_| length > 0) else {
            return &[];
        };
        // SAFETY: a C-contiguous buffer is `len_bytes` initialised bytes from `buf_ptr` on, kept by `self.0`.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }
}
