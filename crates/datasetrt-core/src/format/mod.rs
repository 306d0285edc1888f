//! The bytes of a cache: `docs/format/v1.md` in code.
//!
//! Pure functions from structures to bytes and back. No files, threads, clocks or Python here;
//! every decoder takes any input and answers with a value or an error.

pub mod checksum;
pub mod compression;
pub mod dictionary;
pub mod index;
pub mod manifest;
pub mod names;
pub mod record;
pub mod shard;
mod wire;
mod xxh3;

/// The version that this release writes and reads.
pub const VERSION: u32 = 1;

/// The release of this engine; it ends in `+unverified` where the build compares no record with its checksum.
pub const RELEASE: &str = if record::VERIFIES {
    env!("CARGO_PKG_VERSION")
} else {
    concat!(env!("CARGO_PKG_VERSION"), "+unverified")
};
