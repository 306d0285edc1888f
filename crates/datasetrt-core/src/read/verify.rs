//! Reads every byte again and tells everything that is wrong, not only the first.

use super::cache::{Cache, Place, check_metadata_hash, open_shard, open_sized};
use super::shards::open_checked;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::{FileHasher, hex};
use crate::format::manifest::{MAX_BYTES, Manifest};
use crate::format::names;
use crate::format::record::Frame;
use crate::format::shard::{HEADER_BYTES, TRAILER_BYTES};
use crate::store::file::{ReadFile, zeroed};

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
    /// Only what `progress` answers. What is wrong with the cache is in the list: `changed`, and nothing else, where
    /// another cache has taken the folder since this one was opened.
    pub fn verify(&self, progress: &mut dyn Progress) -> Result<Vec<Error>> {
        let problems = self.verify_files(progress)?;
        // Asked afterwards: it may have come meanwhile.
        Ok(if problems.is_empty() {
            problems
        } else {
            self.changed().map_or(problems, |changed| vec![changed])
        })
    }

    fn verify_files(&self, progress: &mut dyn Progress) -> Result<Vec<Error>> {
        let mut problems = Vec::new();
        problems.extend(self.verify_manifest().err());
        problems.extend(self.verify_index().err());
        problems.extend(self.verify_metadata().err());
        let mut payload_bytes = 0;
        for (ordinal, samples) in (0..).zip(self.index.shard_samples()) {
            payload_bytes += self.verify_shard(ordinal, samples, progress, &mut problems)?;
        }
        let stated = self.manifest().payload_bytes;
        if problems.is_empty() && payload_bytes != stated {
            let path = self.folder().join(names::MANIFEST);
            let message = format!(
                "{} states {stated} payload bytes, the records have {payload_bytes}; remove the cache's folder and write it again",
                path.display()
            );
            problems.push(Error::new(ErrorKind::BadManifest, message).at_path(path));
        }
        Ok(problems)
    }

    fn verify_manifest(&self) -> Result<()> {
        let path = self.folder().join(names::MANIFEST);
        let file = ReadFile::open(&path)?;
        let same =
            |found: &[u8]| Manifest::decode(found).is_ok_and(|(_, checksum)| checksum == *self.checksum());
        let sound = file.bytes() <= MAX_BYTES && same(&file.read_all()?);
        let message = || {
            format!(
                "{} changed since the dataset was opened; open the cache again, or rebuild it with on_stale='rebuild'",
                path.display()
            )
        };
        if sound { Ok(()) } else { Err(Error::new(ErrorKind::ManifestChecksum, message()).at_path(&path)) }
    }

    fn verify_index(&self) -> Result<()> {
        let path = self.folder().join(names::INDEX);
        let file = open_sized(&path, self.manifest().index.bytes)?;
        let mut hasher = FileHasher::default();
        file.stream(&mut |piece| hasher.update(piece))?;
        if hasher.finish() == self.manifest().index.xxh3 {
            return Ok(());
        }
        let message = format!(
            "{} does not match the checksum in the manifest; restore it, or rebuild the cache with on_stale='rebuild'",
            path.display()
        );
        Err(Error::new(ErrorKind::IndexChecksum, message).at_path(path))
    }

    fn verify_metadata(&self) -> Result<()> {
        let path = self.folder().join(names::METADATA);
        let file = open_sized(&path, self.manifest().metadata.bytes)?;
        check_metadata_hash(&file, self.manifest(), &mut |_| ())?;
        self.load_table().map(drop)
    }

    fn verify_shard(
        &self,
        ordinal: u64,
        (first, end): (u64, u64),
        progress: &mut dyn Progress,
        problems: &mut Vec<Error>,
    ) -> Result<u64> {
        let file = match open_checked(self.folder(), self.manifest(), ordinal) {
            Ok(file) => file,
            Err(error) => {
                problems.push(error);
                // The records are looked at all the same, so that the list says which are lost.
                match open_shard(self.folder(), ordinal) {
                    Ok(file) => file,
                    Err(_) => return Ok(0),
                }
            }
        };
        let mut hasher = blake3::Hasher::new();
        let mut head = [0; HEADER_BYTES];
        if file.read_exact_at(&mut head, 0).is_ok() {
            hasher.update(&head);
        }
        let (mut pending, mut payload_bytes) = (0, 0);
        for sample in first..end {
            match self.verify_record(&file, sample, &mut hasher) {
                Ok((stored, payload)) => {
                    pending += stored;
                    payload_bytes += payload;
                }
                Err(error) => problems.push(error),
            }
            if pending >= 1 << 20 {
                progress.advance(std::mem::take(&mut pending))?;
            }
        }
        progress.advance(pending)?;
        problems.extend(self.check_digest(ordinal, &file, &hasher).err());
        Ok(payload_bytes)
    }

    /// The record's length as stored, and its payload's.
    fn verify_record(&self, file: &ReadFile, sample: u64, hasher: &mut blake3::Hasher) -> Result<(u64, u64)> {
        let place = self.place(sample)?;
        let located = |e: &Error| self.locate(e, sample, place);
        let mut record = zeroed(place.end - place.start, file.path())?;
        file.read_exact_at(&mut record, place.start).map_err(|e| located(&e))?;
        hasher.update(&record);
        let payload_bytes = self.unpack_whole(sample, place, &record)?;
        Ok((record.len() as u64, payload_bytes))
    }

    fn unpack_whole(&self, sample: u64, place: Place, record: &[u8]) -> Result<u64> {
        let unpack = || {
            let frame = Frame::parse(self.rules(), sample, record)?.verify()?;
            frame.unpack(&mut zeroed(frame.payload_bytes(), &self.shard_path(place.shard))?)?;
            Ok(frame.payload_bytes())
        };
        unpack().map_err(|e: Error| self.locate(&e, sample, place))
    }

    fn check_digest(&self, ordinal: u64, file: &ReadFile, hasher: &blake3::Hasher) -> Result<()> {
        let entry = usize::try_from(ordinal).ok().and_then(|at| self.manifest().shards.get(at));
        let Some(entry) = entry else { return Ok(()) };
        let found = hasher.finalize();
        if *found.as_bytes() == entry.blake3 {
            return Ok(());
        }
        let message = format!(
            "{} has digest {}, the manifest says {}; restore it, or remove the cache's folder and write it again",
            file.path().display(),
            &hex(found.as_bytes())[..16],
            &hex(&entry.blake3)[..16]
        );
        let offset = entry.bytes - TRAILER_BYTES as u64;
        Err(Error::new(ErrorKind::ShardDigest, message).at_path(file.path()).at_shard(ordinal, offset))
    }
}
