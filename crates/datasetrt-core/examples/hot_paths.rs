//! The engine's hot paths by themselves, for counting their instructions; `benchmarks/instructions` runs this.
//!
//! `hot_paths prepare FOLDER` writes the samples; `hot_paths PATH FOLDER REPEATS` does the work of one path so
//! often. Counts of two numbers of repeats differ by the work alone: start and opening are in both.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datasetrt_core::format::compression::Compression;
use datasetrt_core::metadata::Value;
use datasetrt_core::read::{Arrangement, Dataset, ReadOptions, Split, buffer::Pool};
use datasetrt_core::sampler::Sampler;
use datasetrt_core::store::local::Local;
use datasetrt_core::stream::plan::{Plan, Uneven};
use datasetrt_core::stream::{OnCorrupt, Stream, StreamOptions};
use datasetrt_core::write::{WriteOptions, Writer};
use datasetrt_core::{Error, ErrorKind, Result};

const SAMPLES: u64 = 8192;
const BATCH: u64 = 256;
const SMALL: usize = 1024;
/// A 64×64×3 image of bytes, an int64, eight boxes of four float32.
const RECORD: [usize; 3] = [12_288, 8, 128];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["prepare", folder] => {
            write(Path::new(folder), "small", SAMPLES, SMALL)?;
            write(Path::new(folder), "records", SAMPLES / 8, RECORD.iter().sum())
        }
        [path, folder, repeats] => {
            let repeats = repeats.parse().map_err(|_| usage())?;
            work(path, Path::new(folder), repeats)
        }
        _ => Err(usage()),
    }
}

fn usage() -> Error {
    let usage = "usage: hot_paths prepare FOLDER, or hot_paths PATH FOLDER REPEATS";
    Error::new(ErrorKind::InvalidArgument, usage)
}

fn work(path: &str, folder: &Path, repeats: u64) -> Result<()> {
    match path {
        "sample" => samples(&open(folder, "small")?, repeats),
        "batch" => batches(open(folder, "small")?, None, repeats),
        "record_batch" => batches(open(folder, "records")?, Some(Split::new(&RECORD)?), repeats),
        "metadata_rows" => metadata_rows(&open(folder, "small")?, repeats),
        "index_lookup" => index_lookups(&open(folder, "small")?, repeats),
        "shuffle_position" => shuffle_positions(repeats),
        "write" => (0..repeats).try_for_each(|_| write(&folder.join("written"), "again", 1000, SMALL)),
        _ => Err(Error::new(ErrorKind::InvalidArgument, format!("there is no path {path}"))),
    }
}

fn open(folder: &Path, name: &str) -> Result<Dataset> {
    Dataset::open(&[folder.join(name)], ReadOptions::default())
}

/// Rows that jump about, the same in every run.
fn scattered(count: u64, of: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| (i * 2_654_435_761 + 97) % of)
}

/// One payload by row, as `ds[i]` reads it.
fn samples(dataset: &Dataset, repeats: u64) -> Result<()> {
    for row in scattered(repeats, dataset.len()) {
        let payload = dataset.read_payload(dataset.global(row)?)?;
        std::hint::black_box(payload);
    }
    Ok(())
}

/// Shuffled batches, read on this thread: threads that read ahead do the same work at moments of their own.
fn batches(dataset: Dataset, split: Option<Split>, repeats: u64) -> Result<()> {
    let length = dataset.len();
    let order = Sampler::Shuffle { seed: 1 }.bind(length, None)?;
    for repeat in 0..repeats {
        let options = StreamOptions {
            epoch: repeat,
            steps_per_read: 1,
            threads: Some(1),
            prefetch_batches: 0,
            prefetch_bytes: 1 << 20,
            on_corrupt: OnCorrupt::Raise,
            split: split.clone(),
            pool: None,
            metadata_wanted: Arc::new(AtomicBool::new(false)),
        };
        let plan = Plan::new(length, 0, BATCH, (0, 1), Uneven::Keep, false)?;
        let mut stream = Stream::new(dataset.clone(), order.clone(), plan, options)?;
        for _ in 0..4 {
            std::hint::black_box(stream.next(&mut || false)?);
        }
    }
    Ok(())
}

/// The metadata of 256 rows.
fn metadata_rows(dataset: &Dataset, repeats: u64) -> Result<()> {
    let rows: Vec<u64> = scattered(BATCH, dataset.len()).collect();
    let globals = dataset.globals(&rows)?;
    for _ in 0..repeats {
        std::hint::black_box(dataset.metadata(&rows, &globals)?);
    }
    Ok(())
}

/// Where 256 records lie: a read that gives up before it reads the first.
fn index_lookups(dataset: &Dataset, repeats: u64) -> Result<()> {
    let globals: Vec<u64> = scattered(BATCH, dataset.len()).collect();
    let arrangement = Arrangement { pool: Some(Pool::for_prefetch(1, 1 << 20)), split: None };
    for _ in 0..repeats {
        let mut stop = || Err(Error::new(ErrorKind::Closed, "far enough"));
        if dataset.read_payloads(&globals, &arrangement, &mut stop).is_ok() {
            return Err(Error::new(ErrorKind::InvalidArgument, "the read did not give up"));
        }
    }
    Ok(())
}

/// The rows of 256 positions of a shuffled epoch of a million, one by one.
fn shuffle_positions(repeats: u64) -> Result<()> {
    let order = Sampler::Shuffle { seed: 1 }.bind(1_000_000, None)?;
    for epoch in 0..repeats {
        let epoch = order.epoch(epoch)?;
        for position in 0..BATCH {
            std::hint::black_box(epoch.at(position)?);
        }
    }
    Ok(())
}

/// Writes a cache, synced and published, with one thread that checksums.
fn write(root: &Path, name: &str, samples: u64, size: usize) -> Result<()> {
    let options = WriteOptions {
        root: root.to_owned(),
        name: name.to_owned(),
        fingerprint: None,
        codec: None,
        schema: None,
        compression: Compression::None,
        max_shard_bytes: 256 << 20,
        threads: Some(1),
        queue_bytes: 64 << 20,
        by_item: false,
        replace: true,
    };
    let mut payload = vec![0u8; size];
    let mut writer = Writer::begin(options, Arc::new(Local))?;
    for number in 0..samples {
        // Different enough, and next to nothing beside the work of the writer.
        for (byte, of_number) in payload.iter_mut().zip(number.to_le_bytes()) {
            *byte = of_number;
        }
        let label = i64::try_from(number % 100).unwrap_or(0);
        let row =
            [("label", Value::Int(label)), ("split", Value::Str("train")), ("score", Value::Float(0.5))];
        if writer.push(&payload, &row, number)? {
            writer.flush()?;
        }
    }
    writer.finish().map(drop)
}
