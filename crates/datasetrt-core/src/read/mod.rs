//! I have a row; give me its bytes.
//!
//! [`Cache`] opens one folder: manifest, sizes, index, metadata checksum. [`Dataset`] puts an
//! active table over caches and reads payloads of rows into one buffer. Nothing here takes a lock
//! or starts a thread, so that a dataset works on both sides of a fork.

mod alone;
mod batch;
mod blocks;
pub mod buffer;
mod cache;
mod dataset;
mod files;
mod index;
mod recipe;
mod shards;
mod split;
mod survey;
pub mod timing;
mod verify;

pub use batch::{Arrangement, Failure, Payloads, Places};
pub use cache::{Cache, ReadOptions};
pub use dataset::Dataset;
pub use split::Split;
pub use survey::Survey;
pub use verify::Progress;
