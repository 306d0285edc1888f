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
    /// All records of the cache have this length: those of payloads of one size, which are many.
    Even(u64),
    Listed(Listed),
    OnDisk(ReadFile),
}

/// The rows one by one.
#[derive(Debug)]
enum Listed {
    /// Where no shard is too large for it.
    Near(Vec<u32>),
    Far(Vec<u64>),
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
        let mut hasher = FileHasher::default();
        let mut loading = Loading::new(&spans, file.bytes());
        let mut header_left = HEADER_BYTES;
        file.stream(&mut |piece| {
            hasher.update(piece);
            // Pieces end where rows end, but for the last one of a file that is no index.
            let (header, piece) = piece.split_at(header_left.min(piece.len()));
            header_left -= header.len();
            loading.take(piece.as_chunks().0);
        })?;
        let rows = loading.finish(&file)?;
        if hasher.finish() != manifest.index.xxh3 {
            return Err(damaged(&file, "does not match the checksum in the manifest"));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        check_header(&header, manifest.sample_count)?;
        let index = Index { spans, rows: rows.unwrap_or(Rows::OnDisk(file)) };
        index.check_spans()?;
        Ok(index)
    }

    /// The record of a sample that is known to be in range.
    pub(super) fn place(&self, sample: u64) -> Result<Place> {
        let shard = self.spans.partition_point(|span| span.end <= sample);
        let span = self.spans.get(shard).ok_or_else(|| out_of_range(sample))?;
        let first = sample == span.first;
        let (before, end) = self.rows(sample, span, !first)?;
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

    /// Whether places are known without reading a file.
    pub(super) fn is_in_memory(&self) -> bool {
        !matches!(self.rows, Rows::OnDisk(_))
    }

    /// The row before `sample`, if asked for, and its own.
    fn rows(&self, sample: u64, span: &Span, before: bool) -> Result<(u64, u64)> {
        let at = usize::try_from(sample).map_err(|_| out_of_range(sample))?;
        match &self.rows {
            Rows::Even(length) => {
                let end = even_end(sample - span.first, *length);
                Ok((end.wrapping_sub(*length), end))
            }
            Rows::Listed(Listed::Near(rows)) => pair(rows, at, before),
            Rows::Listed(Listed::Far(rows)) => pair(rows, at, before),
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

/// Where the record at a place in its shard ends, if all have one length.
fn even_end(place: u64, length: u64) -> u64 {
    // A forged length may be any number; what it leads to is compared with the rows.
    length.wrapping_mul(place + 1).wrapping_add(shard::HEADER_BYTES as u64)
}

/// The rows while the file is read. They take no memory for as long as all records have one length.
struct Loading<'a> {
    spans: &'a [Span],
    /// The length of all records so far.
    even: Option<u64>,
    /// So many rows were even.
    seen: u64,
    /// All rows, from the first uneven one on; None where they stay on disk.
    kept: Option<Listed>,
    /// There is no memory for them.
    refused: bool,
    /// Rows of the file.
    count: usize,
}

impl<'a> Loading<'a> {
    fn new(spans: &'a [Span], file_bytes: u64) -> Self {
        let count = file_bytes / ROW_BYTES as u64;
        let near = spans.iter().all(|span| span.records_end < u64::from(u32::MAX));
        let kept = if near && count <= RESIDENT_BYTES / size_of::<u32>() as u64 {
            Some(Listed::Near(Vec::new()))
        } else if count <= RESIDENT_BYTES / size_of::<u64>() as u64 {
            Some(Listed::Far(Vec::new()))
        } else {
            None
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Loading { spans, even: Some(0), seen: 0, kept, refused: false, count }
    }

    /// The next rows.
    fn take(&mut self, rows: &[[u8; ROW_BYTES]]) {
        let uneven = self.take_even(rows);
        if !uneven.is_empty() {
            self.keep(uneven.iter().map(|row| u64::from_le_bytes(*row)));
        }
    }

    /// As many rows as go on evenly; gives the others.
    fn take_even<'r>(&mut self, mut rows: &'r [[u8; ROW_BYTES]]) -> &'r [[u8; ROW_BYTES]] {
        while let (Some(mut length), Some(first)) = (self.even, rows.first()) {
            if self.seen == 0 {
                length = u64::from_le_bytes(*first).wrapping_sub(shard::HEADER_BYTES as u64);
                self.even = Some(length);
            }
            let shard = self.spans.partition_point(|span| span.end <= self.seen);
            // More rows than samples are those of no index, and kept for the error that says so.
            let (place, left) =
                self.spans.get(shard).map_or((0, 0), |span| (self.seen - span.first, span.end - self.seen));
            let now = rows.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (now, later) = rows.split_at(now);
            let ends = (place..).map(|place| even_end(place, length));
            let even = now.iter().zip(ends).all(|(row, end)| u64::from_le_bytes(*row) == end);
            if now.is_empty() || !even {
                self.give_up_even();
                break;
            }
            self.seen += now.len() as u64;
            rows = later;
        }
        rows
    }

    /// Keeps the rows so far one by one.
    fn give_up_even(&mut self) {
        let Some(length) = self.even.take() else { return };
        self.refused = match &mut self.kept {
            None => false,
            Some(Listed::Near(rows)) => rows.try_reserve_exact(self.count).is_err(),
            Some(Listed::Far(rows)) => rows.try_reserve_exact(self.count).is_err(),
        };
        let places = self.spans.iter().flat_map(|span| 0..span.end - span.first);
        let seen = usize::try_from(self.seen).unwrap_or(usize::MAX);
        self.keep(places.take(seen).map(|place| even_end(place, length)));
    }

    fn keep(&mut self, ends: impl Iterator<Item = u64>) {
        match &mut self.kept {
            _ if self.refused => (),
            // A row that lies beyond its shard is refused when it is asked for, and so is the largest number.
            Some(Listed::Near(rows)) => rows.extend(ends.map(|end| u32::try_from(end).unwrap_or(u32::MAX))),
            Some(Listed::Far(rows)) => rows.extend(ends),
            None => (),
        }
    }

    /// All rows; None where they stay on disk.
    fn finish(mut self, file: &ReadFile) -> Result<Option<Rows>> {
        let samples = self.spans.last().map_or(0, |span| span.end);
        if let (Some(length), true) = (self.even, self.seen == samples) {
            return Ok(Some(Rows::Even(length)));
        }
        self.give_up_even();
        match self.refused {
            true => Err(no_memory(file.bytes(), file.path())),
            false => Ok(self.kept.map(Rows::Listed)),
        }
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Spans of shards with these records, and the rows of their index.
    fn laid_out(shards: &[Vec<u64>]) -> (Vec<Span>, Vec<u64>) {
        let (mut spans, mut rows) = (Vec::new(), Vec::new());
        for records in shards {
            let (first, mut end) = (rows.len() as u64, shard::HEADER_BYTES as u64);
            rows.extend(records.iter().map(|length| {
                end += length;
                end
            }));
            spans.push(Span { first, end: rows.len() as u64, records_end: end });
        }
        (spans, rows)
    }

    fn loaded(spans: &[Span], rows: &[u64], file_bytes: u64, piece: usize) -> Option<Rows> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        std::fs::write(&path, "").unwrap();
        let bytes: Vec<_> = rows.iter().map(|row| row.to_le_bytes()).collect();
        let mut loading = Loading::new(spans, file_bytes);
        bytes.chunks(piece).for_each(|piece| loading.take(piece));
        loading.finish(&ReadFile::open(&path).unwrap()).unwrap()
    }

    fn shards() -> impl Strategy<Value = Vec<Vec<u64>>> {
        let length = prop_oneof![8 => Just(73_u64), 1 => 9_u64..5_000_000_000];
        let even = prop::collection::vec((1_usize..40).prop_map(|count| vec![73_u64; count]), 1..6);
        prop_oneof![even, prop::collection::vec(prop::collection::vec(length, 1..40), 1..6)]
    }

    proptest! {
        #[test]
        fn rows_are_those_of_the_file_however_they_are_kept(shards in shards(), piece in 1_usize..50, beyond in 0_usize..3) {
            let (spans, mut rows) = laid_out(&shards);
            let samples = rows.len();
            // A file that has more rows than the manifest has samples is refused later, by its header.
            rows.extend(std::iter::repeat_n(1, beyond));
            let found = loaded(&spans, &rows, rows.len() as u64 * 8, piece).unwrap();
            let even = shards.concat().windows(2).all(|pair| pair[0] == pair[1]) && beyond == 0;
            prop_assert_eq!(matches!(found, Rows::Even(_)), even);
            let index = Index { spans, rows: found };
            for (sample, end) in rows.iter().take(samples).enumerate() {
                let span = index.spans[index.spans.partition_point(|span| span.end <= sample as u64)];
                let before = sample as u64 > span.first;
                let expected = (if before { rows[sample - 1] } else { 0 }, *end);
                let (start, found) = index.rows(sample as u64, &span, before).unwrap();
                prop_assert_eq!((if before { start } else { 0 }, found), expected);
            }
        }

        #[test]
        fn a_row_that_is_forged_is_no_even_one(shards in shards(), at: prop::sample::Index, to: u64) {
            let (spans, mut rows) = laid_out(&shards);
            let at = at.index(rows.len());
            prop_assume!(rows[at] != to && rows.len() > 1);
            rows[at] = to;
            let found = loaded(&spans, &rows, rows.len() as u64 * 8, 7).unwrap();
            let index = Index { spans, rows: found };
            let span = index.spans[index.spans.partition_point(|span| span.end <= at as u64)];
            let kept = index.rows(at as u64, &span, false).unwrap().1;
            let largest = matches!(index.rows, Rows::Listed(Listed::Near(_))) && to > u64::from(u32::MAX);
            prop_assert_eq!(kept, if largest { u64::from(u32::MAX) } else { to });
        }
    }

    #[test]
    fn a_file_of_too_few_rows_is_not_even() {
        let (spans, rows) = laid_out(&[vec![73; 10], vec![73; 10]]);
        assert!(
            matches!(loaded(&spans, &rows[..15], 120, 4), Some(Rows::Listed(Listed::Near(kept))) if kept.len() == 15)
        );
        assert!(loaded(&spans, &rows[..15], 1 << 40, 4).is_none());
        assert!(matches!(loaded(&spans, &rows, 1 << 40, 4), Some(Rows::Even(73))));
    }
}
