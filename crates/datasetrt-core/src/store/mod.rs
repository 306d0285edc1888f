//! Files: what a writer may do to a folder, and positioned reads of finished files.
//!
//! A cache is written once. [`Storage`] is everything a writer needs from a file system, small
//! enough that a test can count its operations and fail or stop at any of them. Readers use
//! [`file::ReadFile`], which never shares a file position and needs no lock.

#[cfg(feature = "testing")]
pub mod fault;
pub mod file;
pub mod folder;
pub mod local;
pub mod lock;
mod writeback;

use std::path::Path;

use crate::error::Result;

/// What a writer does to a file system. Paths are absolute or relative to the working directory.
///
/// Promises of every implementation: an operation that returns `Ok` happened; data is durable only
/// after [`Sink::sync`], a name only after [`Storage::sync_dir`] of its folder; [`Storage::publish`]
/// and [`Storage::exchange`] are one step to every observer. A failed sync is never tried again. What takes a `root`
/// follows links on the way to `root`, which are the user's own, and refuses (kind `symbolic-link`) any below it.
pub trait Storage: Send + Sync {
    /// Makes a folder and those above it; one that exists is fine.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Makes a file for writing from the start, below `root`; what had the name is unlinked.
    fn create(&self, root: &Path, path: &Path) -> Result<Box<dyn Sink>>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Renames a folder; refuses (kind `already-exists`) if the new name is taken.
    fn publish(&self, from: &Path, to: &Path) -> Result<()>;
    /// Swaps two folders.
    fn exchange(&self, a: &Path, b: &Path) -> Result<()>;
    /// Removes a file or a link below `root`; one that is not there is fine.
    fn remove_file(&self, root: &Path, path: &Path) -> Result<()>;
    /// Removes an empty folder below `root`; one that is not there is fine.
    fn remove_dir(&self, root: &Path, path: &Path) -> Result<()>;
    /// The names in a folder, sorted; none if it is not there.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    /// The bytes of a file of at most `limit` bytes; `None` if it is not there.
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>>;
    /// Whether anything has that name, a broken link included.
    fn exists(&self, path: &Path) -> Result<bool>;
}

/// A file that is being written.
pub trait Sink: Send {
    /// Appends all of `data`.
    fn write(&mut self, data: &[u8]) -> Result<()>;
    /// Makes everything written so far durable.
    fn sync(&mut self) -> Result<()>;
}
