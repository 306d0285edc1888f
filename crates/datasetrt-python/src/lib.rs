//! `datasetrt._core`: converts, releases the GIL, calls the engine, converts back. Decides nothing.

mod arrays;
mod batch;
mod buffer;
mod call;
mod clean;
mod error;
mod handout;
mod info;
mod input;
mod metadata;
mod order;
mod payloads;
mod plan;
mod sample;
mod stream;
mod verify;
mod view;
mod writer;

use pyo3::prelude::*;

/// The native module of datasetrt; use the names of the package `datasetrt` instead.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // NumPy's C interface is loaded here, and not in the middle of a call, where Ctrl-C could interrupt it.
    numpy::PyArray1::<i64>::zeros(module.py(), 0, false);
    module.add("version", datasetrt_core::RELEASE)?;
    module.add_function(wrap_pyfunction!(clean::clean_root, module)?)?;
    module.add_function(wrap_pyfunction!(verify::verify_folder, module)?)?;
    module.add_class::<batch::SampleBatch>()?;
    module.add_class::<buffer::PayloadBuffer>()?;
    module.add_class::<handout::Handout>()?;
    module.add_class::<handout::Steps>()?;
    module.add_class::<info::BatchInfo>()?;
    module.add_class::<order::Order>()?;
    module.add_class::<plan::BatchPlan>()?;
    module.add_class::<sample::CachedSample>()?;
    module.add_class::<stream::Memory>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<view::Kept>()?;
    module.add_class::<view::View>()?;
    module.add_class::<writer::Writer>()?;
    module.add_function(wrap_pyfunction!(writer::check_source, module)?)?;
    Ok(())
}
