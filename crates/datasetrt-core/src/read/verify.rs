//! Reads every byte again and tells everything that is wrong, not only the first.

use std::path::{Path, PathBuf};

use super::cache::{Cache, Place, locate, placed};
use super::files::{
    columns, open_checked, open_index, open_shard, open_sized, prefixed, read_table, shards_folder,
};
use super::index::Index;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::{Digest, hex};
use crate::format::manifest::{MAX_BYTES, Manifest, ShardEntry};
use crate::format::names;
use crate::format::record::{Frame, Rules};
use crate::format::shard::{HEADER_BYTES, TRAILER_BYTES};
use crate::store::file::{ReadFile, zeroed};

/// So many bytes are read before a check says how far it is.
const PIECE: u64 = 1 << 20;

/// What a check is told while it runs, and how it says stop.
pub trait Progress {
    /// So many more bytes were checked; an error ends the check.
    fn advance(&mut self, bytes: u64) -> Result<()>;
}

impl Cache {
    /// Compares every file with the manifest and every record with its checksum.
    ///
    /// # Errors
    ///
    /// Only what `progress` answers, and memory that the system refuses. What is wrong with the cache is in the list:
    /// `changed`, and nothing else, where another cache has taken the folder since this one was opened. Of more than
    /// 10,000 problems the last one tells how many there are besides.
    pub fn verify(&self, progress: &mut dyn Progress) -> Result<Vec<Error>> {
        let files = Files {
            folder: self.folder(),
            manifest: self.manifest(),
            checksum: self.checksum(),
            rules: Some(self.rules()),
            index: Some(&self.index),
        };
        let mut problems = Problems::of(self.folder());
        files.verify(progress, &mut problems)?;
        let problems = problems.finish()?;
        // Asked afterwards: it may have come meanwhile.
        Ok(if problems.is_empty() {
            problems
        } else {
            self.changed().map_or(problems, |changed| vec![changed])
        })
    }
}

/// More are counted and not listed: each takes about a kilobyte, and there may be as many as samples.
const MOST_PROBLEMS: usize = 10_000;

/// What is wrong with a cache, so far.
pub(super) struct Problems {
    folder: PathBuf,
    listed: Vec<Error>,
    /// How many are not listed, and the kind of the first of them.
    more: Option<(u64, ErrorKind)>,
    /// The memory for a look at something was refused, which is no problem of the cache.
    refused: Option<Error>,
}

impl Problems {
    pub(super) fn of(folder: &Path) -> Self {
        Problems { folder: folder.to_owned(), listed: Vec::new(), more: None, refused: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Everything, or why not all of it could be looked for.
    pub(super) fn finish(mut self) -> Result<Vec<Error>> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        if let Some((count, kind)) = self.more {
            let message = format!(
                "{count} more problems of {} are not listed; remove the cache's folder and write it again",
                self.folder.display()
            );
            self.listed.push(Error::new(kind, message).at_path(self.folder));
        }
        Ok(self.listed)
    }
}

impl Extend<Error> for Problems {
    fn extend<T: IntoIterator<Item = Error>>(&mut self, problems: T) {
        for problem in problems {
            if problem.is_no_memory() {
                self.refused.get_or_insert(problem);
                continue;
            }
            // As of a folder that is gone: every file in it says the same.
            if self.listed.last() == Some(&problem) {
                continue;
            }
            if self.listed.len() < MOST_PROBLEMS {
                self.listed.push(problem);
            } else {
                self.more.get_or_insert((0, problem.kind())).0 += 1;
            }
        }
    }
}

/// Counts what it passes on.
pub(super) struct Counted<'a> {
    pub(super) progress: &'a mut dyn Progress,
    pub(super) done: u64,
}

impl Progress for Counted<'_> {
    fn advance(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        self.progress.advance(bytes)
    }
}

/// Asks whether to go on, and tells no bytes: they were told before.
struct Uncounted<'a>(&'a mut dyn Progress);

impl Progress for Uncounted<'_> {
    fn advance(&mut self, _: u64) -> Result<()> {
        self.0.advance(0)
    }
}

/// The files of a cache and what they have to agree with.
pub(super) struct Files<'a> {
    pub(super) folder: &'a Path,
    pub(super) manifest: &'a Manifest,
    /// The manifest's.
    pub(super) checksum: &'a Digest,
    /// None where records cannot be unpacked, because the manifest's dictionary is no dictionary.
    pub(super) rules: Option<&'a Rules>,
    /// The one in memory, for the records if the one on disk is damaged.
    pub(super) index: Option<&'a Index>,
}

impl Files<'_> {
    /// Looks at every file, whatever is wrong with the others. Records are checked one by one where an index says
    /// where they lie, and otherwise by their shard's digest alone.
    pub(super) fn verify(&self, progress: &mut dyn Progress, problems: &mut Problems) -> Result<()> {
        problems.extend(self.verify_manifest().err());
        let found = open_index(self.folder, self.manifest).map_err(|error| problems.extend([error])).ok();
        let index = found.as_ref().or(self.index);
        problems.extend(self.verify_metadata().err());
        if let Err(error) = shards_folder(self.folder) {
            problems.extend([error]);
            return progress.advance(self.manifest.stored_bytes());
        }
        let mut payload_bytes = Some(0);
        let records = self.rules.zip(index).map(|(rules, index)| Records { files: self, rules, index });
        for (ordinal, entry) in (0..).zip(&self.manifest.shards) {
            let mut counted = Counted { progress, done: 0 };
            let found = self.verify_shard(ordinal, entry, records.as_ref(), &mut counted, problems)?;
            // What could not be read is done with as well.
            let left = entry.bytes.saturating_sub(counted.done);
            progress.advance(left)?;
            payload_bytes = payload_bytes.zip(found).map(|(before, found)| before + found);
        }
        let stated = self.manifest.payload_bytes;
        if let Some(found) = payload_bytes.filter(|found| *found != stated && problems.is_empty()) {
            let path = self.folder.join(names::MANIFEST);
            let message = format!(
                "{} states {stated} payload bytes, the records have {found}; remove the cache's folder and write it again",
                path.display()
            );
            problems.extend([Error::new(ErrorKind::BadManifest, message).at_path(path)]);
        }
        Ok(())
    }

    fn verify_manifest(&self) -> Result<()> {
        let path = self.folder.join(names::MANIFEST);
        let file = ReadFile::open(&path)?;
        let same =
            |found: &[u8]| Manifest::decode(found).is_ok_and(|(_, checksum)| checksum == *self.checksum);
        let sound = file.bytes() <= MAX_BYTES && same(&file.read_all()?);
        let message = || {
            format!(
                "{} changed since the dataset was opened; open the cache again, or rebuild it with on_stale='rebuild'",
                path.display()
            )
        };
        if sound { Ok(()) } else { Err(Error::new(ErrorKind::ManifestChecksum, message()).at_path(&path)) }
    }

    fn verify_metadata(&self) -> Result<()> {
        let path = self.folder.join(names::METADATA);
        let file = open_sized(&path, self.manifest.metadata.bytes)?;
        let columns = columns(self.manifest)
            .map_err(|e| prefixed(&e, self.folder, &self.folder.join(names::MANIFEST)))?;
        read_table(&file, self.folder, self.manifest, &columns).map(drop)
    }

    /// The payload bytes of the records, if they were looked at.
    fn verify_shard(
        &self,
        ordinal: u64,
        entry: &ShardEntry,
        records: Option<&Records<'_>>,
        progress: &mut dyn Progress,
        problems: &mut Problems,
    ) -> Result<Option<u64>> {
        let file = match open_checked(self.folder, self.manifest, ordinal) {
            Ok(file) => file,
            Err(error) => {
                problems.extend([error]);
                // The records are looked at all the same, so that the list says which are lost.
                match open_shard(self.folder, ordinal) {
                    Ok(file) => file,
                    Err(_) => return Ok(None),
                }
            }
        };
        let mut hasher = blake3::Hasher::new();
        let payload_bytes = records
            .map(|records| records.verify(ordinal, &file, &mut hasher, progress, problems))
            .transpose()?;
        let place = (ordinal, entry.bytes - TRAILER_BYTES as u64);
        let compare = |hasher: &_| check_digest(&file, hasher, &entry.blake3, "the manifest", place);
        let mut digest = compare(&hasher);
        if digest.is_err() {
            // Without records, or without those that could not be found or read, that is not the file's.
            let end = entry.bytes.min(file.bytes()).saturating_sub(TRAILER_BYTES as u64);
            hasher.reset();
            let hashed = match records {
                Some(_) => hash_until(&file, end, &mut hasher, &mut Uncounted(progress))?,
                None => hash_until(&file, end, &mut hasher, progress)?,
            };
            digest = hashed.and_then(|()| compare(&hasher));
        }
        problems.extend(digest.err());
        Ok(payload_bytes)
    }
}

/// Compares a shard's digest with the one that somebody states.
pub(super) fn check_digest(
    file: &ReadFile,
    hasher: &blake3::Hasher,
    stated: &Digest,
    by: &str,
    (ordinal, offset): (u64, u64),
) -> Result<()> {
    let found = hasher.finalize();
    if found.as_bytes() == stated {
        return Ok(());
    }
    let message = format!(
        "{} has digest {}, {by} says {}; restore it, or remove the cache's folder and write it again",
        file.path().display(),
        &hex(found.as_bytes())[..16],
        &hex(stated)[..16]
    );
    Err(Error::new(ErrorKind::ShardDigest, message).at_path(file.path()).at_shard(ordinal, offset))
}

/// Hashes a file up to `end`. The inner error is the file's, the outer one what `progress` answers.
pub(super) fn hash_until(
    file: &ReadFile,
    end: u64,
    hasher: &mut blake3::Hasher,
    progress: &mut dyn Progress,
) -> Result<Result<()>> {
    let mut buffer = match zeroed(end.min(PIECE), file.path()) {
        Ok(buffer) => buffer,
        Err(error) => return Ok(Err(error)),
    };
    let mut at = 0;
    while at < end {
        let length = usize::try_from((end - at).min(PIECE)).unwrap_or(0);
        let Some(piece) = buffer.get_mut(..length) else { break };
        if let Err(error) = file.read_exact_at(piece, at) {
            return Ok(Err(error));
        }
        hasher.update(piece);
        at += length as u64;
        progress.advance(length as u64)?;
    }
    Ok(Ok(()))
}

/// The records of a cache, one by one.
struct Records<'a> {
    files: &'a Files<'a>,
    rules: &'a Rules,
    index: &'a Index,
}

impl Records<'_> {
    /// The payload bytes of those of one shard. Everything before the trailer goes to `hasher`.
    fn verify(
        &self,
        ordinal: u64,
        file: &ReadFile,
        hasher: &mut blake3::Hasher,
        progress: &mut dyn Progress,
        problems: &mut Problems,
    ) -> Result<u64> {
        let mut head = [0; HEADER_BYTES];
        if file.read_exact_at(&mut head, 0).is_ok() {
            hasher.update(&head);
        }
        let (mut pending, mut payload_bytes) = (0, 0);
        let (first, end) = self.index.samples_of(ordinal);
        for sample in first..end {
            match self.verify_record(file, sample, hasher) {
                Ok((stored, payload)) => {
                    pending += stored;
                    payload_bytes += payload;
                }
                Err(error) => problems.extend([error]),
            }
            if pending >= PIECE {
                progress.advance(std::mem::take(&mut pending))?;
            }
        }
        progress.advance(pending)?;
        Ok(payload_bytes)
    }

    /// The record's length as stored, and its payload's.
    fn verify_record(&self, file: &ReadFile, sample: u64, hasher: &mut blake3::Hasher) -> Result<(u64, u64)> {
        let place = placed(self.index, self.files.folder, sample)?;
        let located = |e: &Error| locate(self.files.folder, e, sample, place);
        let mut record = zeroed(place.end - place.start, file.path())?;
        file.read_exact_at(&mut record, place.start).map_err(|e| located(&e))?;
        hasher.update(&record);
        let payload_bytes = self.unpack_whole(sample, place, &record)?;
        Ok((record.len() as u64, payload_bytes))
    }

    fn unpack_whole(&self, sample: u64, place: Place, record: &[u8]) -> Result<u64> {
        let path = names::shard_path(self.files.folder, place.shard);
        let unpack = || {
            let frame = Frame::parse(self.rules, sample, record)?.verify()?;
            frame.unpack(&mut zeroed(frame.payload_bytes(), &path)?)?;
            Ok(frame.payload_bytes())
        };
        unpack().map_err(|e: Error| locate(self.files.folder, &e, sample, place))
    }
}
