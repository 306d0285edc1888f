//! One cache: opened in stages, each trusting only what the one before has checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, ArcSwapWeak};

use super::blocks::{BlockHashes, CheckedFile};
use super::files::{
    MOST_REBUILDS, check_metadata_hash, check_shard_sizes, columns, open_index, open_sized, prefixed,
    read_manifest, read_table, take_rules,
};
use super::index::Index;
use super::shards::{OpenShard, ShardFiles};
use crate::error::{Error, ErrorKind, Result};
use crate::exec;
use crate::format::checksum::Digest;
use crate::format::manifest::{self, Manifest};
use crate::format::names;
use crate::format::record::Rules;
use crate::metadata::{CellFile, ColumnInfo, Table, TableSource};
use crate::store::file::ReadFile;

/// What is larger, packed or not, stays on disk: private memory does not grow with the number of samples.
const RESIDENT_METADATA_BYTES: u64 = 8 << 20;

/// Where index and metadata have so many bytes each, two threads read and hash them.
const WORTH_A_THREAD: u64 = 1 << 20;

/// How caches are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Most shard files that one cache keeps open.
    pub max_open_shards: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { max_open_shards: 128 }
    }
}

/// So often what looks like damage is looked at again, before it is believed.
const MOST_RETURNS: usize = 3;

/// The bytes of one record in its shard file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// An open cache. Immutable; shared by threads and by forked processes.
pub struct Cache {
    folder: PathBuf,
    manifest: Manifest,
    checksum: Digest,
    id: String,
    columns: Vec<ColumnInfo>,
    rules: Rules,
    pub(super) index: Index,
    metadata: ReadFile,
    /// Of metadata that is not kept in memory.
    blocks: BlockHashes,
    table: ArcSwapOption<Table>,
    /// The one that somebody else keeps, where it is too large for us to.
    kept: ArcSwapWeak<Table>,
    cells: ArcSwapOption<CellFile>,
    /// All of them, once enough were asked for and if they are small that way.
    packed: ArcSwapOption<Table>,
    /// Rows that were read from the file.
    asked: AtomicU64,
    shards: ShardFiles,
}

impl Cache {
    /// Opens the cache in `folder`. Reads the manifest, the index and the metadata file once, to
    /// compare their checksums, and looks at the size of every shard; reads no payload.
    ///
    /// # Errors
    ///
    /// `not-found`, `not-a-cache`, `unfinished`, `unsupported-version`, or what is damaged.
    pub fn open(folder: &Path, options: ReadOptions) -> Result<Self> {
        if options.max_open_shards == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_open_shards is 0; choose at least 1"));
        }
        // Absolute from here on: the working directory may change before a shard is opened.
        let folder = std::path::absolute(folder).map_err(|e| Error::io("resolve", folder, &e))?;
        let mut bytes = read_manifest(&folder)?;
        let (mut rebuilds, mut returns) = (MOST_REBUILDS, MOST_RETURNS);
        loop {
            let error = match Self::open_as(folder.clone(), options, &bytes) {
                Ok(cache) => return Ok(cache),
                Err(error) => error,
            };
            // A rebuild may have taken the folder between two files; then the manifest is another one, too.
            match read_manifest(&folder) {
                Ok(now) if now != bytes && rebuilds > 0 => {
                    bytes = now;
                    rebuilds -= 1;
                }
                // Another cache may have been here for an instant, and this one again by now.
                Ok(now) if now == bytes && returns > 0 => returns -= 1,
                _ => return Err(error),
            }
        }
    }

    /// The cache that a manifest describes.
    fn open_as(folder: PathBuf, options: ReadOptions, bytes: &[u8]) -> Result<Self> {
        let of_manifest = |e: Error| prefixed(&e, &folder, &folder.join(names::MANIFEST));
        let (mut manifest, checksum) = Manifest::decode(bytes).map_err(of_manifest)?;
        let rules = take_rules(&mut manifest).map_err(of_manifest)?;
        check_shard_sizes(&folder, &manifest)?;
        let open_index = || open_index(&folder, &manifest);
        let open_metadata = || -> Result<_> {
            let metadata = open_sized(&folder.join(names::METADATA), manifest.metadata.bytes)?;
            let keep = metadata.bytes() > RESIDENT_METADATA_BYTES;
            let mut blocks = if keep { BlockHashes::of(metadata.bytes())? } else { BlockHashes::default() };
            check_metadata_hash(&metadata, &manifest, &mut |piece| {
                if keep {
                    blocks.update(piece);
                }
            })?;
            Ok((metadata, blocks))
        };
        let (index, (metadata, blocks)) = match manifest.index.bytes.min(manifest.metadata.bytes) {
            ..WORTH_A_THREAD => (open_index()?, open_metadata()?),
            _ => {
                let (index, metadata) = exec::both("drt-open", open_index, open_metadata);
                (index?, metadata?)
            }
        };
        Ok(Cache {
            id: manifest::cache_id(&checksum),
            columns: columns(&manifest).map_err(of_manifest)?,
            rules,
            shards: ShardFiles::new(&folder, manifest.shards.len(), options.max_open_shards),
            table: ArcSwapOption::empty(),
            kept: ArcSwapWeak::default(),
            cells: ArcSwapOption::empty(),
            packed: ArcSwapOption::empty(),
            asked: AtomicU64::new(0),
            folder,
            manifest,
            checksum,
            index,
            metadata,
            blocks: blocks.finish(),
        })
    }

    /// Where the cache is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the cache says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The manifest's checksum: the identity of the content.
    pub fn checksum(&self) -> &Digest {
        &self.checksum
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Works with the open file of a shard.
    pub(super) fn with_shard<T>(&self, ordinal: u64, work: impl FnOnce(&ReadFile) -> Result<T>) -> Result<T> {
        // The usual case, in which no thread counts its use of the file: all would write to one place in memory for it.
        let kept = self.shards.kept(ordinal);
        match kept.as_ref().and_then(|slot| slot.as_deref()).filter(|open| open.ordinal == ordinal) {
            Some(open) => work(&open.file),
            None => work(&self.shard(ordinal)?.file),
        }
    }

    /// Works with the file of a shard if it is open already.
    pub(super) fn with_open_shard<T>(&self, ordinal: u64, work: impl FnOnce(&ReadFile) -> T) -> Option<T> {
        let kept = self.shards.kept(ordinal)?;
        kept.as_deref().filter(|open| open.ordinal == ordinal).map(|open| work(&open.file))
    }

    fn shard(&self, ordinal: u64) -> Result<Arc<OpenShard>> {
        let mut found = self.shards.get(&self.manifest, ordinal);
        for _ in 0..MOST_RETURNS {
            let Err(error) = found else { break };
            if let Some(changed) = self.changed() {
                return Err(changed);
            }
            // Another cache may have been here for an instant, and this one again by now.
            found = self.shards.get(&self.manifest, ordinal).map_err(|_| error);
        }
        found
    }

    /// Whether another cache has taken the folder since it was opened.
    pub(super) fn changed(&self) -> Option<Error> {
        let bytes = read_manifest(&self.folder).ok()?;
        let (_, checksum) = Manifest::decode(&bytes).ok()?;
        let message = || {
            format!("cache {} was rebuilt since the dataset was opened; open it again", self.folder.display())
        };
        (checksum != self.checksum).then(|| Error::new(ErrorKind::Changed, message()).at_path(&self.folder))
    }

    /// Where the record of a sample lies, or what is wrong with the index.
    pub(super) fn place(&self, sample: u64) -> Result<Place> {
        placed(&self.index, &self.folder, sample)
    }

    pub(super) fn shard_path(&self, ordinal: u64) -> PathBuf {
        names::shard_path(&self.folder, ordinal)
    }

    /// Adds to an error which record of which file it is about.
    pub(super) fn locate(&self, error: &Error, sample: u64, place: Place) -> Error {
        locate(&self.folder, error, sample, place)
    }

    fn metadata_file(&self) -> CheckedFile<'_> {
        CheckedFile { file: &self.metadata, hashes: &self.blocks }
    }

    /// Whether these rows make it enough: once. Packing takes about as long as reading a sixty-fourth of the rows
    /// one by one, so that it is never much more than was spent before.
    fn is_worth_packing(&self, samples: u64) -> bool {
        let enough = self.manifest.sample_count / 64;
        let before = self.asked.fetch_add(samples, Ordering::Relaxed);
        before <= enough && before.saturating_add(samples) > enough
    }

    fn cells(&self) -> Result<Arc<CellFile>> {
        if let Some(cells) = self.cells.load_full() {
            return Ok(cells);
        }
        let cells =
            Arc::new(CellFile::open(&self.metadata_file(), &self.columns, self.manifest.sample_count)?);
        self.cells.store(Some(Arc::clone(&cells)));
        Ok(cells)
    }

    /// Reads and decodes `metadata.arrow` from the file that was opened, comparing its checksum again.
    pub(super) fn load_table(&self) -> Result<Table> {
        read_table(&self.metadata, &self.folder, &self.manifest, &self.columns)
    }
}

impl TableSource for Cache {
    fn cache_id(&self) -> &str {
        &self.id
    }

    fn rows(&self) -> u64 {
        self.manifest.sample_count
    }

    fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// Two threads may load it at the same time at first; one of the equal results stays. A lock
    /// would not survive a fork at the wrong moment.
    fn table(&self) -> Result<Arc<Table>> {
        if let Some(table) = self.loaded() {
            return Ok(table);
        }
        let table = Arc::new(self.load_table()?);
        match self.in_memory() {
            true => self.table.store(Some(Arc::clone(&table))),
            false => self.kept.store(Arc::downgrade(&table)),
        }
        Ok(table)
    }

    fn loaded(&self) -> Option<Arc<Table>> {
        let resident = self.table.load_full().or_else(|| self.packed.load_full());
        resident.or_else(|| self.kept.load().upgrade())
    }

    fn in_memory(&self) -> bool {
        self.metadata.bytes() <= RESIDENT_METADATA_BYTES
    }

    fn part(&self, samples: &[u64]) -> Result<Table> {
        let file = self.metadata_file();
        let taken = self.cells().and_then(|cells| {
            if self.is_worth_packing(samples.len() as u64) {
                // What is wrong with rows that nobody asked for is told when somebody does.
                let packed = cells.pack(&file, RESIDENT_METADATA_BYTES).ok().flatten();
                self.packed.store(packed.map(Arc::new));
            }
            cells.take(&file, samples)
        });
        taken.map_err(
            |e| {
                if e.path().is_some() { e } else { prefixed(&e, &self.folder, self.metadata.path()) }
            },
        )
    }
}

/// Where the record of a sample lies, or what is wrong with the index.
pub(super) fn placed(index: &Index, folder: &Path, sample: u64) -> Result<Place> {
    let located = |e: Error| {
        let e = if e.path().is_some() { e } else { prefixed(&e, folder, &folder.join(names::INDEX)) };
        e.at_sample(sample)
    };
    index.place(sample).map_err(located)
}

/// Adds to an error which record of which file it is about.
pub(super) fn locate(folder: &Path, error: &Error, sample: u64, place: Place) -> Error {
    let path = names::shard_path(folder, place.shard);
    let message = format!(
        "{} record of sample {sample} at byte {}: {}; restore the file, or remove the cache's folder and write it again",
        path.display(),
        place.start,
        error.message()
    );
    error.reworded(message).at_path(path).at_shard(place.shard, place.start).at_sample(sample)
}
