//! Whole cache folders: edits of the files of a golden cache, with checksums left wrong or made right.
#![no_main]

use std::sync::LazyLock;

use datasetrt_core::format::compression::Compression;
use datasetrt_core::format::manifest::Manifest;
use datasetrt_fuzz::{Files, GOLDEN, Whole, golden_folder, read, scratch, survey, whole};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    cache: u8,
    other: u8,
    edits: Vec<Edit>,
    said: Vec<Saying>,
    seal: bool,
    seal_records: bool,
}

#[derive(Arbitrary, Debug)]
enum Edit {
    Flip { file: u8, bit: u32 },
    Set { file: u8, at: u16, bytes: Vec<u8> },
    SetWord { file: u8, at: u16, word: u64 },
    SetRow { row: u8, end: u64 },
    MoveRow { row: u8, by: i8 },
    SwapRows { first: u8, second: u8 },
    Cut { file: u8, at: u16 },
    Insert { file: u8, at: u16, bytes: Vec<u8> },
    Append { file: u8, bytes: Vec<u8> },
    Swap { first: u8, second: u8 },
    TakeFromOther { file: u8 },
    Remove { file: u8 },
}

/// What a forged manifest says; only with right checksums.
#[derive(Arbitrary, Debug)]
enum Saying {
    PayloadBytes(u64),
    SampleCount(u64),
    ShardSamples { shard: u8, samples: u64 },
    DropShard,
    RepeatShard,
    Method(u8),
    RecordKey(u64),
    Name(String),
    Column { name: String, ty: u8, nulls: u64 },
    DropColumn,
    NullCount { column: u8, nulls: u64 },
    Dictionary(Vec<u8>),
}

struct Golden {
    files: Files,
    manifest: Manifest,
    whole: Whole,
}

static CASES: LazyLock<(tempfile::TempDir, Vec<Golden>)> = LazyLock::new(|| {
    let case = |name: &&str| {
        let folder = golden_folder(name);
        let files = Files::load(&folder);
        let (manifest, _) = Manifest::decode(&files.0["manifest.json"]).expect("golden");
        Golden { files, manifest, whole: whole(&folder) }
    };
    (scratch(), GOLDEN.iter().map(case).collect())
});

fn name_of(files: &Files, file: u8) -> Option<String> {
    files.0.keys().nth(usize::from(file) % files.0.len().max(1)).cloned()
}

fn edit(files: &mut Files, edit: &Edit, other: &Files) -> Option<()> {
    match edit {
        Edit::Flip { file, bit } => {
            let bytes = files.0.get_mut(&name_of(files, *file)?)?;
            let bit = *bit as usize % (bytes.len() * 8).max(1);
            *bytes.get_mut(bit / 8)? ^= 1 << (bit % 8);
        }
        Edit::Set { file, at, bytes } => {
            let found = files.0.get_mut(&name_of(files, *file)?)?;
            found.iter_mut().skip(usize::from(*at)).zip(bytes).for_each(|(old, new)| *old = *new);
        }
        Edit::SetWord { file, at, word } => {
            let found = files.0.get_mut(&name_of(files, *file)?)?;
            let place = found.iter_mut().skip(usize::from(*at));
            place.zip(word.to_le_bytes()).for_each(|(old, new)| *old = new);
        }
        Edit::SetRow { row, end } => set_row(files, *row, |_| *end)?,
        Edit::MoveRow { row, by } => set_row(files, *row, |end| end.wrapping_add_signed(i64::from(*by)))?,
        Edit::SwapRows { first, second } => {
            let mut one = 0;
            set_row(files, *first, |end| {
                one = end;
                end
            })?;
            let mut two = 0;
            set_row(files, *second, |end| {
                two = end;
                one
            })?;
            set_row(files, *first, |_| two)?;
        }
        Edit::Cut { file, at } => files.0.get_mut(&name_of(files, *file)?)?.truncate(usize::from(*at)),
        Edit::Insert { file, at, bytes } => {
            let found = files.0.get_mut(&name_of(files, *file)?)?;
            let at = usize::from(*at).min(found.len());
            found.splice(at..at, bytes.iter().copied());
        }
        Edit::Append { file, bytes } => files.0.get_mut(&name_of(files, *file)?)?.extend(bytes),
        Edit::Swap { first, second } => {
            let (first, second) = (name_of(files, *first)?, name_of(files, *second)?);
            let one = files.0.get(&first)?.clone();
            let two = files.0.insert(second, one)?;
            files.0.insert(first, two);
        }
        Edit::TakeFromOther { file } => {
            let name = name_of(files, *file)?;
            files.0.insert(name.clone(), other.0.get(&name)?.clone());
        }
        Edit::Remove { file } => drop(files.0.remove(&name_of(files, *file)?)?),
    }
    Some(())
}

fn set_row(files: &mut Files, row: u8, change: impl FnOnce(u64) -> u64) -> Option<()> {
    let rows = files.0.get_mut("index.bin")?.get_mut(32..)?;
    let count = rows.len() / 8;
    let place = rows.chunks_exact_mut(8).nth(usize::from(row) % count.max(1))?;
    let old = u64::from_le_bytes((&*place).try_into().ok()?);
    place.copy_from_slice(&change(old).to_le_bytes());
    Some(())
}

fn say(manifest: &mut Manifest, saying: &Saying) -> Option<()> {
    use datasetrt_core::format::manifest::Column;
    match saying {
        // Bounded: memory for a stated size is the reader's right, the machine's limit is not the question here.
        Saying::PayloadBytes(bytes) => manifest.payload_bytes = bytes % (1 << 24),
        Saying::SampleCount(count) => manifest.sample_count = *count,
        Saying::ShardSamples { shard, samples } => {
            let count = manifest.shards.len();
            manifest.shards.get_mut(usize::from(*shard) % count.max(1))?.samples = *samples;
        }
        Saying::DropShard => drop(manifest.shards.pop()?),
        Saying::RepeatShard => manifest.shards.push(*manifest.shards.last()?),
        Saying::Method(method) => {
            manifest.compression = match method % 4 {
                0 => Compression::None,
                1 => Compression::Lz4,
                2 => Compression::Zstd { level: 3 },
                _ => Compression::ZstdDictionary { level: 3 },
            }
        }
        Saying::RecordKey(key) => manifest.record_key = *key,
        Saying::Name(name) => manifest.name.clone_from(name),
        Saying::Column { name, ty, nulls } => {
            let type_name = ["bool", "int64", "float64", "string", "other"][usize::from(*ty) % 5].to_owned();
            manifest.columns.push(Column { name: name.clone(), type_name, null_count: *nulls });
        }
        Saying::DropColumn => drop(manifest.columns.pop()?),
        Saying::Dictionary(bytes) => manifest.dictionary.clone_from(bytes),
        Saying::NullCount { column, nulls } => {
            let count = manifest.columns.len();
            manifest.columns.get_mut(usize::from(*column) % count.max(1))?.null_count = *nulls;
        }
    }
    Some(())
}

fuzz_target!(|input: Input| {
    let (root, cases) = &*CASES;
    let golden = &cases[usize::from(input.cache) % cases.len()];
    let other = &cases[usize::from(input.other) % cases.len()];
    let mut files = golden.files.clone();
    for change in input.edits.iter().take(16) {
        let _ = edit(&mut files, change, &other.files);
    }
    let sealed = input.seal && ["index.bin", "metadata.arrow"].iter().all(|name| files.0.contains_key(*name));
    if sealed {
        let mut manifest = golden.manifest.clone();
        for saying in input.said.iter().take(8) {
            let _ = say(&mut manifest, saying);
        }
        files.seal(manifest, input.seal_records);
    }
    let folder = root.path().join("cache");
    files.store(&folder);
    let told = survey(&folder);
    let found = match read(&folder, 2000) {
        Ok(found) => found,
        Err(error) => {
            let same = |e: &datasetrt_core::Error| e.kind() == error.kind() && e.path() == error.path();
            assert!(told.iter().any(same), "{told:?} without {error:?}");
            assert!(!error.message().is_empty() && !error.message().contains('\n'));
            assert!(error.path().is_some(), "an error without its file: {error:?}");
            assert_ne!(files, golden.files, "a sound cache is refused: {error}");
            return;
        }
    };
    assert_eq!(told, found.problems);
    let broken = found.payloads.iter().any(Result::is_err) || found.metadata.is_err();
    assert!(!broken || !found.problems.is_empty(), "verify calls sound what cannot be read: {found:?}");
    if !sealed {
        // Nothing that is delivered may differ, and nothing that differs may be called sound.
        for (found, expected) in found.payloads.iter().zip(&golden.whole.payloads) {
            assert!(found.as_ref().is_ok_and(|found| found == expected) || found.is_err());
        }
        assert!(
            found.metadata.as_ref().is_ok_and(|m| *m == golden.whole.metadata) || found.metadata.is_err()
        );
        assert_eq!(found.problems.is_empty(), files == golden.files, "{:?}", found.problems);
    }
});
