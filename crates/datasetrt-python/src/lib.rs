//! `datasetrt._core`: converts, releases the GIL, calls the engine, converts back. Decides nothing.

mod batch;
mod buffer;
mod error;
mod input;
mod metadata;
mod order;
mod sample;
mod stream;
mod view;
mod writer;

use pyo3::prelude::*;

/// The native module of datasetrt; use the names of the package `datasetrt` instead.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<batch::SampleBatch>()?;
    module.add_class::<buffer::PayloadBuffer>()?;
    module.add_class::<order::Order>()?;
    module.add_class::<sample::CachedSample>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<view::View>()?;
    module.add_class::<writer::Writer>()?;
    Ok(())
}
