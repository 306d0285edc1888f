//! Damages small caches of every kind in every place, and looks at what becomes of it.
//!
//! Each case is opened, verified and read in every way. Whatever is delivered must be what was written;
//! whatever differs from what was written must be told, with the right kind and place, by opening or by
//! `verify`; and nothing may allocate more than the files account for. The sweeps take a fixed sample of the
//! cases; with `DATASETRT_DAMAGE=full` all of them (`nox -s damage`, optimised: some minutes).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a failure is its message")]

mod allocation;
mod caches;
mod expected;
mod reading;
mod recipes;
mod replaced;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use datasetrt_core::format::checksum::FileHasher;
use datasetrt_core::format::manifest::FileEntry;
use datasetrt_core::format::shard::HEADER_BYTES;
use datasetrt_core::{Error, ErrorKind};

use allocation::{Counting, peak};
use caches::{Copy, Sound, caches, swap_rows};
use expected::{Outcome, check_flip};
use reading::{check_error, look, open, survey};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static CACHES: LazyLock<Vec<Sound>> = LazyLock::new(caches);

/// The most that opening and reading a cache may hold, in terms of its files: some buffers of their size,
/// and a fixed part for what does not depend on them.
fn allowed(files: usize) -> usize {
    256 * 1024 + 16 * files
}

/// Every case in full, else every so many; a prime, so that all bits and offsets come up.
fn stride(sampled: usize) -> usize {
    if std::env::var_os("DATASETRT_DAMAGE").is_some_and(|value| value == "full") { 1 } else { sampled }
}

/// Numbers of cases by where the damage was and how it was told.
#[derive(Default)]
struct Tally {
    cases: BTreeMap<(String, &'static str), u64>,
    peak: usize,
}

impl Tally {
    fn add(&mut self, part: &str, told: &'static str) {
        *self.cases.entry((part.to_owned(), told)).or_default() += 1;
    }

    /// Prints the numbers; there must be some.
    fn report(&self, sweep: &str) {
        let total: u64 = self.cases.values().sum();
        assert!(total > 0, "{sweep}: no case");
        println!("{sweep}: {total} cases, at most {} bytes allocated", self.peak);
        for ((part, told), count) in &self.cases {
            println!("{sweep}: {part}: {told}: {count}");
        }
    }

    /// Opens and reads the copy. Gives what was wrong, after the rules that hold for all damage.
    fn look(&mut self, copy: &Copy<'_>, case: &dyn Fn() -> String, changed: bool) -> Outcome {
        let (outcome, held) = peak(|| match open(&copy.folder) {
            Ok(dataset) => Outcome::Opened(look(&dataset, &copy.sound.whole)),
            Err(error) => Outcome::Refused(error),
        });
        self.peak = self.peak.max(held);
        assert!(held <= allowed(copy.sound.total_bytes()), "{}: {held} bytes allocated", case());
        let (told, held) = peak(|| survey(&copy.folder));
        self.peak = self.peak.max(held);
        assert!(held <= allowed(copy.sound.total_bytes()), "{}: {held} bytes allocated", case());
        match &outcome {
            Outcome::Refused(error) => {
                check_error(error);
                assert!(changed, "{}: a sound cache is refused: {error:?}", case());
                let same = |e: &Error| e.kind() == error.kind() && e.path() == error.path();
                assert!(told.iter().any(same), "{}: {told:?} without {error:?}", case());
            }
            Outcome::Opened(wrong) => {
                assert_eq!(told, wrong.problems, "{}", case());
                assert_eq!(changed, !wrong.problems.is_empty(), "{}: {wrong:?}", case());
                assert!(wrong.metadata.is_none(), "{}: {wrong:?}", case());
                // Under a dataset that was open before it may differ: what it has open is checked already.
                assert_eq!(wrong.samples.is_empty(), wrong.batch.is_none(), "{}: {wrong:?}", case());
            }
        }
        outcome
    }

    /// The same without a view of what exactly is expected.
    fn look_and_count(&mut self, copy: &Copy<'_>, what: &str, case: &dyn Fn() -> String, changed: bool) {
        let told = self.look(copy, case, changed).first().map_or("harmless", |e: &Error| e.kind().code());
        self.add(what, told);
    }
}

#[test]
fn flip_every_bit() {
    let (mut tally, stride, mut number) = (Tally::default(), stride(1009), 0usize);
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        for (file, bytes) in &sound.files {
            for bit in 0..bytes.len() * 8 {
                number += 1;
                if number % stride != 0 {
                    continue;
                }
                let at = bit / 8;
                copy.set(file, at as u64, bytes[at] ^ (1 << (bit % 8)));
                let case = || format!("{}/{file} bit {bit}", sound.name);
                let outcome = tally.look(&copy, &case, true);
                let part = sound.part(file, at as u64);
                let told = check_flip(&copy, part, &outcome).unwrap_or_else(|why| {
                    panic!("{}: {why}: {outcome:?}", case());
                });
                tally.add(expected::name(part), told.code());
                // Whether it opens or not: no other file is blamed.
                let blamed = survey(&copy.folder);
                assert!(blamed.iter().all(|e| e.path() == Some(&copy.path(file))), "{}: {blamed:?}", case());
                copy.set(file, at as u64, bytes[at]);
            }
        }
    }
    tally.report("flip");
}

#[test]
fn cut_everywhere() {
    let (mut tally, stride, mut number) = (Tally::default(), stride(211), 0usize);
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        for (file, bytes) in &sound.files {
            for length in (0..bytes.len()).rev() {
                number += 1;
                if number % stride != 0 {
                    continue;
                }
                copy.write(file, &bytes[..length]);
                let case = || format!("{}/{file} cut at {length}", sound.name);
                let outcome = tally.look(&copy, &case, true);
                let told = expected::check_size(&copy, file, &outcome).unwrap_or_else(|why| {
                    panic!("{}: {why}: {outcome:?}", case());
                });
                tally.add(file_kind(file), told.code());
            }
            copy.mend_file(file);
        }
    }
    tally.report("cut");
}

#[test]
fn append_to_every_file() {
    let mut tally = Tally::default();
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        for (file, bytes) in &sound.files {
            for more in [&b"\0"[..], b"\n", b"}", &[0xff; 64], &[0; 4096], bytes] {
                copy.write(file, &[bytes, more].concat());
                let case = || format!("{}/{file} with {} more bytes", sound.name, more.len());
                let outcome = tally.look(&copy, &case, true);
                let told = expected::check_size(&copy, file, &outcome).unwrap_or_else(|why| {
                    panic!("{}: {why}: {outcome:?}", case());
                });
                tally.add(file_kind(file), told.code());
            }
            copy.mend_file(file);
        }
    }
    tally.report("append");
}

/// Damage in every file at once, with and without a manifest: whatever is wrong first, the rest is told as well.
#[test]
fn damage_in_every_file() {
    let mut tally = Tally::default();
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        for manifest in [false, true] {
            for (file, bytes) in sound.files.iter().filter(|(file, _)| manifest || *file != "manifest.json") {
                // In the middle, and of the index in its header: nothing else of it is known without a manifest.
                let at = if file == "index.bin" { 9 } else { bytes.len() / 2 };
                copy.set(file, at as u64, bytes[at] ^ 1);
            }
            let told = survey(&copy.folder);
            for file in sound.files.keys().filter(|file| manifest || *file != "manifest.json") {
                let blamed = told.iter().any(|e| e.path() == Some(&copy.path(file)));
                // Nothing but the manifest knows what metadata were written.
                let known = !(manifest && file == "metadata.arrow");
                assert_eq!(blamed, known, "{}/{file}: {told:?}", sound.name);
                tally.add(file_kind(file), if blamed { "told" } else { "unknown" });
            }
            copy.mend();
        }
    }
    tally.report("every file");
}

/// Shards that are gone, foreign, or in each other's place, where no manifest says which they were.
#[test]
fn shards_without_a_manifest() {
    let mut tally = Tally::default();
    let blamed = |copy: &Copy<'_>| -> Vec<(ErrorKind, PathBuf)> {
        let told = survey(&copy.folder).into_iter().skip(1);
        told.map(|e| (e.kind(), e.path().unwrap().strip_prefix(&copy.folder).unwrap().to_owned())).collect()
    };
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        std::fs::remove_file(copy.path("manifest.json")).unwrap();
        let shard = |ordinal: usize| format!("shards/{ordinal:06}.bin");
        let missing = |ordinal: usize| (ErrorKind::MissingFile, PathBuf::from(shard(ordinal)));
        let mismatch = |ordinal: usize| (ErrorKind::ShardMismatch, PathBuf::from(shard(ordinal)));
        assert_eq!(blamed(&copy), [], "{}", sound.name);
        let count = sound.manifest.shards.len();
        for ordinal in 0..count {
            let this = shard(ordinal);
            // The last one, too: the index knows how many samples there were.
            std::fs::remove_file(copy.path(&this)).unwrap();
            assert_eq!(blamed(&copy), [missing(ordinal)], "{}", sound.name);
            tally.add("shard", "gone");
            let other = CACHES.iter().find(|other| other.manifest.record_key != sound.manifest.record_key);
            copy.write(&this, &other.unwrap().files["shards/000000.bin"]);
            // Of two shards neither is known to be the foreign one; with more, most of them decide.
            if count > 2 {
                let told = blamed(&copy);
                assert!(told.contains(&mismatch(ordinal)), "{}: {told:?}", sound.name);
                assert!(told.iter().all(|(_, path)| path.as_os_str() == &*this), "{}: {told:?}", sound.name);
                tally.add("shard", "foreign");
            }
            copy.mend_file(&this);
            // A damaged one is one all the same: what is missing before it is told.
            if ordinal + 1 < count {
                std::fs::remove_file(copy.path(&this)).unwrap();
                for late in ordinal + 1..count {
                    copy.write(&shard(late), b"");
                }
                let told: Vec<_> = (ordinal + 1..count).map(mismatch).collect();
                assert_eq!(blamed(&copy), [vec![missing(ordinal)], told].concat(), "{}", sound.name);
                tally.add("shard", "gone before damaged ones");
                (ordinal..count).for_each(|late| copy.mend_file(&shard(late)));
            }
            if ordinal + 1 < count {
                let next = shard(ordinal + 1);
                copy.write(&this, &sound.files[&next]);
                copy.write(&next, &sound.files[&this]);
                assert_eq!(blamed(&copy), [mismatch(ordinal), mismatch(ordinal + 1)], "{}", sound.name);
                tally.add("shard", "swapped");
                copy.mend_file(&this);
                copy.mend_file(&next);
            }
        }
        for ordinal in 0..count {
            std::fs::remove_file(copy.path(&shard(ordinal))).unwrap();
        }
        assert_eq!(blamed(&copy), [missing(0)], "{}", sound.name);
        // Beyond all samples: it is judged by itself, and nothing is missing before it.
        copy.mend();
        std::fs::remove_file(copy.path("manifest.json")).unwrap();
        let stray = format!("shards/{}.bin", u64::MAX);
        copy.write(&stray, b"x");
        assert_eq!(blamed(&copy), [(ErrorKind::ShardMismatch, PathBuf::from(stray))], "{}", sound.name);
    }
    tally.report("without a manifest");
}

/// A flip in the very words that say whose the manifest is hides nothing else.
#[test]
fn a_manifest_that_seems_to_be_another_formats() {
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        let manifest = String::from_utf8(sound.files["manifest.json"].clone()).unwrap();
        let (word, version) = (("datasetrt-cache", "datasetru-cache"), ("\"version\": 1", "\"version\": 3"));
        for ((from, to), kind) in [(word, ErrorKind::NotACache), (version, ErrorKind::UnsupportedVersion)] {
            copy.write("manifest.json", manifest.replace(from, to).as_bytes());
            copy.set("shards/000000.bin", 70, !sound.files["shards/000000.bin"][70]);
            let kinds: Vec<_> = survey(&copy.folder).iter().map(Error::kind).collect();
            assert_eq!(kinds, [kind, ErrorKind::ShardDigest], "{}", sound.name);
            // Where nothing of ours is beside it, it is what it says.
            std::fs::remove_dir_all(copy.path("shards")).unwrap();
            let kinds: Vec<_> = survey(&copy.folder).iter().map(Error::kind).collect();
            assert_eq!(kinds, [kind, ErrorKind::MissingFile], "{}", sound.name);
            copy.write("index.bin", b"");
            let kinds: Vec<_> = survey(&copy.folder).iter().map(Error::kind).collect();
            assert_eq!(kinds, [kind], "{}", sound.name);
            copy.mend();
        }
    }
}

/// The digest that is told is that of the file, also where records cannot be found in it.
#[test]
fn a_forged_index_is_no_reason_to_blame_a_shard() {
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        let mut index = sound.files["index.bin"].clone();
        index[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        let mut hasher = FileHasher::default();
        hasher.update(&index);
        let mut manifest = sound.manifest.clone();
        manifest.index = FileEntry { bytes: index.len() as u64, xxh3: hasher.finish() };
        copy.write("index.bin", &index);
        copy.write("manifest.json", &manifest.encode().unwrap().0);
        let told = survey(&copy.folder);
        assert!(told.iter().any(|e| e.kind() == ErrorKind::IndexChecksum), "{}: {told:?}", sound.name);
        assert!(told.iter().all(|e| e.kind() != ErrorKind::ShardDigest), "{}: {told:?}", sound.name);
    }
}

/// A dataset that was open before: its index is in memory, its metadata perhaps, its shards perhaps.
#[test]
fn damage_under_an_open_dataset() {
    let (mut tally, stride, mut number) = (Tally::default(), stride(1511), 0usize);
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        let warm = open(&copy.folder).unwrap();
        look(&warm, &sound.whole);
        for (file, bytes) in &sound.files {
            for bit in 0..bytes.len() * 9 {
                number += 1;
                if number % stride != 0 {
                    continue;
                }
                // The last ninth of the cases are cuts.
                let cut = bit.checked_sub(bytes.len() * 8);
                let cold = open(&copy.folder).unwrap();
                let open_file = std::fs::OpenOptions::new().write(true).open(copy.path(file)).unwrap();
                match cut {
                    Some(length) => open_file.set_len(length as u64).unwrap(),
                    None => copy.set(file, (bit / 8) as u64, bytes[bit / 8] ^ (1 << (bit % 8))),
                }
                for dataset in [&warm, &cold] {
                    let (wrong, held) = peak(|| look(dataset, &sound.whole));
                    assert!(held <= allowed(sound.total_bytes()), "{held} bytes allocated");
                    assert!(!wrong.problems.is_empty(), "{}/{file} case {bit} is called sound", sound.name);
                    let told = wrong.problems.first().map_or("none", |e| e.kind().code());
                    tally.add(file_kind(file), told);
                    tally.peak = tally.peak.max(held);
                }
                // In place: the open datasets hold this very file.
                std::os::unix::fs::FileExt::write_all_at(&open_file, bytes, 0).unwrap();
            }
        }
        let wrong = look(&warm, &sound.whole);
        assert!(wrong.problems.is_empty(), "{wrong:?}");
    }
    tally.report("under an open dataset");
}

/// Records, one over the other and two in each other's place.
#[test]
fn swap_records() {
    let mut tally = Tally::default();
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        for shard in 0..sound.manifest.shards.len() as u64 {
            let file = format!("shards/{shard:06}.bin");
            let bytes = &sound.files[&file];
            let records: Vec<_> = sound.records(shard).collect();
            for (number, (_, start, end)) in records.iter().enumerate() {
                for (_, other, other_end) in records.iter().skip(number + 1) {
                    let first = *start as usize..*end as usize;
                    let second = *other as usize..*other_end as usize;
                    let between = &bytes[first.end..second.start];
                    let parts = [&bytes[..first.start], &bytes[second.clone()], between];
                    let rest = [&bytes[first.clone()], &bytes[second.end..]];
                    let swapped = [parts.concat(), rest.concat()].concat();
                    let changed = swapped != *bytes;
                    copy.write(&file, &swapped);
                    let case = || format!("{}/{file} records {first:?} and {second:?}", sound.name);
                    let outcome = tally.look(&copy, &case, changed);
                    if let Outcome::Opened(wrong) = &outcome {
                        // The records checked alone: both are told, and what is told is a record or the digest.
                        let records = wrong.problems.iter().filter(|e| e.sample_id().is_some()).count();
                        assert!(!changed || records >= 2, "{}: {wrong:?}", case());
                    }
                    tally.add("records", outcome.first().map_or("harmless", |e| e.kind().code()));
                    if first.len() == second.len() {
                        let mut copied = bytes.clone();
                        copied.copy_within(first.clone(), second.start);
                        copy.write(&file, &copied);
                        tally.look_and_count(&copy, "one over another", &case, copied != *bytes);
                    }
                }
            }
            copy.mend_file(&file);
        }
    }
    tally.report("swap records");
}

/// Rows of the index: as they are, and with a manifest that vouches for the swap.
#[test]
fn swap_index_rows() {
    let (mut tally, stride, mut pair) = (Tally::default(), stride(13), 0usize);
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        let index = &sound.files["index.bin"];
        for first in 0..sound.rows.len() {
            for second in first + 1..sound.rows.len() {
                pair += 1;
                if pair % stride != 0 {
                    continue;
                }
                let swapped = swap_rows(index, first, second);
                let changed = swapped != *index;
                let case = || format!("{} index rows {first} and {second}", sound.name);
                copy.write("index.bin", &swapped);
                tally.look_and_count(&copy, "index rows", &case, changed);
                let mut hasher = FileHasher::default();
                hasher.update(&swapped);
                let mut manifest = sound.manifest.clone();
                manifest.index = FileEntry { bytes: swapped.len() as u64, xxh3: hasher.finish() };
                copy.write("manifest.json", &manifest.encode().unwrap().0);
                tally.look_and_count(&copy, "index rows, vouched for", &case, changed);
                copy.mend_file("manifest.json");
            }
        }
    }
    tally.report("swap index rows");
}

#[test]
fn swap_files() {
    let (mut tally, stride, mut number) = (Tally::default(), stride(7), 0usize);
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        let files: Vec<_> = sound.files.keys().collect();
        for (place, first) in files.iter().enumerate() {
            for second in files.iter().skip(place + 1) {
                copy.write(first, &sound.files[*second]);
                copy.write(second, &sound.files[*first]);
                let case = || format!("{} {first} and {second} swapped", sound.name);
                let changed = sound.files[*first] != sound.files[*second];
                tally.look_and_count(&copy, "two files of a cache", &case, changed);
                copy.mend_file(first);
                copy.mend_file(second);
            }
        }
        for other in CACHES.iter().filter(|other| other.name != sound.name) {
            for (file, bytes) in &sound.files {
                for (foreign, theirs) in &other.files {
                    number += 1;
                    if number % stride != 0 && file != foreign {
                        continue;
                    }
                    copy.write(file, theirs);
                    let case = || format!("{}/{file} is {}/{foreign}", sound.name, other.name);
                    tally.look_and_count(&copy, "a file of another cache", &case, theirs != bytes);
                }
                copy.mend_file(file);
            }
        }
    }
    tally.report("swap files");
}

/// Lengths in a record whose checksum fits them: nothing of that size is allocated beyond what the manifest
/// allows, and what does not decompress to it is told.
#[test]
fn forged_lengths() {
    use datasetrt_core::format::checksum::{Identity, record_checksum};
    let mut tally = Tally::default();
    for sound in CACHES.iter().filter(|s| s.manifest.compression.tag() != 0) {
        let copy = Copy::new(sound);
        let bytes = &sound.files["shards/000000.bin"];
        let (sample, start, end) = sound.records(0).find(|(_, s, _)| bytes[*s as usize + 8] != 0).unwrap();
        let (start, end) = (start as usize, end as usize);
        let stated = u64::from_le_bytes(bytes[start + 9..start + 17].try_into().unwrap());
        let most = sound.manifest.payload_bytes;
        for length in [0, 1, stated - 1, stated + 1, most, most + 1, 1 << 32, 1 << 40, 1 << 62, u64::MAX] {
            let mut forged = bytes.clone();
            let stored = &bytes[start + 17..end];
            let identity = Identity {
                record_key: sound.manifest.record_key,
                sample_id: sample,
                tag: bytes[start + 8],
                payload_bytes: length,
                stored_bytes: stored.len() as u64,
            };
            forged[start + 9..start + 17].copy_from_slice(&length.to_le_bytes());
            let checksum = record_checksum(identity, stored);
            forged[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
            copy.write("shards/000000.bin", &forged);
            let case = || format!("{} states {length} bytes", sound.name);
            let outcome = tally.look(&copy, &case, true);
            let Outcome::Opened(wrong) = outcome else { panic!("{}: {outcome:?}", case()) };
            let told = wrong.samples.first().map(Error::kind);
            let fit = [ErrorKind::Decompression, ErrorKind::BadRecord];
            assert!(told.is_some_and(|kind| fit.contains(&kind)), "{}: {wrong:?}", case());
            assert_eq!(told == Some(ErrorKind::BadRecord), length > most, "{}: {wrong:?}", case());
            tally.add("length", wrong.samples[0].kind().code());
        }
    }
    tally.report("forged lengths");
}

fn file_kind(file: &str) -> &str {
    if file.starts_with("shards/") { "shard" } else { file }
}

#[test]
fn the_parts_of_a_file_are_found() {
    for sound in CACHES.iter() {
        let first = sound.part("shards/000000.bin", HEADER_BYTES as u64);
        let start = HEADER_BYTES as u64;
        assert_eq!(first, caches::Part::Record { shard: 0, sample: 0, start });
    }
}
