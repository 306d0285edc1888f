//! Where a sample lies: `index.bin`, in memory while it is small, otherwise read row by row.

use super::cache::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::FileHasher;
use crate::format::index::{HEADER_BYTES, ROW_BYTES, check_header, decode_rows};
use crate::format::manifest::Manifest;
use crate::format::record::RAW_FRAME_BYTES;
use crate::format::shard;
use crate::store::file::{ReadFile, no_memory};

/// Indexes that would take more memory stay on disk: what is private does not grow with the number of samples.
const RESIDENT_BYTES: u64 = 8 << 20;

/// The verified index of one cache.
#[derive(Debug)]
pub(super) struct Index {
    spans: Vec<Span>,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    /// Where no shard is too large for it.
    Near(Vec<u32>),
    Far(Vec<u64>),
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
        let spans = spans(manifest);
        let near = spans.iter().all(|span| span.records_end < u64::from(u32::MAX));
        let count = file.bytes() / ROW_BYTES as u64;
        let mut hasher = FileHasher::default();
        // A row that lies beyond its shard is refused when it is asked for, and so is the largest number in its place.
        let resident = if near && count <= RESIDENT_BYTES / size_of::<u32>() as u64 {
            Some(Rows::Near(load(&file, &mut hasher, |row| u32::try_from(row).unwrap_or(u32::MAX))?))
        } else if count <= RESIDENT_BYTES / size_of::<u64>() as u64 {
            Some(Rows::Far(load(&file, &mut hasher, |row| row)?))
        } else {
            file.stream(&mut |piece| hasher.update(piece))?;
            None
        };
        if hasher.finish() != manifest.index.xxh3 {
            return Err(damaged(&file, "does not match the checksum in the manifest"));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        check_header(&header, manifest.sample_count)?;
        let index = Index { spans, rows: resident.unwrap_or(Rows::OnDisk(file)) };
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
            Rows::Near(rows) => pair(rows, at, before),
            Rows::Far(rows) => pair(rows, at, before),
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

/// All rows of the file, which is hashed meanwhile.
fn load<T>(file: &ReadFile, hasher: &mut FileHasher, row: impl Fn(u64) -> T) -> Result<Vec<T>> {
    let count = usize::try_from(file.bytes()).unwrap_or(usize::MAX) / ROW_BYTES;
    let mut rows = Vec::new();
    rows.try_reserve_exact(count).map_err(|_| no_memory(file.bytes(), file.path()))?;
    let mut header_left = HEADER_BYTES;
    file.stream(&mut |piece| {
        hasher.update(piece);
        // Pieces end where rows end, but for the last one of a file that is no index.
        let (header, piece) = piece.split_at(header_left.min(piece.len()));
        header_left -= header.len();
        rows.extend(piece.as_chunks().0.iter().map(|bytes| row(u64::from_le_bytes(*bytes))));
    })?;
    Ok(rows)
}

/// The row at a place, and the one before it if that is asked for.
fn pair<T: Copy + Into<u64>>(rows: &[T], at: usize, before: bool) -> Result<(u64, u64)> {
    let row = |at: usize| rows.get(at).copied().map(Into::into).ok_or_else(|| out_of_range(at as u64));
    Ok((if before { row(at - 1)? } else { 0 }, row(at)?))
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
