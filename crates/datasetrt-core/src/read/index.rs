//! Where a sample lies: `index.bin`, in memory while it is small, otherwise read row by row.

use super::cache::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::FileHasher;
use crate::format::index::{HEADER_BYTES, ROW_BYTES, check_header, decode_rows};
use crate::format::manifest::Manifest;
use crate::format::record::RAW_FRAME_BYTES;
use crate::format::shard;
use crate::memory::Memory;
use crate::store::file::ReadFile;

/// Larger indexes stay on disk: private memory does not grow with the number of samples.
const RESIDENT_BYTES: u64 = 8 << 20;

/// The verified index of one cache.
#[derive(Debug)]
pub(super) struct Index {
    spans: Vec<Span>,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    /// The whole file.
    Resident(Memory),
    OnDisk(ReadFile),
}

/// The samples of one shard and where its records end.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u64,
    end: u64,
    records_end: u64,
}

impl Index {
    /// Reads `index.bin` once and compares its checksum with the manifest's.
    pub(super) fn open(file: ReadFile, manifest: &Manifest) -> Result<Self> {
        let mut hasher = FileHasher::default();
        let resident = match file.bytes() {
            ..=RESIDENT_BYTES => Some(file.load(&mut |piece| hasher.update(piece))?),
            _ => {
                file.stream(&mut |piece| hasher.update(piece))?;
                None
            }
        };
        if hasher.finish() != manifest.index.xxh3 {
            return Err(damaged(&file, "does not match the checksum in the manifest"));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        check_header(&header, manifest.sample_count)?;
        let rows = resident.map_or(Rows::OnDisk(file), Rows::Resident);
        let index = Index { spans: spans(manifest), rows };
        index.check_spans()?;
        Ok(index)
    }

    /// The record of a sample that is known to be in range.
    pub(super) fn place(&self, sample: u64) -> Result<Place> {
        let shard = self.spans.partition_point(|span| span.end <= sample);
        let span = self.spans.get(shard).ok_or_else(|| out_of_range(sample))?;
        let first = sample == span.first;
        let (before, end) = self.rows(sample, !first)?;
        let start = if first { shard::HEADER_BYTES as u64 } else { before };
        let plausible = start >= shard::HEADER_BYTES as u64
            && start.checked_add(RAW_FRAME_BYTES as u64).is_some_and(|least| least <= end)
            && end <= span.records_end;
        if !plausible {
            let message = format!(
                "index.bin places sample {sample} at bytes {start} to {end} of shard {shard}, which cannot be; remove the cache's folder and write it again"
            );
            return Err(Error::new(ErrorKind::IndexChecksum, message)
                .at_shard(shard as u64, start)
                .at_sample(sample));
        }
        Ok(Place { shard: shard as u64, start, end })
    }

    /// The row before `sample`, if asked for, and its own.
    fn rows(&self, sample: u64, before: bool) -> Result<(u64, u64)> {
        let at = usize::try_from(sample).map_err(|_| out_of_range(sample))?;
        match &self.rows {
            Rows::Resident(file) => {
                let row = |at: usize| {
                    let rows = file.get(HEADER_BYTES..).unwrap_or_default().as_chunks().0;
                    rows.get(at).copied().map(u64::from_le_bytes).ok_or_else(|| out_of_range(sample))
                };
                Ok((if before { row(at - 1)? } else { 0 }, row(at)?))
            }
            Rows::OnDisk(file) => {
                let mut block = [0; 2 * ROW_BYTES];
                let out = if before { &mut block[..] } else { &mut block[ROW_BYTES..] };
                let first = sample - u64::from(before);
                file.read_exact_at(out, HEADER_BYTES as u64 + first * ROW_BYTES as u64)?;
                let rows = decode_rows(&block);
                Ok((rows.first().copied().unwrap_or_default(), rows.last().copied().unwrap_or_default()))
            }
        }
    }

    /// The last row of each shard has to be where its trailer begins.
    fn check_spans(&self) -> Result<()> {
        for span in &self.spans {
            let place = self.place(span.end - 1)?;
            if place.end != span.records_end {
                let message = format!(
                    "index.bin ends shard {} at byte {}, the manifest at {}",
                    place.shard, place.end, span.records_end
                );
                return Err(Error::new(ErrorKind::IndexChecksum, message).at_shard(place.shard, place.end));
            }
        }
        Ok(())
    }

    /// The samples of a shard, first and one past the last.
    pub(super) fn samples_of(&self, shard: u64) -> (u64, u64) {
        let span = usize::try_from(shard).ok().and_then(|at| self.spans.get(at));
        span.map_or((0, 0), |span| (span.first, span.end))
    }
}

fn spans(manifest: &Manifest) -> Vec<Span> {
    let mut next = 0;
    let span = |shard: &crate::format::manifest::ShardEntry| {
        let first = next;
        next += shard.samples;
        Span { first, end: next, records_end: shard.bytes - shard::TRAILER_BYTES as u64 }
    };
    manifest.shards.iter().map(span).collect()
}

fn damaged(file: &ReadFile, what: &str) -> Error {
    let message =
        format!("{} {what}; restore it, or rebuild the cache with on_stale='rebuild'", file.path().display());
    Error::new(ErrorKind::IndexChecksum, message).at_path(file.path())
}

fn out_of_range(sample: u64) -> Error {
    Error::new(ErrorKind::IndexOutOfRange, format!("sample {sample} is not in the index")).at_sample(sample)
}
