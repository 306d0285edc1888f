//! The engine of datasetrt: a cache of preprocessed samples on disk, and batches out of it.
//!
//! Data flows one way. A [`write::Writer`] takes payloads and metadata rows, and publishes a cache
//! folder. A [`read::Dataset`] opens caches and holds the active table: which rows, in which order,
//! with which weights. A [`sampler::Order`] maps positions to rows, and a [`stream::Stream`] reads
//! batches in that order.
//!
//! Layers: `error` ← `exec`, `memory` ← `format`, `store`, `sampler` ← `metadata` ← `read`, `write` ← `stream`.
//! Reading and writing never import each other; nothing here knows Python.

pub mod error;
pub mod exec;
pub mod format;
pub mod memory;
pub mod metadata;
mod prefetch;
pub mod read;
pub mod sampler;
pub mod store;
pub mod stream;
pub mod write;

pub use error::{Class, Error, ErrorKind, Result};
pub use format::RELEASE;
