//! The files of a cache whose manifest is lost: what each of them says of itself, and of the others.
//!
//! A shard carries its own digest, its place in the cache and the cache's key. Of the index only the form is known, and
//! how many samples it has; of the metadata, that there is a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files::{open_shard, prefixed, read_header, read_trailer, shard_mismatch, shards_folder};
use super::verify::{Counted, Problems, Progress, check_digest, hash_until};
use crate::error::{Error, ErrorKind, Result};
use crate::format::index;
use crate::format::names;
use crate::format::shard::{HEADER_BYTES, Header, TRAILER_BYTES, Trailer};
use crate::store::file::ReadFile;
use crate::store::folder::Entry;

/// What lies in the folder of a cache, whatever a manifest says.
pub(super) struct Alone {
    folder: PathBuf,
    /// By ordinal, with their sizes; files with other names are not ours to judge.
    shards: Result<BTreeMap<u64, u64>>,
}

/// A shard whose ends are sound.
struct Ends {
    header: Header,
    trailer: Trailer,
}

impl Alone {
    pub(super) fn of(folder: &Path) -> Self {
        Alone { folder: folder.to_owned(), shards: shards_present(folder) }
    }

    /// Whether a file here is one of this format version.
    pub(super) fn are_ours(&self) -> bool {
        let is_shard = |ordinal: &u64| {
            open_shard(&self.folder, *ordinal).is_ok_and(|file| read_header(&file, *ordinal).is_ok())
        };
        self.index_rows().is_ok() || self.shards.iter().flat_map(BTreeMap::keys).any(is_shard)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().flat_map(BTreeMap::values).sum()
    }

    /// Everything wrong that can be told without the manifest. Fails with what `progress` answers.
    pub(super) fn verify(&self, progress: &mut dyn Progress, problems: &mut Problems) -> Result<()> {
        let rows = self.index_rows().map_err(|error| problems.extend([error])).ok();
        problems.extend(ReadFile::open(&self.folder.join(names::METADATA)).err());
        let shards = match &self.shards {
            Ok(shards) => shards,
            Err(error) => {
                problems.extend([error.clone()]);
                return Ok(());
            }
        };
        if shards.is_empty() {
            problems.extend([self.missing(0, 1, "every cache has it")]);
            return Ok(());
        }
        let ends: BTreeMap<u64, Result<Ends>> =
            shards.keys().map(|ordinal| (*ordinal, self.read_ends(*ordinal))).collect();
        let key = most_common(ends.values().flatten().map(|ends| ends.header.record_key));
        // A file with the name of a shard counts as one, unless it is another cache's or is beyond all samples.
        let counts = |(ordinal, ends): &(&u64, &Result<Ends>)| {
            let foreign = ends.as_ref().is_ok_and(|ends| Some(ends.header.record_key) != key);
            !foreign && is_possible(**ordinal, rows)
        };
        let count = ends.iter().rfind(counts).map_or(0, |(ordinal, _)| ordinal.saturating_add(1));
        let mut next_sample = Some(0);
        let mut expected = 0;
        for ((ordinal, ends), bytes) in ends.iter().zip(shards.values()) {
            if expected < (*ordinal).min(count) {
                problems.extend([self.missing(expected, (*ordinal).min(count), "later ones are there")]);
                next_sample = None;
            }
            expected = ordinal.saturating_add(1);
            let mut counted = Counted { progress, done: 0 };
            let place = Place { ordinal: *ordinal, possible: is_possible(*ordinal, rows), key, next_sample };
            let sound = self.verify_shard(&place, ends, &mut counted, problems)?;
            next_sample = sound.then(|| ends.as_ref().ok().and_then(Ends::next_sample)).flatten();
            // What could not be read is done with as well.
            let left = bytes.saturating_sub(counted.done);
            progress.advance(left)?;
        }
        problems.extend(self.check_count(rows, count, next_sample).err());
        Ok(())
    }

    /// The samples of an index that has the form of one: nothing is left that knows its checksum.
    fn index_rows(&self) -> Result<u64> {
        let path = self.folder.join(names::INDEX);
        let file = ReadFile::open(&path)?;
        let rows = file.bytes().saturating_sub(index::HEADER_BYTES as u64) / index::ROW_BYTES as u64;
        if rows == 0 || index::file_bytes(rows) != Some(file.bytes()) {
            let message = format!(
                "{} has {} bytes, which no index has; restore it, or remove the cache's folder and write it again",
                path.display(),
                file.bytes()
            );
            return Err(Error::new(ErrorKind::FileSize, message).at_path(path));
        }
        let mut header = [0; index::HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        index::check_header(&header, rows).map_err(|e| prefixed(&e, &self.folder, &path))?;
        Ok(rows)
    }

    /// Whether the shard is the one that belongs in its place, and goes on where the one before it ends.
    fn verify_shard(
        &self,
        place: &Place,
        ends: &Result<Ends>,
        progress: &mut dyn Progress,
        problems: &mut Problems,
    ) -> Result<bool> {
        let Ends { header, trailer } = match ends {
            Ok(ends) => ends,
            Err(error) => {
                problems.extend([error.clone()]);
                return Ok(false);
            }
        };
        let ordinal = place.ordinal;
        let path = names::shard_path(&self.folder, ordinal);
        let wrong = if Some(header.record_key) != place.key {
            Some("belongs to another cache than the other shards")
        } else if header.ordinal != ordinal {
            Some("belongs to another place in its cache")
        } else if !place.possible {
            Some("is beyond the samples that the index has")
        } else if place.next_sample.is_some_and(|next| next != header.first_sample) {
            Some("does not go on where the shard before it ends: one of the two is of another write")
        } else {
            None
        };
        problems.extend(wrong.map(|what| shard_mismatch(&path, ordinal, what)));
        // Opened again: as many as there are cannot be held open.
        let file = match open_shard(&self.folder, ordinal) {
            Ok(file) => file,
            Err(error) => {
                problems.extend([error]);
                return Ok(false);
            }
        };
        let mut hasher = blake3::Hasher::new();
        match hash_until(&file, trailer.offset, &mut hasher, progress)? {
            Ok(()) => {
                let place = (ordinal, trailer.offset);
                problems.extend(check_digest(&file, &hasher, &trailer.digest, "its trailer", place).err());
            }
            Err(error) => problems.extend([error]),
        }
        Ok(wrong.is_none())
    }

    fn read_ends(&self, ordinal: u64) -> Result<Ends> {
        let file = open_shard(&self.folder, ordinal)?;
        let path = file.path();
        let offset = file.bytes().saturating_sub(TRAILER_BYTES as u64);
        if offset < HEADER_BYTES as u64 {
            return Err(shard_mismatch(path, ordinal, "is too short for a shard"));
        }
        let header = read_header(&file, ordinal)?;
        let trailer = read_trailer(&file, ordinal, offset)?;
        if trailer.offset != offset {
            return Err(shard_mismatch(path, ordinal, "was cut or added to since it was written"));
        }
        Ok(Ends { header, trailer })
    }

    /// Compares the samples of the shards, if all are sound, with those of the index.
    fn check_count(&self, rows: Option<u64>, count: u64, samples: Option<u64>) -> Result<()> {
        match rows.zip(samples) {
            Some((rows, samples)) if rows > samples => {
                let why = format!("the index has {rows} samples, the shards before it {samples}");
                Err(self.missing(count, count.saturating_add(1), &why))
            }
            Some((rows, samples)) if rows < samples => {
                let path = self.folder.join(names::INDEX);
                let message = format!(
                    "{} has {rows} samples, the shards have {samples}; restore it, or remove the cache's folder and write it again",
                    path.display()
                );
                Err(Error::new(ErrorKind::IndexChecksum, message).at_path(path))
            }
            _ => Ok(()),
        }
    }

    fn missing(&self, first: u64, end: u64, why: &str) -> Error {
        let path = names::shard_path(&self.folder, first);
        let and = match end - first - 1 {
            0 => "is".to_owned(),
            more => format!("and the {more} after it are"),
        };
        let message = format!(
            "{} {and} missing: {why}; restore what is missing, or remove the cache's folder and write it again",
            path.display()
        );
        Error::new(ErrorKind::MissingFile, message).at_path(path).at_shard(first, 0)
    }
}

/// Where a shard lies, and what the others say of it.
struct Place {
    ordinal: u64,
    /// Whether the index has so many samples.
    possible: bool,
    /// That of most shards.
    key: Option<u64>,
    /// Where the one before it ends, if that is sound.
    next_sample: Option<u64>,
}

impl Ends {
    fn next_sample(&self) -> Option<u64> {
        self.header.first_sample.checked_add(self.trailer.records)
    }
}

/// No shard is empty.
fn is_possible(ordinal: u64, rows: Option<u64>) -> bool {
    rows.is_none_or(|rows| ordinal < rows)
}

fn shards_present(folder: &Path) -> Result<BTreeMap<u64, u64>> {
    let shards = shards_folder(folder)?;
    let mut found = BTreeMap::new();
    for name in shards.names()? {
        let ordinal = name.to_str().and_then(|name| names::ordinal(name, names::SHARD_SUFFIX));
        if let Some(ordinal) = ordinal.filter(|ordinal| *names::shard_file(*ordinal) == *name) {
            let bytes = match shards.look(&name)? {
                Some(Entry::File(bytes)) => bytes,
                _ => 0,
            };
            found.insert(ordinal, bytes);
        }
    }
    Ok(found)
}

/// The one that is there most often; of several, the first.
fn most_common(keys: impl Iterator<Item = u64>) -> Option<u64> {
    let mut times: BTreeMap<u64, (u64, std::cmp::Reverse<usize>)> = BTreeMap::new();
    for (place, key) in keys.enumerate() {
        times.entry(key).or_insert((0, std::cmp::Reverse(place))).0 += 1;
    }
    times.into_iter().max_by_key(|(_, rank)| *rank).map(|(key, _)| key)
}
