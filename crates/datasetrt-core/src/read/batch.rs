//! Payloads of many samples in one buffer: read, verified, decompressed.

use super::buffer::{AlignedBuffer, layout};
use super::cache::{Cache, Place};
use super::dataset::Dataset;
use crate::error::{Error, ErrorKind, Result};
use crate::format::compression::Compression;
use crate::format::record::{Frame, RAW_FRAME_BYTES, verify_raw};

/// The payloads of some samples.
#[derive(Debug)]
pub struct Payloads {
    /// All of them; see [`layout`] for where each lies.
    pub buffer: AlignedBuffer,
    /// Where each begins.
    pub starts: Vec<usize>,
    /// How long each is.
    pub lengths: Vec<usize>,
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
struct Wanted<'a> {
    cache: &'a Cache,
    sample: u64,
    place: Place,
}

impl Wanted<'_> {
    fn length(&self) -> Result<usize> {
        usize::try_from(self.place.end - self.place.start).map_err(|_| self.too_large())
    }

    fn too_large(&self) -> Error {
        let error = Error::new(ErrorKind::InvalidArgument, "record is larger than the address space");
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
    /// The first sample that cannot be read, and why.
    pub fn read_payloads(&self, globals: &[u64]) -> Result<Payloads, Failure> {
        let mut wanted = Vec::with_capacity(globals.len());
        for (place, global) in globals.iter().enumerate() {
            let found = self.find(*global).map_err(|error| Failure { place, error })?;
            wanted.push(found);
        }
        if wanted.iter().all(|w| w.cache.manifest().compression == Compression::None) {
            read_raw(&wanted)
        } else {
            read_packed(&wanted)
        }
    }

    /// Reads the payload of one global row.
    ///
    /// # Errors
    ///
    /// Why the sample cannot be read.
    pub fn read_payload(&self, global: u64) -> Result<Vec<u8>> {
        let wanted = self.find(global)?;
        let record = read_record(&wanted)?;
        unpack(&wanted, &record).map_err(|e| wanted.explain(&e))
    }

    fn find(&self, global: u64) -> Result<Wanted<'_>> {
        let (cache, sample) = self.locate(global)?;
        let located =
            |e: Error| Error::new(e.kind(), format!("{}: {e}", cache.folder().display())).at_sample(sample);
        Ok(Wanted { cache, sample, place: cache.index.place(sample).map_err(located)? })
    }
}

fn unpack(wanted: &Wanted<'_>, record: &[u8]) -> Result<Vec<u8>> {
    let frame = Frame::parse(wanted.cache.rules(), wanted.sample, record)?;
    // Before the allocation: a damaged length must not cost memory.
    frame.verify()?;
    let mut payload =
        crate::store::file::zeroed(frame.payload_bytes(), &wanted.cache.shard_path(wanted.place.shard))?;
    frame.unpack(&mut payload)?;
    Ok(payload)
}

fn read_record(wanted: &Wanted<'_>) -> Result<Vec<u8>> {
    let shard = wanted.cache.shard(wanted.place.shard).map_err(|e| wanted.explain(&e))?;
    let mut record = crate::store::file::zeroed(wanted.place.end - wanted.place.start, shard.file.path())?;
    shard.file.read_exact_at(&mut record, wanted.place.start).map_err(|e| wanted.explain(&e))?;
    Ok(record)
}

/// Without compression the lengths are known before reading: each payload goes straight to its place.
fn read_raw(wanted: &[Wanted<'_>]) -> Result<Payloads, Failure> {
    let lengths = each(wanted, |w| Ok(w.length()?.saturating_sub(RAW_FRAME_BYTES)))?;
    let (starts, total) = layout(&lengths).map_err(whole)?;
    let mut buffer = AlignedBuffer::zeroed(total).map_err(whole)?;
    fill(&mut buffer, wanted, &starts, &lengths, |w, _, payload| {
        let shard = w.cache.shard(w.place.shard)?;
        let mut head = [0; RAW_FRAME_BYTES];
        shard.file.read_split_at(&mut head, payload, w.place.start)?;
        verify_raw(w.cache.rules(), w.sample, &head, payload)
    })?;
    Ok(Payloads { buffer, starts, lengths })
}

/// With compression the records are read first; their frames say how long the payloads are.
fn read_packed(wanted: &[Wanted<'_>]) -> Result<Payloads, Failure> {
    let records = each(wanted, read_record)?;
    let parse = |w: &Wanted<'_>, record: &[u8]| -> Result<usize> {
        let frame = Frame::parse(w.cache.rules(), w.sample, record)?;
        // Before the allocation: a damaged length must not cost memory.
        frame.verify()?;
        usize::try_from(frame.payload_bytes()).map_err(|_| w.too_large())
    };
    let mut lengths = Vec::with_capacity(wanted.len());
    for (place, (w, record)) in wanted.iter().zip(&records).enumerate() {
        lengths.push(parse(w, record).map_err(|e| Failure { place, error: w.explain(&e) })?);
    }
    let (starts, total) = layout(&lengths).map_err(whole)?;
    let mut buffer = AlignedBuffer::zeroed(total).map_err(whole)?;
    fill(&mut buffer, wanted, &starts, &lengths, |w, place, payload| {
        let record = records.get(place).map(Vec::as_slice).unwrap_or_default();
        Frame::parse(w.cache.rules(), w.sample, record)?.unpack(payload)
    })?;
    Ok(Payloads { buffer, starts, lengths })
}

fn fill(
    buffer: &mut AlignedBuffer,
    wanted: &[Wanted<'_>],
    starts: &[usize],
    lengths: &[usize],
    read: impl Fn(&Wanted<'_>, usize, &mut [u8]) -> Result<()>,
) -> Result<(), Failure> {
    let out = buffer.as_mut_slice();
    for (place, w) in wanted.iter().enumerate() {
        let start = starts.get(place).copied().unwrap_or_default();
        let length = lengths.get(place).copied().unwrap_or_default();
        let payload = out.get_mut(start..start + length).unwrap_or_default();
        read(w, place, payload).map_err(|e| Failure { place, error: w.explain(&e) })?;
    }
    Ok(())
}

fn each<T>(wanted: &[Wanted<'_>], work: impl Fn(&Wanted<'_>) -> Result<T>) -> Result<Vec<T>, Failure> {
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
