//! One cache: opened in stages, each trusting only what the one before has checked.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwapOption, ArcSwapWeak};
use arrow_buffer::Buffer;

use super::blocks::{BlockHashes, CheckedFile};
use super::index::Index;
use super::shards::{OpenShard, ShardFiles, check_size};
use crate::error::{Error, ErrorKind, Result};
use crate::exec;
use crate::format::checksum::{Digest, FileHasher};
use crate::format::dictionary::Dictionary;
use crate::format::manifest::{self, Manifest};
use crate::format::names;
use crate::format::record::Rules;
use crate::metadata::{CellFile, ColumnInfo, ColumnType, Table, TableSource, check_column_name};
use crate::store::file::ReadFile;
use crate::store::folder::{Entry, Folder};

/// Larger metadata stays on disk: private memory does not grow with the number of samples.
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

/// How many rebuilds may come between, one after the other, while a cache is opened.
const MOST_REBUILDS: usize = 100;
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
        // It is in the reader's form from here on, and held once.
        let dictionary = std::mem::take(&mut manifest.dictionary);
        let dictionary = match manifest.compression.has_dictionary() {
            true => Some(Arc::new(Dictionary::new(dictionary).map_err(of_manifest)?)),
            false => None,
        };
        check_shard_sizes(&folder, &manifest)?;
        let index = open_sized(&folder.join(names::INDEX), manifest.index.bytes)?;
        let located =
            |e: Error| if e.path().is_some() { e } else { prefixed(&e, &folder, &folder.join(names::INDEX)) };
        let open_index = || Index::open(index, &manifest).map_err(located);
        let open_metadata = || -> Result<_> {
            let metadata = open_sized(&folder.join(names::METADATA), manifest.metadata.bytes)?;
            let mut blocks = BlockHashes::default();
            let keep = metadata.bytes() > RESIDENT_METADATA_BYTES;
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
            rules: Rules {
                record_key: manifest.record_key,
                compression: manifest.compression,
                dictionary,
                max_payload_bytes: manifest.payload_bytes,
            },
            shards: ShardFiles::new(&folder, manifest.shards.len(), options.max_open_shards),
            table: ArcSwapOption::empty(),
            kept: ArcSwapWeak::default(),
            cells: ArcSwapOption::empty(),
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

    pub(super) fn shard(&self, ordinal: u64) -> Result<Arc<OpenShard>> {
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
        let located = |e: Error| {
            let e = if e.path().is_some() { e } else { prefixed(&e, &self.folder, &self.index_path()) };
            e.at_sample(sample)
        };
        self.index.place(sample).map_err(located)
    }

    fn index_path(&self) -> PathBuf {
        self.folder.join(names::INDEX)
    }

    pub(super) fn shard_path(&self, ordinal: u64) -> PathBuf {
        names::shard_path(&self.folder, ordinal)
    }

    /// Adds to an error which record of which file it is about.
    pub(super) fn locate(&self, error: &Error, sample: u64, place: Place) -> Error {
        let path = self.shard_path(place.shard);
        let message = format!(
            "{} record of sample {sample} at byte {}: {}; restore the file, or remove the cache's folder and write it again",
            path.display(),
            place.start,
            error.message()
        );
        Error::new(error.kind(), message).at_path(path).at_shard(place.shard, place.start).at_sample(sample)
    }

    fn metadata_file(&self) -> CheckedFile<'_> {
        CheckedFile { file: &self.metadata, hashes: &self.blocks }
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
        let bytes = self.metadata.read_all()?;
        let mut hasher = FileHasher::default();
        hasher.update(&bytes);
        check_hash(&hasher, &self.metadata, &self.manifest)?;
        let located = |e: Error| prefixed(&e, &self.folder, self.metadata.path());
        Table::decode(Buffer::from_vec(bytes), &self.columns, self.manifest.sample_count).map_err(located)
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
        self.table.load_full().or_else(|| self.kept.load().upgrade())
    }

    fn in_memory(&self) -> bool {
        self.metadata.bytes() <= RESIDENT_METADATA_BYTES
    }

    fn part(&self, samples: &[u64]) -> Result<Table> {
        self.cells().and_then(|cells| cells.take(&self.metadata_file(), samples)).map_err(|e| {
            if e.path().is_some() { e } else { prefixed(&e, &self.folder, self.metadata.path()) }
        })
    }
}

fn read_manifest(folder: &Path) -> Result<Vec<u8>> {
    let path = folder.join(names::MANIFEST);
    let mut found = ReadFile::open(&path);
    for _ in 0..MOST_REBUILDS {
        // A cache may have come into this place, or gone from it, while the path was followed: it is followed
        // again before the folder is said to have none.
        let explained = match &found {
            Err(e) if e.kind() == ErrorKind::MissingFile && folder.is_dir() => None,
            Err(e) => explain_missing(folder, e),
            Ok(_) => break,
        };
        match explained {
            Some(error) => return Err(error),
            None => found = ReadFile::open(&path),
        }
    }
    let file = found.map_err(|e| explain_missing(folder, &e).unwrap_or(e))?;
    if file.bytes() > manifest::MAX_BYTES {
        let message = format!(
            "{} has {} bytes, a manifest has at most {}",
            path.display(),
            file.bytes(),
            manifest::MAX_BYTES
        );
        return Err(Error::new(ErrorKind::NotACache, message).at_path(path));
    }
    file.read_all()
}

/// Why there is no manifest: nothing at the path, an unfinished write, or some other folder. None where it has one
/// by now.
fn explain_missing(folder: &Path, error: &Error) -> Option<Error> {
    if error.kind() != ErrorKind::MissingFile {
        return Some(error.clone());
    }
    let shown = folder.display();
    let (kind, message) = match std::fs::metadata(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (ErrorKind::NotFound, not_found(folder)),
        Err(e) => return Some(Error::io("open", folder, &e)),
        Ok(found) if !found.is_dir() => {
            (ErrorKind::NotACache, format!("{shown} is a file; give the folder of a cache"))
        }
        Ok(_) if folder.join(names::MANIFEST).symlink_metadata().is_ok() => return None,
        Ok(_) if folder.join(names::INDEX).exists() || folder.join(names::SHARDS).exists() => (
            ErrorKind::Unfinished,
            format!(
                "{shown} has no manifest.json: it was never finished, or damaged; rebuild the cache with on_stale='rebuild'"
            ),
        ),
        Ok(_) => (
            ErrorKind::NotACache,
            format!("{shown} is not a cache: it has no manifest.json; give root/NAME of a cache"),
        ),
    };
    Some(Error::new(kind, message).at_path(folder))
}

fn not_found(folder: &Path) -> String {
    let shown = folder.display();
    let unfinished = match (folder.parent(), folder.file_name().and_then(|n| n.to_str())) {
        (Some(root), Some(name)) => root.join(format!(".{name}.partial")).is_dir(),
        _ => false,
    };
    if unfinished {
        format!("no cache at {shown}: a write of it was not finished; run the write again to resume it")
    } else {
        format!("no cache at {shown}; write one with write_cache or cache, or check the path")
    }
}

fn check_shard_sizes(folder: &Path, manifest: &Manifest) -> Result<()> {
    let shards = shards_folder(folder)?;
    for (ordinal, entry) in (0..).zip(&manifest.shards) {
        let name = names::shard_file(ordinal);
        match shards.look(&name) {
            Ok(Some(Entry::File(bytes))) => check_size(&shards.path().join(name), bytes, entry.bytes)?,
            // Opening it gives the fitting error without waiting for a pipe.
            _ => drop(shards.file(name)?),
        }
    }
    Ok(())
}

/// The folder of a cache's shards, which is no link to elsewhere.
fn shards_folder(cache: &Path) -> Result<Folder> {
    Folder::open(cache)?.child(names::SHARDS).map_err(|e| {
        let path = cache.join(names::SHARDS);
        match std::fs::symlink_metadata(&path) {
            // As for a shard that is missing: the caller cannot do anything else about it.
            _ if e.kind() == ErrorKind::MissingFile => missing_shards(&path),
            Ok(found) if found.is_dir() || found.is_symlink() => e,
            _ => missing_shards(&path),
        }
    })
}

fn missing_shards(path: &Path) -> Error {
    let message = format!(
        "{} is missing or no folder; restore it, or rebuild the cache with on_stale='rebuild'",
        path.display()
    );
    Error::new(ErrorKind::MissingFile, message).at_path(path)
}

/// Opens a shard file without following a link out of the cache.
pub(super) fn open_shard(cache: &Path, ordinal: u64) -> Result<ReadFile> {
    shards_folder(cache)?.file(names::shard_file(ordinal))
}

pub(super) fn open_sized(path: &Path, bytes: u64) -> Result<ReadFile> {
    let file = ReadFile::open(path)?;
    check_size(path, file.bytes(), bytes)?;
    Ok(file)
}

/// Compares the checksum of the whole file; its bytes go to `sink` meanwhile.
pub(super) fn check_metadata_hash(
    file: &ReadFile,
    manifest: &Manifest,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let mut hasher = FileHasher::default();
    file.stream(&mut |piece| {
        hasher.update(piece);
        sink(piece);
    })?;
    check_hash(&hasher, file, manifest)
}

fn check_hash(hasher: &FileHasher, file: &ReadFile, manifest: &Manifest) -> Result<()> {
    if hasher.finish() == manifest.metadata.xxh3 {
        return Ok(());
    }
    let message = format!(
        "{} does not match the checksum in the manifest; restore it, or rebuild the cache with on_stale='rebuild'",
        file.path().display()
    );
    Err(Error::new(ErrorKind::MetadataChecksum, message).at_path(file.path()))
}

fn columns(manifest: &Manifest) -> Result<Vec<ColumnInfo>> {
    let mut known = HashSet::new();
    let column = |c: &manifest::Column| {
        let allowed = check_column_name(&c.name).is_ok() && known.insert(c.name.clone());
        if !allowed {
            let shown: String = c.name.chars().take(40).collect();
            let message = format!(
                "manifest.json names a column {shown:?}, which is reserved, repeated or no name; rebuild the cache with on_stale='rebuild'"
            );
            return Err(Error::new(ErrorKind::BadManifest, message));
        }
        let ty = ColumnType::parse(&c.type_name);
        ty.map(|ty| ColumnInfo { name: c.name.clone(), ty, null_count: c.null_count }).ok_or_else(|| {
            let shown: String = c.type_name.chars().take(40).collect();
            Error::new(
                ErrorKind::BadManifest,
                format!("manifest.json gives a column the unknown type {shown:?}; upgrade datasetrt"),
            )
        })
    };
    manifest.columns.iter().map(column).collect()
}

/// The same error, with the folder in its message and the file.
fn prefixed(error: &Error, folder: &Path, path: &Path) -> Error {
    let message = format!("{}: {}", folder.display(), error.message());
    let mut located = Error::new(error.kind(), message).at_path(path);
    if let (Some(shard), Some(offset)) = (error.shard(), error.offset()) {
        located = located.at_shard(shard, offset);
    }
    match error.sample_id() {
        Some(sample) => located.at_sample(sample),
        None => located,
    }
}
