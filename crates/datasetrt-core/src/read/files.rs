//! The files of a cache: found without following a link, and each compared with what the manifest says of it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;

use super::index::Index;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::FileHasher;
use crate::format::dictionary::Dictionary;
use crate::format::manifest::{self, Manifest};
use crate::format::names;
use crate::format::record::Rules;
use crate::format::shard::{HEADER_BYTES, Header, TRAILER_BYTES, Trailer};
use crate::metadata::{ColumnInfo, ColumnType, Table, check_column_name};
use crate::store::file::ReadFile;
use crate::store::folder::{Entry, Folder};

/// How many rebuilds may come between, one after the other, while a cache is opened.
pub(super) const MOST_REBUILDS: usize = 100;

/// The bytes of a cache's manifest.
pub(super) fn read_manifest(folder: &Path) -> Result<Vec<u8>> {
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

/// Looks at the size of every shard, and opens none.
pub(super) fn check_shard_sizes(folder: &Path, manifest: &Manifest) -> Result<()> {
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
pub(super) fn shards_folder(cache: &Path) -> Result<Folder> {
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

/// Opens a shard and makes sure that it is the one that the manifest means.
pub(super) fn open_checked(cache: &Path, manifest: &Manifest, ordinal: u64) -> Result<ReadFile> {
    let path = &names::shard_path(cache, ordinal);
    let at = usize::try_from(ordinal).unwrap_or(usize::MAX);
    let entry =
        manifest.shards.get(at).ok_or_else(|| shard_mismatch(path, ordinal, "is not in the manifest"))?;
    let file = open_shard(cache, ordinal)?;
    check_size(path, file.bytes(), entry.bytes)?;
    let header = read_header(&file, ordinal)?;
    let first_sample = manifest.shards.iter().take(at).map(|s| s.samples).sum();
    if header != (Header { record_key: manifest.record_key, ordinal, first_sample }) {
        return Err(shard_mismatch(path, ordinal, "belongs to another cache or another place in this one"));
    }
    let offset = entry.bytes - TRAILER_BYTES as u64;
    let trailer = read_trailer(&file, ordinal, offset)?;
    if trailer != (Trailer { records: entry.samples, offset, digest: entry.blake3 }) {
        return Err(shard_mismatch(path, ordinal, "is not the one that the manifest names"));
    }
    Ok(file)
}

/// What a shard says of itself at its beginning.
pub(super) fn read_header(file: &ReadFile, ordinal: u64) -> Result<Header> {
    let mut block = [0; HEADER_BYTES];
    file.read_exact_at(&mut block, 0)?;
    Header::decode(&block).map_err(|e| at_place(&e, file.path(), ordinal, 0))
}

/// What it says at its end, which begins at `offset`.
pub(super) fn read_trailer(file: &ReadFile, ordinal: u64, offset: u64) -> Result<Trailer> {
    let mut block = [0; TRAILER_BYTES];
    file.read_exact_at(&mut block, offset)?;
    Trailer::decode(&block).map_err(|e| at_place(&e, file.path(), ordinal, offset))
}

/// Refuses a file of another size than the manifest's.
fn check_size(path: &Path, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let message = format!(
        "{} has {found} bytes, the manifest says {expected}; restore it, or rebuild the cache with on_stale='rebuild'",
        path.display()
    );
    Err(Error::new(ErrorKind::FileSize, message).at_path(path))
}

fn at_place(error: &Error, path: &Path, ordinal: u64, offset: u64) -> Error {
    error.reworded(format!("{}: {}", path.display(), error.message())).at_path(path).at_shard(ordinal, offset)
}

pub(super) fn shard_mismatch(path: &Path, ordinal: u64, what: &str) -> Error {
    let message =
        format!("{} {what}; restore it, or remove the cache's folder and write it again", path.display());
    Error::new(ErrorKind::ShardMismatch, message).at_path(path).at_shard(ordinal, 0)
}

/// Opens a file of the size that the manifest states.
pub(super) fn open_sized(path: &Path, bytes: u64) -> Result<ReadFile> {
    let file = ReadFile::open(path)?;
    check_size(path, file.bytes(), bytes)?;
    Ok(file)
}

/// What the records of a cache are allowed to be. The dictionary is taken out of the manifest: it is in the
/// reader's form from here on, and held once.
pub(super) fn take_rules(manifest: &mut Manifest) -> Result<Rules> {
    let dictionary = std::mem::take(&mut manifest.dictionary);
    let dictionary = match manifest.compression.has_dictionary() {
        true => Some(Arc::new(Dictionary::new(dictionary)?)),
        false => None,
    };
    Ok(Rules {
        record_key: manifest.record_key,
        compression: manifest.compression,
        dictionary,
        max_payload_bytes: manifest.payload_bytes,
    })
}

/// Opens the index and compares it with the manifest.
pub(super) fn open_index(folder: &Path, manifest: &Manifest) -> Result<Index> {
    let path = folder.join(names::INDEX);
    let file = open_sized(&path, manifest.index.bytes)?;
    Index::open(file, manifest).map_err(|e| if e.path().is_some() { e } else { prefixed(&e, folder, &path) })
}

/// Reads and decodes the whole metadata file, comparing its checksum.
pub(super) fn read_table(
    file: &ReadFile,
    folder: &Path,
    manifest: &Manifest,
    columns: &[ColumnInfo],
) -> Result<Table> {
    let mut hasher = FileHasher::default();
    let memory = file.load(&mut |piece| hasher.update(piece))?;
    check_hash(&hasher, file, manifest)?;
    let located = |e: Error| prefixed(&e, folder, file.path());
    let buffer = Buffer::from(Bytes::from_owner(memory));
    Table::decode(buffer, columns, manifest.sample_count).map_err(located)
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

/// The columns that the manifest describes.
pub(super) fn columns(manifest: &Manifest) -> Result<Vec<ColumnInfo>> {
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
pub(super) fn prefixed(error: &Error, folder: &Path, path: &Path) -> Error {
    let message = format!("{}: {}", folder.display(), error.message());
    let mut located = error.reworded(message).at_path(path);
    if let (Some(shard), Some(offset)) = (error.shard(), error.offset()) {
        located = located.at_shard(shard, offset);
    }
    match error.sample_id() {
        Some(sample) => located.at_sample(sample),
        None => located,
    }
}
