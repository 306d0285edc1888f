//! Payloads of many samples in one buffer: read, verified, decompressed.

use std::io::IoSliceMut;
use std::sync::Arc;

use super::buffer::{AlignedBuffer, Pool, layout};
use super::cache::{Cache, Place};
use super::dataset::Dataset;
use super::split::{Around, Split};
use super::timing::{Part, timed};
use crate::error::{Error, ErrorKind, Result};
use crate::format::compression::Compression;
use crate::format::record::{Frame, RAW_FRAME_BYTES, RawVerifier, verify_raw};
use crate::store::file::{ReadFile, no_memory, zeroed};

/// The payloads of some samples.
#[derive(Debug)]
pub struct Payloads {
    /// All of them.
    pub buffer: AlignedBuffer,
    /// How long each is.
    pub lengths: Vec<usize>,
    /// Where they lie in the buffer.
    pub places: Places,
}

/// Where payloads lie in their buffer.
#[derive(Clone, Debug)]
pub enum Places {
    /// One after the other, as [`layout`] says; where each begins.
    Rows(Vec<usize>),
    /// Cut into columns, because all have the length that was hoped for.
    Columns(Split),
}

/// How payloads are to be laid out.
#[derive(Clone, Debug, Default)]
pub struct Arrangement {
    /// Where memory comes from and goes back to.
    pub pool: Option<Arc<Pool>>,
    /// Cut the payloads of a request into these columns, if all of them have that length.
    pub split: Option<Split>,
}

impl Arrangement {
    fn buffer(&self, length: usize) -> Result<AlignedBuffer> {
        match &self.pool {
            Some(pool) => AlignedBuffer::uncleared(length, pool),
            None => AlignedBuffer::zeroed(length),
        }
    }

    fn split_of(&self, lengths: &[usize]) -> Option<&Split> {
        self.split.as_ref().filter(|split| lengths.iter().all(|length| *length == split.record_bytes()))
    }
}

/// A sample that could not be read, by its place in the request.
#[derive(Debug)]
pub struct Failure {
    /// Its place in the request.
    pub place: usize,
    /// Why.
    pub error: Error,
}

/// A record on its way: of which cache, which sample, where.
pub struct Wanted<'a> {
    cache: &'a Cache,
    sample: u64,
    place: Place,
}

impl Wanted<'_> {
    /// The length of the payload, if it is known before anything is read.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if it is more than an address space holds.
    pub fn known_length(&self) -> Result<Option<usize>> {
        match self.cache.manifest().compression {
            Compression::None => self.payload_length().map(Some),
            Compression::Lz4 | Compression::Zstd { .. } | Compression::ZstdDictionary { .. } => Ok(None),
        }
    }

    /// The payload, verified, in `memory`, which may hold anything before and holds more afterwards.
    ///
    /// # Errors
    ///
    /// Why it cannot be read. What is in `memory` then means nothing.
    pub fn read<'m>(&self, memory: &'m mut Vec<u8>) -> Result<&'m [u8]> {
        match self.known_length()? {
            Some(_) => {
                let record = self.room(memory)?;
                let payload = read_in_place(self, record, RAW_FRAME_BYTES);
                payload.map_err(|e| self.explain(&e))?;
                Ok(record.get(RAW_FRAME_BYTES..).unwrap_or_default())
            }
            None => {
                let record = read_record(self)?;
                *memory = unpack(self, &record).map_err(|e| self.explain(&e))?;
                Ok(memory)
            }
        }
    }

    /// Reads the payload, verified, to where it shall be; `payload` has the [known length](Self::known_length).
    ///
    /// # Errors
    ///
    /// Why it cannot be read. What is in `payload` then means nothing.
    pub fn read_into(&self, payload: &mut [u8]) -> Result<()> {
        read_raw_record(self, &mut [payload]).map_err(|e| self.explain(&e))
    }

    /// As much memory as the record takes.
    fn room<'m>(&self, memory: &'m mut Vec<u8>) -> Result<&'m mut [u8]> {
        let record = self.length()?;
        if memory.len() < record {
            memory.try_reserve(record - memory.len()).map_err(|_| self.no_memory())?;
            memory.resize(record, 0);
        }
        Ok(memory.get_mut(..record).unwrap_or_default())
    }

    /// Of a record that is not compressed.
    fn payload_length(&self) -> Result<usize> {
        Ok(self.length()?.saturating_sub(RAW_FRAME_BYTES))
    }

    fn length(&self) -> Result<usize> {
        usize::try_from(self.place.end - self.place.start).map_err(|_| self.too_large())
    }

    fn no_memory(&self) -> Error {
        let bytes = self.place.end - self.place.start;
        no_memory(bytes, &self.cache.shard_path(self.place.shard)).at_sample(self.sample)
    }

    fn too_large(&self) -> Error {
        let error = Error::new(
            ErrorKind::InvalidArgument,
            "the record is larger than the address space; read it on a 64-bit machine",
        );
        self.cache.locate(&error, self.sample, self.place)
    }

    fn explain(&self, error: &Error) -> Error {
        // Errors of the file itself name the file; those of the record only what is wrong with it.
        if error.path().is_some() && error.kind() != ErrorKind::UnexpectedEnd {
            error.clone().at_sample(self.sample)
        } else {
            self.cache.locate(error, self.sample, self.place)
        }
    }
}

impl Dataset {
    /// Reads the payloads of global rows, in the order given.
    ///
    /// # Errors
    ///
    /// The first sample that cannot be read, and why; or what `proceed` answers, which is asked before each.
    pub fn read_payloads(
        &self,
        globals: &[u64],
        arrangement: &Arrangement,
        proceed: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Payloads, Failure> {
        let mut wanted = Vec::with_capacity(globals.len());
        for (place, global) in globals.iter().enumerate() {
            let found = self.find(*global).map_err(|error| Failure { place, error })?;
            wanted.push(found);
        }
        if wanted.iter().all(|w| w.cache.manifest().compression == Compression::None) {
            read_raw(&wanted, arrangement, proceed)
        } else {
            read_packed(&wanted, arrangement, proceed)
        }
    }

    /// The payload of a global row, verified, if all that is needed for it is in the system's memory and neither record nor
    /// payload has more than `most` bytes. It lies in `memory`, which may hold anything before and holds more afterwards.
    /// Waits for no disk: the caller may hold what others wait for.
    ///
    /// # Errors
    ///
    /// Why the sample cannot be read.
    pub fn read_nowait<'m>(
        &self,
        global: u64,
        most: usize,
        memory: &'m mut Vec<u8>,
    ) -> Result<Option<&'m [u8]>> {
        let (cache, sample) = self.locate(global)?;
        if !cache.index.is_in_memory() {
            return Ok(None);
        }
        let wanted = Wanted { cache, sample, place: cache.place(sample)? };
        if wanted.length()? > most {
            return Ok(None);
        }
        let room = wanted.room(memory)?;
        let read = |file: &ReadFile| file.read_nowait_at(room, wanted.place.start);
        if cache.with_open_shard(wanted.place.shard, read) != Some(true) {
            return Ok(None);
        }
        let explained = |e: Error| wanted.explain(&e);
        if wanted.known_length()?.is_none() {
            let record = memory.get(..wanted.length()?).unwrap_or_default();
            let frame = Frame::parse(cache.rules(), sample, record).map_err(explained)?;
            if frame.payload_bytes() > most as u64 {
                return Ok(None);
            }
            *memory = unpack(&wanted, record).map_err(explained)?;
            return Ok(Some(memory));
        }
        let record = memory.get(..wanted.length()?).unwrap_or_default();
        let Some((head, payload)) = record.split_first_chunk::<RAW_FRAME_BYTES>() else { return Ok(None) };
        verify_raw(cache.rules(), sample, head, payload).map_err(explained)?;
        Ok(Some(payload))
    }

    /// Reads the payload of one global row.
    ///
    /// # Errors
    ///
    /// Why the sample cannot be read.
    pub fn read_payload(&self, global: u64) -> Result<Vec<u8>> {
        let mut memory = Vec::new();
        self.find(global)?.read(&mut memory).map(<[u8]>::to_vec)
    }

    /// Where the record of a global row lies; reads nothing of it.
    ///
    /// # Errors
    ///
    /// `index-out-of-range`, or what is wrong with the index.
    pub fn find(&self, global: u64) -> Result<Wanted<'_>> {
        let (cache, sample) = self.locate(global)?;
        Ok(Wanted { cache, sample, place: cache.place(sample)? })
    }
}

fn unpack(wanted: &Wanted<'_>, record: &[u8]) -> Result<Vec<u8>> {
    // Before the allocation: a damaged length must not cost memory.
    let frame = Frame::parse(wanted.cache.rules(), wanted.sample, record)?.verify()?;
    let mut payload = zeroed(frame.payload_bytes(), &wanted.cache.shard_path(wanted.place.shard))?;
    frame.unpack(&mut payload)?;
    Ok(payload)
}

fn read_record(wanted: &Wanted<'_>) -> Result<Vec<u8>> {
    let Place { shard, start, end } = wanted.place;
    let read = wanted.cache.with_shard(shard, |file| {
        let mut record = zeroed(end - start, file.path())?;
        file.read_exact_at(&mut record, start)?;
        Ok(record)
    });
    read.map_err(|e| wanted.explain(&e))
}

/// Without compression the lengths are known before reading: each payload goes straight to its place.
fn read_raw(
    wanted: &[Wanted<'_>],
    arrangement: &Arrangement,
    proceed: &mut dyn FnMut() -> Result<()>,
) -> Result<Payloads, Failure> {
    let lengths = each(wanted, |w| w.payload_length())?;
    fill(wanted, lengths, arrangement, proceed, |w, _, room| match room {
        Room::Whole { bytes, before } => read_in_place(w, bytes, before),
        Room::Parts(parts) => read_raw_record(w, parts),
    })
}

/// Reads the payload of a record that is not compressed to where it shall be: behind the first `before` of `bytes`, which
/// stay as they are.
fn read_in_place(wanted: &Wanted<'_>, bytes: &mut [u8], before: usize) -> Result<()> {
    let small = bytes.len().saturating_sub(before) <= PIECE_BYTES;
    let Some(place) = before.checked_sub(RAW_FRAME_BYTES).filter(|_| small) else {
        return read_raw_record(wanted, &mut [bytes.get_mut(before..).unwrap_or_default()]);
    };
    // The frame goes where other bytes are, for as long as it takes to read both at once: a read into two places
    // costs a fifth more for 1 KiB.
    let record = bytes.get_mut(place..).unwrap_or_default();
    let Some(kept) = record.first_chunk::<RAW_FRAME_BYTES>().copied() else { return Ok(()) };
    let read = |file: &ReadFile| file.read_exact_at(record, wanted.place.start);
    let found = wanted.cache.with_shard(wanted.place.shard, read);
    let Some((head, payload)) = record.split_first_chunk_mut::<RAW_FRAME_BYTES>() else { return Ok(()) };
    let frame = std::mem::replace(head, kept);
    found?;
    timed(Part::Verify, || verify_raw(wanted.cache.rules(), wanted.sample, &frame, payload))
}

/// Reads the payload of a record that is not compressed into parts which have its length together.
fn read_raw_record(wanted: &Wanted<'_>, parts: &mut [&mut [u8]]) -> Result<()> {
    let mut head = [0; RAW_FRAME_BYTES];
    wanted.cache.with_shard(wanted.place.shard, |file| match parts {
        [payload] if payload.len() <= PIECE_BYTES => {
            let mut pieces = [IoSliceMut::new(&mut head), IoSliceMut::new(payload)];
            file.read_scattered_at(&mut pieces, wanted.place.start)?;
            timed(Part::Verify, || verify_raw(wanted.cache.rules(), wanted.sample, &head, payload))
        }
        parts => read_pieces(wanted, file, &mut head, parts),
    })
}

/// So many bytes are read with one system call and then hashed, while they are still in the processor's cache: large
/// enough for the call not to count, and a fraction of what a core keeps to itself.
const PIECE_BYTES: usize = 128 << 10;

/// Reads a raw record whose payload is large or cut into parts.
fn read_pieces(
    wanted: &Wanted<'_>,
    file: &ReadFile,
    head: &mut [u8; RAW_FRAME_BYTES],
    parts: &mut [&mut [u8]],
) -> Result<()> {
    let payload_bytes = parts.iter().map(|part| part.len() as u64).sum();
    let mut verifier = RawVerifier::new(wanted.cache.rules(), wanted.sample, payload_bytes)?;
    // The frame comes with the first piece and is not hashed.
    let mut pieces = Vec::with_capacity(parts.len() + 1);
    pieces.push(IoSliceMut::new(head));
    let (mut offset, mut frames, mut held) = (wanted.place.start, 1, 0);
    let mut read = |pieces: &mut Vec<IoSliceMut<'_>>| -> Result<()> {
        file.read_scattered_at(pieces, offset)?;
        offset += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let payload = pieces.drain(..).skip(std::mem::take(&mut frames));
        timed(Part::Verify, || payload.for_each(|piece| verifier.update(&piece)));
        Ok(())
    };
    for piece in parts.iter_mut().flat_map(|part| part.chunks_mut(PIECE_BYTES)) {
        held += piece.len();
        pieces.push(IoSliceMut::new(piece));
        if held >= PIECE_BYTES {
            read(&mut pieces)?;
            held = 0;
        }
    }
    if !pieces.is_empty() {
        read(&mut pieces)?;
    }
    drop(pieces);
    verifier.finish(head)
}

/// With compression the records are read first; their frames say how long the payloads are.
fn read_packed(
    wanted: &[Wanted<'_>],
    arrangement: &Arrangement,
    proceed: &mut dyn FnMut() -> Result<()>,
) -> Result<Payloads, Failure> {
    let records = each(wanted, |w| {
        proceed()?;
        read_record(w)
    })?;
    let (mut frames, mut lengths) = (Vec::with_capacity(wanted.len()), Vec::with_capacity(wanted.len()));
    for (place, (w, record)) in wanted.iter().zip(&records).enumerate() {
        let failed = |e: Error| Failure { place, error: w.explain(&e) };
        let frame = Frame::parse(w.cache.rules(), w.sample, record).map_err(failed)?;
        // Before the allocation: a damaged length must not cost memory.
        let frame = timed(Part::Verify, || frame.verify()).map_err(failed)?;
        lengths.push(usize::try_from(frame.payload_bytes()).map_err(|_| failed(w.too_large()))?);
        frames.push(frame);
    }
    let mut whole = Vec::new();
    fill(wanted, lengths, arrangement, proceed, |_, place, room| {
        let none = || Error::new(ErrorKind::Bug, format!("there is no record for place {place} of a batch"));
        let frame = frames.get(place).ok_or_else(none)?;
        let parts = match room {
            Room::Whole { bytes, before } => {
                let payload = bytes.get_mut(before..).unwrap_or_default();
                return timed(Part::Decompress, || frame.unpack(payload));
            }
            Room::Parts(parts) => parts,
        };
        whole.resize(parts.iter().map(|part| part.len()).sum(), 0);
        timed(Part::Decompress, || frame.unpack(&mut whole))?;
        let mut rest = whole.as_slice();
        for part in parts {
            let Some((piece, others)) = rest.split_at_checked(part.len()) else { break };
            part.copy_from_slice(piece);
            rest = others;
        }
        Ok(())
    })
}

/// Where a payload is to be written.
enum Room<'a> {
    /// In one piece, behind bytes that stay as they are.
    Whole { bytes: &'a mut [u8], before: usize },
    /// In parts, which have its length together.
    Parts(&'a mut [&'a mut [u8]]),
}

/// Lays the payloads out and lets `read` write each, all bytes of it.
fn fill(
    wanted: &[Wanted<'_>],
    lengths: Vec<usize>,
    arrangement: &Arrangement,
    proceed: &mut dyn FnMut() -> Result<()>,
    mut read: impl FnMut(&Wanted<'_>, usize, Room<'_>) -> Result<()>,
) -> Result<Payloads, Failure> {
    let mut read = |place: usize, room: Room<'_>| match wanted.get(place) {
        Some(w) => {
            proceed().map_err(|error| Failure { place, error })?;
            read(w, place, room).map_err(|e| Failure { place, error: w.explain(&e) })
        }
        None => Ok(()),
    };
    if let Some(split) = arrangement.split_of(&lengths) {
        let total = split.buffer_bytes(lengths.len()).map_err(whole)?;
        let mut buffer = arrangement.buffer(total).map_err(whole)?;
        fill_columns(split, lengths.len(), buffer.as_mut_slice(), &mut read)?;
        return Ok(Payloads { buffer, lengths, places: Places::Columns(split.clone()) });
    }
    let (starts, total) = layout(&lengths).map_err(whole)?;
    let mut buffer = arrangement.buffer(total).map_err(whole)?;
    let memory = buffer.as_mut_slice();
    let mut filled = 0;
    for (place, (start, length)) in starts.iter().zip(&lengths).enumerate() {
        // The memory may have held other payloads before.
        memory.get_mut(filled..*start).unwrap_or_default().fill(0);
        let before = (*start).min(RAW_FRAME_BYTES);
        let bytes = memory.get_mut(start - before..start + length).unwrap_or_default();
        read(place, Room::Whole { bytes, before })?;
        filled = start + length;
    }
    Ok(Payloads { buffer, lengths, places: Places::Rows(starts) })
}

/// Lets `read` write payloads that are cut into columns, all bytes of it.
fn fill_columns(
    split: &Split,
    count: usize,
    memory: &mut [u8],
    read: &mut dyn FnMut(usize, Room<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    split.clear_gaps(count, memory);
    let Some(mut around) = Around::new(split, count).map_err(whole)? else {
        let mut columns = split.columns_mut(count, memory);
        return (0..count).try_for_each(|place| {
            let mut parts: Vec<_> = columns.iter_mut().filter_map(Iterator::next).collect();
            read(place, Room::Parts(&mut parts))
        });
    };
    for place in 0..count {
        let span = around.span(place);
        let before = span.start.min(RAW_FRAME_BYTES);
        around.exchange(&span, memory);
        let bytes = memory.get_mut(span.start - before..span.end).unwrap_or_default();
        read(place, Room::Whole { bytes, before })?;
        around.exchange(&span, memory);
        around.spread(place, memory);
    }
    Ok(())
}

fn each<T>(wanted: &[Wanted<'_>], mut work: impl FnMut(&Wanted<'_>) -> Result<T>) -> Result<Vec<T>, Failure> {
    let mut out = Vec::with_capacity(wanted.len());
    for (place, w) in wanted.iter().enumerate() {
        out.push(work(w).map_err(|error| Failure { place, error })?);
    }
    Ok(out)
}

/// A failure of the request itself; it is told with its first sample.
fn whole(error: Error) -> Failure {
    Failure { place: 0, error }
}
