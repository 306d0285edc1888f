//! Open shard files, at most so many at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::cache::open_shard;
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::Manifest;
use crate::format::names;
use crate::format::shard::{HEADER_BYTES, Header, TRAILER_BYTES, Trailer};
use crate::store::file::ReadFile;

/// Shard files by ordinal, opened at first use and compared with the manifest then.
///
/// Each ordinal has one slot, shared with others where there are more shards than slots. Slots are
/// swapped without a lock: a process may be forked at any instant, and a held lock would stay
/// locked in the child.
pub(super) struct ShardFiles {
    folder: PathBuf,
    slots: Vec<ArcSwapOption<OpenShard>>,
}

pub(super) struct OpenShard {
    ordinal: u64,
    pub(super) file: ReadFile,
}

impl ShardFiles {
    pub(super) fn new(folder: &Path, shards: usize, max_open: usize) -> Self {
        let slots = shards.min(max_open).max(1);
        ShardFiles { folder: folder.to_owned(), slots: (0..slots).map(|_| ArcSwapOption::empty()).collect() }
    }

    /// The open file of a shard.
    pub(super) fn get(&self, manifest: &Manifest, ordinal: u64) -> Result<Arc<OpenShard>> {
        let slot = usize::try_from(ordinal % self.slots.len() as u64).ok().and_then(|at| self.slots.get(at));
        let slot = slot.ok_or_else(|| mismatch(&self.folder, ordinal, "has no slot"))?;
        if let Some(open) = slot.load_full().filter(|open| open.ordinal == ordinal) {
            return Ok(open);
        }
        let open = Arc::new(OpenShard { ordinal, file: open_checked(&self.folder, manifest, ordinal)? });
        slot.store(Some(Arc::clone(&open)));
        Ok(open)
    }
}

/// Opens a shard and makes sure that it is the one that the manifest means.
pub(super) fn open_checked(cache: &Path, manifest: &Manifest, ordinal: u64) -> Result<ReadFile> {
    let path = &names::shard_path(cache, ordinal);
    let at = usize::try_from(ordinal).unwrap_or(usize::MAX);
    let entry = manifest.shards.get(at).ok_or_else(|| mismatch(path, ordinal, "is not in the manifest"))?;
    let file = open_shard(cache, ordinal)?;
    check_size(path, file.bytes(), entry.bytes)?;
    let mut block = [0; HEADER_BYTES];
    file.read_exact_at(&mut block, 0)?;
    let header = Header::decode(&block).map_err(|e| placed(&e, path, ordinal, 0))?;
    let first_sample = manifest.shards.iter().take(at).map(|s| s.samples).sum();
    if header != (Header { record_key: manifest.record_key, ordinal, first_sample }) {
        return Err(mismatch(path, ordinal, "belongs to another cache or another place in this one"));
    }
    let offset = entry.bytes - TRAILER_BYTES as u64;
    let mut block = [0; TRAILER_BYTES];
    file.read_exact_at(&mut block, offset)?;
    let trailer = Trailer::decode(&block).map_err(|e| placed(&e, path, ordinal, offset))?;
    if trailer != (Trailer { records: entry.samples, offset, digest: entry.blake3 }) {
        return Err(mismatch(path, ordinal, "is not the one that the manifest names"));
    }
    Ok(file)
}

/// Refuses a file of another size than the manifest's.
pub(super) fn check_size(path: &Path, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let message = format!(
        "{} has {found} bytes, the manifest says {expected}; restore it, or rebuild the cache with on_stale='rebuild'",
        path.display()
    );
    Err(Error::new(ErrorKind::FileSize, message).at_path(path))
}

fn placed(error: &Error, path: &Path, ordinal: u64, offset: u64) -> Error {
    Error::new(error.kind(), format!("{}: {}", path.display(), error.message()))
        .at_path(path)
        .at_shard(ordinal, offset)
}

fn mismatch(path: &Path, ordinal: u64, what: &str) -> Error {
    let message =
        format!("{} {what}; restore it, or remove the cache's folder and write it again", path.display());
    Error::new(ErrorKind::ShardMismatch, message).at_path(path).at_shard(ordinal, 0)
}
