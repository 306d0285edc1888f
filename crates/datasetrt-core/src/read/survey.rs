//! Everything wrong with a folder, whether it can be opened or not.
//!
//! A cache that opens is verified as it is. Where it does not, but the manifest is sound, its files are compared with
//! the manifest one by one. Without a manifest the shards are left: each carries its own digest and its place in the
//! cache. Of the index only its form can be checked then, and of the metadata that the file is there.

use std::path::{Path, PathBuf};

use super::cache::{Cache, ReadOptions};
use super::files::{
    at_place, open_shard, prefixed, read_manifest, shard_mismatch, shards_folder, take_rules,
};
use super::verify::{Counted, Files, Progress, check_digest, hash_until};
use crate::error::{Class, Error, ErrorKind, Result};
use crate::format::checksum::Digest;
use crate::format::index;
use crate::format::manifest::Manifest;
use crate::format::names;
use crate::format::record::Rules;
use crate::format::shard::{HEADER_BYTES, Header, TRAILER_BYTES, Trailer};
use crate::store::file::ReadFile;
use crate::store::folder::Entry;

/// A folder that is to be verified.
pub struct Survey {
    folder: PathBuf,
    found: Found,
}

/// How much of a cache could be made out.
enum Found {
    Whole(Box<Cache>),
    /// A sound manifest; opening failed for `why`.
    Described {
        manifest: Box<Manifest>,
        checksum: Digest,
        rules: Result<Rules>,
        why: Error,
    },
    /// No manifest that can be believed, for `why`.
    Shards {
        why: Error,
    },
}

impl Survey {
    /// Looks at what there is to be verified.
    ///
    /// # Errors
    ///
    /// Where there is nothing to verify: `not-found`, `not-a-cache`, `unsupported-version`, or a manifest that the
    /// system does not let us read.
    pub fn of(folder: &Path) -> Result<Self> {
        let why = match Cache::open(folder, ReadOptions::default()) {
            Ok(cache) => {
                let folder = cache.folder().to_owned();
                return Ok(Survey { folder, found: Found::Whole(Box::new(cache)) });
            }
            Err(error) => error,
        };
        let folder = std::path::absolute(folder).map_err(|e| Error::io("resolve", folder, &e))?;
        let decoded = read_manifest(&folder).and_then(|bytes| {
            Manifest::decode(&bytes).map_err(|e| prefixed(&e, &folder, &folder.join(names::MANIFEST)))
        });
        let found = match decoded {
            Ok((mut manifest, checksum)) => {
                let rules = take_rules(&mut manifest);
                Found::Described { manifest: Box::new(manifest), checksum, rules, why }
            }
            Err(error) if is_damage(&error) => Found::Shards { why: error },
            Err(error) => return Err(error),
        };
        Ok(Survey { folder, found })
    }

    /// The samples that the manifest states, if there is one.
    pub fn samples(&self) -> Option<u64> {
        match &self.found {
            Found::Whole(cache) => Some(cache.manifest().sample_count),
            Found::Described { manifest, .. } => Some(manifest.sample_count),
            Found::Shards { .. } => None,
        }
    }

    /// About how many bytes of shards will be read.
    pub fn bytes(&self) -> u64 {
        match &self.found {
            Found::Whole(cache) => cache.manifest().stored_bytes(),
            Found::Described { manifest, .. } => manifest.stored_bytes(),
            Found::Shards { .. } => {
                let shards = shards_present(&self.folder).unwrap_or_default();
                shards.iter().map(|(_, bytes)| bytes).sum()
            }
        }
    }

    /// Reads every byte and tells everything that is wrong, in the order of manifest, index, metadata and shards.
    ///
    /// # Errors
    ///
    /// Only what `progress` answers.
    pub fn verify(&self, progress: &mut dyn Progress) -> Result<Vec<Error>> {
        match &self.found {
            Found::Whole(cache) => cache.verify(progress),
            Found::Described { manifest, checksum, rules, why } => {
                let folder = &self.folder;
                let of_manifest = |e: &Error| prefixed(e, folder, &folder.join(names::MANIFEST));
                let mut problems: Vec<Error> = rules.as_ref().err().map(of_manifest).into_iter().collect();
                let files = Files { folder, manifest, checksum, rules: rules.as_ref().ok(), index: None };
                problems.extend(files.verify(progress)?);
                // It opened no more, so that something was wrong, even if it is gone by now.
                if problems.is_empty() {
                    problems.push(why.clone());
                }
                Ok(problems)
            }
            Found::Shards { why } => {
                let mut problems = vec![why.clone()];
                problems.extend(self.verify_index_alone().err());
                problems.extend(ReadFile::open(&self.folder.join(names::METADATA)).err());
                self.verify_shards_alone(progress, &mut problems)?;
                Ok(problems)
            }
        }
    }

    /// That the index has the form of one: nothing is left that knows its checksum.
    fn verify_index_alone(&self) -> Result<()> {
        let path = self.folder.join(names::INDEX);
        let file = ReadFile::open(&path)?;
        let rows = file.bytes().saturating_sub(index::HEADER_BYTES as u64) / index::ROW_BYTES as u64;
        if index::file_bytes(rows) != Some(file.bytes()) {
            let message = format!(
                "{} has {} bytes, which no index has; restore it, or remove the cache's folder and write it again",
                path.display(),
                file.bytes()
            );
            return Err(Error::new(ErrorKind::FileSize, message).at_path(path));
        }
        let mut header = [0; index::HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        index::check_header(&header, rows).map_err(|e| prefixed(&e, &self.folder, &path))
    }

    fn verify_shards_alone(&self, progress: &mut dyn Progress, problems: &mut Vec<Error>) -> Result<()> {
        let present = match shards_present(&self.folder) {
            Ok(present) => present,
            Err(error) => {
                problems.push(error);
                return Ok(());
            }
        };
        let mut before = None;
        let mut expected = 0;
        for (ordinal, bytes) in present {
            if expected < ordinal {
                problems.push(self.missing(expected, ordinal));
                before = None;
            }
            expected = ordinal.saturating_add(1);
            let mut counted = Counted { progress, done: 0 };
            before = self.verify_shard_alone(ordinal, before, &mut counted, problems)?;
            // What could not be read is done with as well.
            let left = bytes.saturating_sub(counted.done);
            progress.advance(left)?;
        }
        Ok(())
    }

    fn missing(&self, first: u64, end: u64) -> Error {
        let path = names::shard_path(&self.folder, first);
        let more = end - first - 1;
        let and = if more == 0 { "is".to_owned() } else { format!("and the {more} after it are") };
        let message = format!(
            "{} {and} missing, though later ones are there; restore them, or remove the cache's folder and write it again",
            path.display()
        );
        Error::new(ErrorKind::MissingFile, message).at_path(path).at_shard(first, 0)
    }

    /// Gives what the next shard goes on from, where this one is sound enough to say so.
    fn verify_shard_alone(
        &self,
        ordinal: u64,
        before: Option<Follows>,
        progress: &mut dyn Progress,
        problems: &mut Vec<Error>,
    ) -> Result<Option<Follows>> {
        let (file, header, trailer) = match self.read_ends(ordinal) {
            Ok(found) => found,
            Err(error) => {
                problems.push(error);
                return Ok(None);
            }
        };
        let path = file.path();
        let before = before.unwrap_or(Follows {
            record_key: header.record_key,
            sample: if ordinal == 0 { 0 } else { header.first_sample },
        });
        let wrong = if header.ordinal != ordinal {
            Some("belongs to another place in its cache")
        } else if header.record_key != before.record_key {
            Some("belongs to another cache than the shard before it")
        } else if header.first_sample != before.sample {
            Some("does not go on where the shard before it ends")
        } else {
            None
        };
        problems.extend(wrong.map(|what| shard_mismatch(path, ordinal, what)));
        let mut hasher = blake3::Hasher::new();
        match hash_until(&file, trailer.offset, &mut hasher, progress)? {
            Ok(()) => {
                let place = (ordinal, trailer.offset);
                problems.extend(check_digest(&file, &hasher, &trailer.digest, "its trailer", place).err());
            }
            Err(error) => problems.push(error),
        }
        let sample = header.first_sample.checked_add(trailer.records).filter(|_| wrong.is_none());
        Ok(sample.map(|sample| Follows { record_key: header.record_key, sample }))
    }

    fn read_ends(&self, ordinal: u64) -> Result<(ReadFile, Header, Trailer)> {
        let file = open_shard(&self.folder, ordinal)?;
        let path = file.path();
        let offset = file.bytes().saturating_sub(TRAILER_BYTES as u64);
        if offset < HEADER_BYTES as u64 {
            return Err(shard_mismatch(path, ordinal, "is too short for a shard"));
        }
        let mut block = [0; HEADER_BYTES];
        file.read_exact_at(&mut block, 0)?;
        let header = Header::decode(&block).map_err(|e| at_place(&e, path, ordinal, 0))?;
        let mut block = [0; TRAILER_BYTES];
        file.read_exact_at(&mut block, offset)?;
        let trailer = Trailer::decode(&block).map_err(|e| at_place(&e, path, ordinal, offset))?;
        if trailer.offset != offset {
            return Err(shard_mismatch(path, ordinal, "was cut or added to since it was written"));
        }
        Ok((file, header, trailer))
    }
}

/// What the shard after a sound one has to say of itself.
struct Follows {
    record_key: u64,
    sample: u64,
}

/// Whether a manifest that cannot be read is damaged, rather than none of ours or out of reach.
fn is_damage(error: &Error) -> bool {
    let damaged = [ErrorKind::Unfinished, ErrorKind::BadManifest];
    error.class() == Class::Corruption || damaged.contains(&error.kind())
}

/// The shards that lie in the folder and their sizes, whatever a manifest says; other files there are not ours to
/// judge.
fn shards_present(folder: &Path) -> Result<Vec<(u64, u64)>> {
    let shards = shards_folder(folder)?;
    let mut found = Vec::new();
    for name in shards.names()? {
        let ordinal = name.to_str().and_then(|name| names::ordinal(name, ".bin"));
        if let Some(ordinal) = ordinal.filter(|ordinal| *names::shard_file(*ordinal) == *name) {
            let bytes = match shards.look(&name)? {
                Some(Entry::File(bytes)) => bytes,
                _ => 0,
            };
            found.push((ordinal, bytes));
        }
    }
    found.sort_unstable();
    Ok(found)
}
