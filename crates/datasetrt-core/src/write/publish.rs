//! From durable shards to a cache that readers see. Nobody else knows this order.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use super::guard;
use super::options::WriteOptions;
use super::segment::Segment;
use super::staging::{self, Paths};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::FileHasher;
use crate::format::manifest::{self, Column, FileEntry, Manifest, ShardEntry, record_key};
use crate::format::{index, names};
use crate::memory;
use crate::metadata::{ColumnType, MetadataWriter, read_segment};
use crate::store::folder::{Entry, look};
use crate::store::{Sink, Storage};

/// Arrow writes in small pieces.
const BUFFER_BYTES: usize = 1 << 20;

/// A cache that was just published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Number of samples.
    pub sample_count: u64,
    /// Sum of the payloads' lengths.
    pub payload_bytes: u64,
    /// Sum of the shards' file sizes.
    pub stored_bytes: u64,
}

/// Completes the staged folder from its segments and makes it visible in one step.
pub(super) fn publish(
    storage: &dyn Storage,
    paths: &Paths,
    options: &WriteOptions,
    columns: &[(String, Option<ColumnType>)],
    dictionary: &[u8],
    shards: u64,
) -> Result<Published> {
    let (index, entries, payload_bytes) = write_index(storage, paths, shards)?;
    let (metadata, columns) = write_metadata(storage, paths, columns, shards)?;
    let manifest = Manifest {
        name: options.name.clone(),
        fingerprint: options.fingerprint.clone(),
        codec: options.codec.clone(),
        compression: options.compression,
        dictionary: dictionary.to_vec(),
        record_key: record_key(&options.name, options.fingerprint.as_deref()),
        sample_count: entries.iter().map(|e| e.samples).sum(),
        payload_bytes,
        columns,
        metadata,
        index,
        shards: entries,
    };
    storage.sync_dir(&paths.shards())?;
    storage.sync_dir(&paths.partial)?;
    check_shards(paths, &manifest)?;
    write_manifest(storage, paths, &manifest)?;
    storage.sync_dir(&paths.partial)?;
    make_visible(storage, paths, options)?;
    storage.sync_dir(&paths.root)?;
    Ok(Published {
        sample_count: manifest.sample_count,
        payload_bytes,
        stored_bytes: manifest.stored_bytes(),
    })
}

/// Refuses to publish what somebody else took a shard from, or cut, while the cache was written.
fn check_shards(paths: &Paths, manifest: &Manifest) -> Result<()> {
    for (ordinal, entry) in (0..).zip(&manifest.shards) {
        let path = paths.shard(ordinal);
        let found = match look(&paths.root, &path)? {
            Some(Entry::File(bytes)) if bytes == entry.bytes => continue,
            Some(Entry::File(bytes)) => format!("has {bytes} bytes instead of {}", entry.bytes),
            Some(other) => format!("is {}", other.describe()),
            None => "is gone".to_owned(),
        };
        let message = format!(
            "{} {found}: something else changed it while the cache was written; look for it, and run the write again",
            path.display()
        );
        return Err(Error::new(ErrorKind::Io, message).at_path(path));
    }
    Ok(())
}

fn make_visible(storage: &dyn Storage, paths: &Paths, options: &WriteOptions) -> Result<()> {
    if options.replace {
        // Again: what it will remove may have changed while the cache was written.
        guard::check_replaceable(storage, paths, options)?;
    }
    if !options.replace || !storage.exists(&paths.target)? {
        return storage.publish(&paths.partial, &paths.target).map_err(|e| explain_taken(storage, paths, e));
    }
    // What has no manifest is no complete cache: left in the staged folder, it would look like an unfinished write.
    let complete = storage.exists(&paths.target.join(names::MANIFEST))?;
    if !complete || storage.exchange(&paths.partial, &paths.target).is_err() {
        // Some file systems cannot exchange: two renames, and a writer that finds `replaced` alone undoes the first.
        storage.publish(&paths.target, &paths.replaced)?;
        storage.publish(&paths.partial, &paths.target)?;
    }
    Ok(())
}

/// What took the name while the cache was written need not be a cache.
fn explain_taken(storage: &dyn Storage, paths: &Paths, error: Error) -> Error {
    let is_cache = storage.exists(&paths.target.join(names::MANIFEST)).unwrap_or(true);
    if error.kind() != ErrorKind::AlreadyExists || is_cache {
        return error;
    }
    let shown = paths.target.display();
    let message = format!("{shown} exists and is not a cache; move it away and run again to resume");
    Error::new(ErrorKind::NameOccupied, message).at_path(&paths.target)
}

/// Brings back the old cache of a rebuild that died between its two renames, and removes what is
/// left of one that died after them.
pub(super) fn recover(storage: &dyn Storage, paths: &Paths) -> Result<()> {
    // The writer before may have died after its renames: they last before anything of the old cache is removed.
    storage.sync_dir(&paths.root)?;
    if !storage.exists(&paths.replaced)? {
        return Ok(());
    }
    if storage.exists(&paths.target)? {
        return staging::remove_cache(storage, paths, &paths.replaced);
    }
    storage.publish(&paths.replaced, &paths.target)
}

/// Whether nothing of the journal is needed any more: it has no identity, so that no write goes on from it, or its
/// segments state the very shards of the cache in `folder`, which it became.
///
/// # Errors
///
/// A failed system call.
pub(super) fn is_journal_of(storage: &dyn Storage, paths: &Paths, folder: &Path) -> Result<bool> {
    if !storage.exists(&paths.identity())? {
        return Ok(true);
    }
    let bytes = storage.read(&folder.join(names::MANIFEST), manifest::MAX_BYTES)?;
    let Some((manifest, _)) = bytes.and_then(|bytes| Manifest::decode(&bytes).ok()) else { return Ok(false) };
    for (ordinal, entry) in (0..).zip(&manifest.shards) {
        let bytes = storage.read(&paths.segment(ordinal), staging::MAX_SEGMENT_BYTES)?;
        let segment = bytes.and_then(|bytes| Segment::decode(&bytes).ok());
        if segment.is_none_or(|segment| segment.entry != *entry) {
            return Ok(false);
        }
    }
    Ok(!storage.exists(&paths.segment(manifest.shards.len() as u64))?)
}

/// Removes the journal, and the old cache after a rebuild.
pub(super) fn clean_up(storage: &dyn Storage, paths: &Paths) -> Result<()> {
    // Before the journal, which says whose link it is.
    staging::unlink(storage, paths, &paths.replaced)?;
    staging::discard(storage, paths)?;
    staging::remove_cache(storage, paths, &paths.replaced)
}

fn write_index(
    storage: &dyn Storage,
    paths: &Paths,
    shards: u64,
) -> Result<(FileEntry, Vec<ShardEntry>, u64)> {
    let mut entries = Vec::new();
    let mut payload_bytes = 0u64;
    let mut samples = 0u64;
    // The header states the number of rows, so the segments are looked at once before.
    for ordinal in 0..shards {
        let segment = segment(storage, paths, ordinal)?;
        samples += segment.entry.samples;
        payload_bytes = payload_bytes.checked_add(segment.payload_bytes).ok_or_else(too_large)?;
        entries.push(segment.entry);
    }
    let mut file = HashedFile::create(storage, paths, names::INDEX)?;
    file.write(&index::encode_header(samples))?;
    for ordinal in 0..shards {
        let ends = segment(storage, paths, ordinal)?.ends;
        let mut rows = memory::list("the index", ends.len().saturating_mul(8))?;
        ends.iter().for_each(|end| rows.extend_from_slice(&end.to_le_bytes()));
        file.write(&rows)?;
    }
    Ok((file.finish()?, entries, payload_bytes))
}

fn write_metadata(
    storage: &dyn Storage,
    paths: &Paths,
    columns: &[(String, Option<ColumnType>)],
    shards: u64,
) -> Result<(FileEntry, Vec<Column>)> {
    let path = paths.partial.join(names::METADATA);
    let mut file = HashedFile::create(storage, paths, names::METADATA)?;
    memory::ask("metadata", BUFFER_BYTES)?;
    let mut writer = MetadataWriter::new(BufWriter::with_capacity(BUFFER_BYTES, &mut file), columns)?;
    for ordinal in 0..shards {
        writer.write_shard(&read_segment(segment(storage, paths, ordinal)?.rows)?)?;
    }
    let (mut out, columns) = writer.finish()?;
    let flushed = out.flush().map_err(|e| Error::io("write", &path, &e));
    drop(out);
    // The file's own error says more than the one that passed through std::io.
    file.check().and(flushed)?;
    let columns = columns.into_iter().map(|c| Column {
        name: c.name,
        type_name: c.ty.name().to_owned(),
        null_count: c.null_count,
    });
    Ok((file.finish()?, columns.collect()))
}

fn write_manifest(storage: &dyn Storage, paths: &Paths, manifest: &Manifest) -> Result<()> {
    let mut sink = storage.create(&paths.root, &paths.partial.join(names::MANIFEST))?;
    sink.write(&manifest.encode()?.0)?;
    sink.sync()
}

pub(super) fn segment(storage: &dyn Storage, paths: &Paths, ordinal: u64) -> Result<Segment> {
    let path = paths.segment(ordinal);
    let bytes = storage.read(&path, u64::MAX - 1)?;
    let bytes = bytes.ok_or_else(|| {
        Error::new(
            ErrorKind::Io,
            format!("{} has vanished while the cache was written; run it again", path.display()),
        )
        .at_path(&path)
    })?;
    Segment::decode(&bytes).map_err(|e| e.at_path(&path))
}

fn too_large() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the payloads exceed 64-bit lengths; split the source")
}

/// A file that is hashed while it is written.
struct HashedFile {
    sink: Box<dyn Sink>,
    hasher: FileHasher,
    bytes: u64,
    failure: Option<Error>,
}

impl HashedFile {
    fn create(storage: &dyn Storage, paths: &Paths, name: &str) -> Result<Self> {
        let sink = storage.create(&paths.root, &paths.partial.join(name))?;
        Ok(HashedFile { sink, hasher: FileHasher::default(), bytes: 0, failure: None })
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.sink.write(data)?;
        self.hasher.update(data);
        self.bytes += data.len() as u64;
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn finish(mut self) -> Result<FileEntry> {
        self.sink.sync()?;
        Ok(FileEntry { bytes: self.bytes, xxh3: self.hasher.finish() })
    }
}

impl std::io::Write for HashedFile {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        match HashedFile::write(self, data) {
            Ok(()) => Ok(data.len()),
            Err(e) => {
                let message = e.to_string();
                self.failure.get_or_insert(e);
                Err(std::io::Error::other(message))
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
