//! Metadata: a few typed values per sample, and the table in which they are found again.
//!
//! Writing goes from rows to a file, reading from a file to rows:
//!
//! ```text
//! rows.rs     one mapping per sample  -> checked, typed record batches
//! file.rs     record batches          -> segments while writing, then metadata.arrow
//! ipc.rs      bytes of such a file    -> record batches; trusts nothing
//! table.rs    metadata.arrow          -> random access to rows of one cache
//! cells.rs    metadata.arrow          -> the same without keeping it in memory
//! pack.rs     metadata.arrow          -> the same in less memory
//! active.rs   caches end to end       -> rows of a dataset, by global row number
//! export.rs   a selection of rows     -> the table that a user edits
//! check.rs    an edited table         -> a selection, or the one line that says why not
//! extra.rs    columns that users add  -> what is delivered, and what is fingerprinted
//! ```
//!
//! Nothing here knows files, threads, or Python: bytes come in as buffers and go out through
//! [`std::io::Write`]. `types.rs` holds the four column types, `gather.rs` the one loop that
//! copies cells, and `wording.rs` every sentence that a user reads about a refused sample.

mod active;
mod cells;
mod check;
mod export;
mod extra;
mod file;
mod gather;
mod ipc;
mod pack;
mod rows;
mod table;
mod texts;
mod types;
mod wording;

#[cfg(test)]
mod tests;

pub use active::{CacheSet, Rows, Selection, TableSource, UnifiedColumn};
pub use cells::{CellFile, ReadAt};
pub use export::Export;
pub use extra::{deliverable, digest};
pub use file::{MetadataWriter, read_segment, write_segment};
pub use rows::RowBuilder;
pub use table::Table;
pub use types::{ColumnInfo, ColumnType, MAX_BATCH_ROWS, RESERVED, Value, bytes_of, check_column_name};
pub use wording::{int_overflow, unsupported_value};
