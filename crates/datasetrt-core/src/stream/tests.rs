use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use proptest::prelude::*;

use super::plan::Uneven;
use super::*;
use crate::format::compression::Compression;
use crate::metadata::Value;
use crate::read::{Places, ReadOptions};
use crate::sampler::Sampler;
use crate::store::local::Local;
use crate::write::{WriteOptions, Writer};

fn write(root: &Path, samples: u64, compression: Compression) -> PathBuf {
    let options = WriteOptions { compression, max_shard_bytes: 2000, ..write_options(root, "s") };
    let mut writer = Writer::begin(options, Arc::new(Local)).unwrap();
    for sample in 0..samples {
        writer.push(&payload(sample), &[("id", Value::Int(sample as i64))], sample).unwrap();
    }
    writer.finish().unwrap();
    root.join("s")
}

fn write_options(root: &Path, name: &str) -> WriteOptions {
    WriteOptions {
        root: root.to_owned(),
        name: name.into(),
        fingerprint: None,
        codec: None,
        schema: None,
        compression: Compression::None,
        max_shard_bytes: 1 << 30,
        threads: Some(1),
        queue_bytes: 1 << 20,
        by_item: false,
        replace: false,
    }
}

fn payload(sample: u64) -> Vec<u8> {
    sample.to_le_bytes().repeat(1 + (sample % 5) as usize)
}

fn open(folder: &Path) -> Dataset {
    Dataset::open(&[folder], ReadOptions { max_open_shards: 3 }).unwrap()
}

fn options(threads: usize, prefetch_batches: u64) -> StreamOptions {
    StreamOptions {
        epoch: 2,
        steps_per_read: 1,
        threads: Some(threads),
        prefetch_batches,
        prefetch_bytes: 1 << 20,
        on_corrupt: OnCorrupt::Raise,
        split: None,
        pool: None,
        metadata_wanted: Arc::default(),
    }
}

fn stream(dataset: &Dataset, start: u64, batch: u64, options: StreamOptions) -> Stream {
    let order = Sampler::Shuffle { seed: 3 }.bind(dataset.len(), None).unwrap();
    let plan = Plan::new(order.len(), start, batch, (0, 1), Uneven::Pad, false).unwrap();
    Stream::new(dataset.clone(), order, plan, options).unwrap()
}

fn samples(mut stream: Stream) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(batch) = stream.next(&mut || false).unwrap() {
        let bytes = batch.payloads.buffer.as_slice();
        for (at, (row, length)) in batch.rows.iter().zip(&batch.payloads.lengths).enumerate() {
            let payload = match &batch.payloads.places {
                Places::Rows(starts) => bytes[starts[at]..starts[at] + length].to_vec(),
                Places::Columns(split) => {
                    let starts = split.column_starts(batch.rows.len()).unwrap();
                    let parts = starts.iter().zip(split.widths());
                    parts.flat_map(|(start, width)| &bytes[start + at * width..][..*width]).copied().collect()
                }
            };
            found.push((*row, payload));
        }
    }
    found
}

#[test]
fn threads_prefetch_and_batches_do_not_change_what_is_delivered() {
    for compression in [Compression::None, Compression::Lz4, Compression::ZstdDictionary { level: 1 }] {
        let root = tempfile::tempdir().unwrap();
        let dataset = open(&write(root.path(), 500, compression));
        let plain = samples(stream(&dataset, 0, 7, options(1, 0)));
        assert_eq!(plain.len(), 500);
        assert!(plain.iter().all(|(row, bytes)| *bytes == payload(*row)));
        for (threads, ahead, batch) in [(1, 1, 7), (4, 3, 7), (2, 100, 64), (3, 2, 1)] {
            assert_eq!(samples(stream(&dataset, 0, batch, options(threads, ahead))), plain);
        }
        let tight = StreamOptions { prefetch_bytes: 1, steps_per_read: 5, ..options(3, 8) };
        assert_eq!(samples(stream(&dataset, 0, 3, tight)), plain);
    }
}

#[test]
fn dropping_a_stream_early_ends_it() {
    let root = tempfile::tempdir().unwrap();
    let dataset = open(&write(root.path(), 500, Compression::None));
    for _ in 0..50 {
        let mut stream = stream(&dataset, 0, 5, options(4, 4));
        assert_eq!(stream.next(&mut || false).unwrap().unwrap().rows.len(), 5);
    }
}

#[test]
fn a_damaged_sample_is_named_or_replaced() {
    let root = tempfile::tempdir().unwrap();
    let folder = write(root.path(), 300, Compression::None);
    let shard = folder.join("shards/000001.bin");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[64 + 12] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let dataset = open(&folder);
    let mut failing = stream(&dataset, 0, 300, options(1, 1));
    let error = failing.next(&mut || false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RecordChecksum);
    let damaged = error.sample_id().unwrap();
    assert_eq!(failing.next(&mut || false).unwrap_err(), error);
    let substitute = StreamOptions { on_corrupt: OnCorrupt::Substitute, ..options(2, 2) };
    let replaced = samples(stream(&dataset, 0, 11, substitute.clone()));
    assert_eq!(replaced.len(), 300);
    assert!(replaced.iter().all(|(row, bytes)| *row != damaged && *bytes == payload(*row)));
    assert_eq!(samples(stream(&dataset, 0, 50, substitute)), replaced);
}

#[test]
fn verify_tells_everything_that_is_wrong() {
    struct Count(u64);
    impl crate::read::Progress for Count {
        fn advance(&mut self, bytes: u64) -> Result<()> {
            self.0 += bytes;
            Ok(())
        }
    }
    let root = tempfile::tempdir().unwrap();
    let folder = write(root.path(), 300, Compression::Lz4);
    let dataset = open(&folder);
    let cache = &dataset.caches()[0];
    let mut count = Count(0);
    assert_eq!(cache.verify(&mut count).unwrap(), []);
    assert!(count.0 > 1000);
    for (file, at) in
        [("shards/000000.bin", 80), ("shards/000001.bin", 3), ("metadata.arrow", 60), ("index.bin", 33)]
    {
        let path = folder.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let kinds: Vec<_> = cache.verify(&mut count).unwrap().iter().map(Error::kind).collect();
    use ErrorKind::{IndexChecksum, MetadataChecksum, RecordChecksum, ShardDigest, ShardMismatch};
    assert_eq!(
        kinds,
        [IndexChecksum, MetadataChecksum, RecordChecksum, ShardDigest, ShardMismatch, ShardDigest]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn a_stream_can_begin_anywhere(start in 0u64..=200, batch in 1u64..50, ahead in 0u64..4) {
        let root = tempfile::tempdir().unwrap();
        let dataset = open(&write(root.path(), 200, Compression::None));
        let whole = samples(stream(&dataset, 0, 16, options(2, 2)));
        let rest = samples(stream(&dataset, start, batch, options(2, ahead)));
        prop_assert_eq!(&rest[..], &whole[start as usize..]);
    }
}

fn write_payloads(root: &Path, payloads: &[Vec<u8>], compression: Compression) -> Dataset {
    let options = WriteOptions {
        root: root.to_owned(),
        name: "s".into(),
        fingerprint: None,
        codec: None,
        schema: None,
        compression,
        max_shard_bytes: 1 << 20,
        threads: Some(1),
        queue_bytes: 1 << 20,
        by_item: false,
        replace: false,
    };
    let mut writer = Writer::begin(options, Arc::new(Local)).unwrap();
    for (sample, payload) in (0..).zip(payloads) {
        writer.push(payload, &[], sample).unwrap();
    }
    writer.finish().unwrap();
    open(&root.join("s"))
}

/// Bytes that differ everywhere, half of them compressible.
fn noise(sample: usize, length: usize) -> Vec<u8> {
    let mut state = sample as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    (0..length).map(|at| if at % 2 == 0 { next() } else { 7 }).collect()
}

#[test]
fn threads_start_with_the_second_batch_or_where_the_first_takes_long() {
    let root = tempfile::tempdir().unwrap();
    let small = write_payloads(&root.path().join("small"), &vec![noise(1, 10); 10], Compression::None);
    let mut small = stream(&small, 0, 1, options(2, 2));
    let mut started = Vec::new();
    for _ in 0..3 {
        small.next(&mut || false).unwrap().unwrap();
        started.push(small.crew.workers.len());
    }
    // The first one may take long on a busy machine.
    assert_eq!(started[1..], [2, 2]);
    let large = write_payloads(&root.path().join("large"), &vec![noise(1, 8 << 20); 6], Compression::None);
    let mut large = stream(&large, 0, 4, options(2, 2));
    large.next(&mut || false).unwrap().unwrap();
    assert_eq!(large.crew.workers.len(), 1, "one batch is left");
}

#[test]
fn columns_hold_the_bytes_of_the_plain_path() {
    for compression in [Compression::None, Compression::Lz4, Compression::ZstdDictionary { level: 1 }] {
        let root = tempfile::tempdir().unwrap();
        let payloads: Vec<_> = (0..300).map(|sample| noise(sample, 1000)).collect();
        let dataset = write_payloads(root.path(), &payloads, compression);
        // More beside the widest part than is copied.
        let wide_payloads: Vec<_> = (0..300).map(|sample| noise(sample, 3000)).collect();
        let wide = write_payloads(&root.path().join("wide"), &wide_payloads, compression);
        for widths in [vec![1500, 1500], vec![1, 1200, 1799]] {
            let split = Some(Split::new(&widths).unwrap());
            let found = samples(stream(&wide, 0, 128, StreamOptions { split, ..options(2, 2) }));
            assert_eq!(found.len(), 300);
            assert!(found.iter().all(|(row, bytes)| *bytes == wide_payloads[*row as usize]), "{widths:?}");
        }
        for widths in [vec![1000], vec![1, 3, 996], vec![500, 500], vec![4; 250], vec![9, 3, 900, 80, 8]] {
            let split = Some(Split::new(&widths).unwrap());
            let mut first = stream(&dataset, 0, 128, StreamOptions { split: split.clone(), ..options(2, 2) });
            let batch = first.next(&mut || false).unwrap().unwrap();
            assert!(matches!(batch.payloads.places, Places::Columns(_)));
            // Also alone, where nothing of the batch lies around a payload.
            for batch_size in [1, 2, 128] {
                let split = split.clone();
                let found =
                    samples(stream(&dataset, 0, batch_size, StreamOptions { split, ..options(2, 2) }));
                assert_eq!(found.len(), 300);
                assert!(found.iter().all(|(row, bytes)| *bytes == payloads[*row as usize]), "{widths:?}");
            }
        }
        // Payloads of another size than the columns make together are read as they are.
        let split = Some(Split::new(&[1, 1000]).unwrap());
        let found = samples(stream(&dataset, 0, 128, StreamOptions { split, ..options(1, 0) }));
        assert!(found.iter().all(|(row, bytes)| *bytes == payloads[*row as usize]));
    }
}

#[test]
fn memory_that_comes_again_shows_nothing_of_what_was_there() {
    for compression in [Compression::None, Compression::Lz4] {
        let root = tempfile::tempdir().unwrap();
        // Sizes that leave gaps of every kind, in batches large enough to come from the pool.
        let payloads: Vec<_> = (0..400).map(|sample| noise(sample, 900 + sample % 150)).collect();
        let dataset = write_payloads(root.path(), &payloads, compression);
        let pool = Pool::for_prefetch(1, 1 << 20);
        let mut addresses = std::collections::HashSet::new();
        for _ in 0..3 {
            let options = StreamOptions { pool: Some(Arc::clone(&pool)), ..options(1, 1) };
            let mut stream = stream(&dataset, 0, 100, options);
            while let Some(batch) = stream.next(&mut || false).unwrap() {
                let Places::Rows(starts) = &batch.payloads.places else {
                    panic!("no columns were asked for")
                };
                let bytes = batch.payloads.buffer.as_slice();
                addresses.insert(bytes.as_ptr().addr());
                let ends = starts.iter().zip(&batch.payloads.lengths).map(|(start, length)| start + length);
                for (end, next) in ends.zip(starts.iter().skip(1)) {
                    assert!(bytes[end..*next].iter().all(|byte| *byte == 0));
                }
                for (row, (start, length)) in
                    batch.rows.iter().zip(starts.iter().zip(&batch.payloads.lengths))
                {
                    assert_eq!(bytes[*start..start + length], payloads[*row as usize]);
                }
            }
        }
        assert!(addresses.len() < 12, "memory never came again");
    }
}

#[test]
fn metadata_that_is_asked_for_often_is_packed_into_memory() {
    let root = tempfile::tempdir().unwrap();
    const ROWS: u64 = 150_000;
    let text = |sample: u64| format!("{:0>50}", sample % 3);
    let mut large = Writer::begin(write_options(root.path(), "large"), Arc::new(Local)).unwrap();
    for sample in 0..ROWS {
        let row = [("id", Value::Int(sample as i64)), ("t", Value::Str(&text(sample)))];
        large.push(b"", &row, sample).unwrap();
    }
    large.finish().unwrap();
    let folder = root.path().join("large");
    let path = folder.join("metadata.arrow");
    assert!(std::fs::metadata(&path).unwrap().len() > 8 << 20);
    let dataset = open(&folder);
    let in_memory = |dataset: &Dataset| dataset.set().visit(0, |_, _| ()).unwrap();
    let few: Vec<u64> = (0..100).map(|n| n * 1009 % ROWS).collect();
    let before = dataset.metadata(&few, &few).unwrap();
    assert!(!in_memory(&dataset), "a few rows are not worth all of them");
    let many: Vec<u64> = (0..ROWS / 64).map(|n| n * 31).collect();
    dataset.metadata(&many, &many).unwrap();
    assert!(in_memory(&dataset));
    assert_eq!(dataset.metadata(&few, &few).unwrap(), before);
    // From here on the file does not matter.
    std::fs::write(&path, b"").unwrap();
    let all: Vec<u64> = (0..ROWS).collect();
    let batch = dataset.metadata(&all, &all).unwrap();
    assert!(batch.column(0).as_primitive::<Int64Type>().values().iter().copied().eq(0..ROWS as i64));
    assert!(batch.column(1).as_string::<i64>().iter().zip(0..).all(|(t, n)| t == Some(&text(n))));
    let exported: usize = dataset.export().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(exported as u64, ROWS);
}

#[test]
fn metadata_too_large_for_memory_is_read_row_by_row() {
    let root = tempfile::tempdir().unwrap();
    let options = |name: &str| write_options(root.path(), name);
    let text = |sample: u64| format!("{sample:0>100}");
    let mut large = Writer::begin(options("large"), Arc::new(Local)).unwrap();
    for sample in 0..90_000 {
        large
            .push(b"", &[("id", Value::Int(sample as i64)), ("t", Value::Str(&text(sample)))], sample)
            .unwrap();
    }
    large.finish().unwrap();
    let mut small = Writer::begin(options("small"), Arc::new(Local)).unwrap();
    for sample in 0..3 {
        small.push(b"", &[("id", Value::Int(-1)), ("t", Value::Null)], sample).unwrap();
    }
    small.finish().unwrap();
    let folders = [root.path().join("small"), root.path().join("large")];
    assert!(std::fs::metadata(folders[1].join("metadata.arrow")).unwrap().len() > 8 << 20);
    let dataset = Dataset::open(&folders, ReadOptions::default()).unwrap();
    let rows = [90_002, 2, 3, 4, 65_538, 65_539, 3, 1];
    let batch = dataset.metadata(&rows, &rows).unwrap();
    let found: Vec<_> = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(found, [89_999, -1, 0, 1, 65_535, 65_536, 0, -1]);
    let texts: Vec<_> = batch.column(1).as_string::<i64>().iter().map(|t| t.map(str::to_owned)).collect();
    let expected = found.iter().map(|id| u64::try_from(*id).ok().map(text)).collect::<Vec<_>>();
    assert_eq!(texts, expected);
    assert_eq!(dataset.metadata(&[90_003], &[90_003]).unwrap_err().kind(), ErrorKind::IndexOutOfRange);
    let path = folders[1].join("metadata.arrow");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let all: Vec<u64> = (3..90_003).collect();
    assert_eq!(dataset.metadata(&all, &all).unwrap_err().kind(), ErrorKind::MetadataChecksum);
    std::fs::File::options()
        .write(true)
        .open(folders[1].join("metadata.arrow"))
        .unwrap()
        .set_len(5000)
        .unwrap();
    assert_eq!(dataset.metadata(&[50_000], &[50_000]).unwrap_err().kind(), ErrorKind::UnexpectedEnd);
}
