//! Open shard files, at most so many at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};

use super::files::{open_checked, shard_mismatch};
use crate::error::Result;
use crate::format::manifest::Manifest;
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
    pub(super) ordinal: u64,
    pub(super) file: ReadFile,
}

impl ShardFiles {
    pub(super) fn new(folder: &Path, shards: usize, max_open: usize) -> Self {
        let slots = shards.min(max_open).max(1);
        ShardFiles { folder: folder.to_owned(), slots: (0..slots).map(|_| ArcSwapOption::empty()).collect() }
    }

    fn slot(&self, ordinal: u64) -> Option<&ArcSwapOption<OpenShard>> {
        usize::try_from(ordinal % self.slots.len() as u64).ok().and_then(|at| self.slots.get(at))
    }

    /// What the slot of a shard holds at present, which may be another shard.
    pub(super) fn kept(&self, ordinal: u64) -> Option<Guard<Option<Arc<OpenShard>>>> {
        Some(self.slot(ordinal)?.load())
    }

    /// The open file of a shard.
    pub(super) fn get(&self, manifest: &Manifest, ordinal: u64) -> Result<Arc<OpenShard>> {
        let slot = self.slot(ordinal).ok_or_else(|| shard_mismatch(&self.folder, ordinal, "has no slot"))?;
        if let Some(open) = slot.load_full().filter(|open| open.ordinal == ordinal) {
            return Ok(open);
        }
        let open = Arc::new(OpenShard { ordinal, file: open_checked(&self.folder, manifest, ordinal)? });
        slot.store(Some(Arc::clone(&open)));
        Ok(open)
    }
}
