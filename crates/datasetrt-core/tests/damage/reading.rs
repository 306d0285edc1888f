//! Reads a cache in every way that the engine has, and compares with what was written.

use std::path::Path;

use datasetrt_core::metadata::write_segment;
use datasetrt_core::read::{Arrangement, Dataset, Places, Progress, ReadOptions, Survey};
use datasetrt_core::{Error, ErrorKind, Result};

/// Everything that a sound cache delivers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) payloads: Vec<Vec<u8>>,
    /// As bytes, equal where every cell is, NaN included.
    pub(crate) metadata: Vec<u8>,
}

/// What was wrong with a cache that opened. What it delivered was right.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    /// What `verify` told.
    pub(crate) problems: Vec<Error>,
    /// Samples that could not be read one by one.
    pub(crate) samples: Vec<Error>,
    /// Why all samples could not be read together.
    pub(crate) batch: Option<Error>,
    /// Why the metadata could not be read.
    pub(crate) metadata: Option<Error>,
}

struct Silent;

impl Progress for Silent {
    fn advance(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn open(folder: &Path) -> Result<Dataset> {
    // Two slots: shards are closed and opened again on the way.
    Dataset::open(&[folder], ReadOptions { max_open_shards: 2 })
}

impl Whole {
    pub(crate) fn of(folder: &Path) -> Self {
        let dataset = open(folder).unwrap();
        let payloads = (0..dataset.len()).map(|row| dataset.read_payload(row).unwrap()).collect();
        let whole = Whole { payloads, metadata: metadata(&dataset).unwrap() };
        let wrong = look(&dataset, &whole);
        assert!(wrong.problems.is_empty() && wrong.samples.is_empty() && wrong.batch.is_none(), "{wrong:?}");
        whole
    }
}

/// Reads everything; what is delivered must be what was written.
///
/// Panics on any other byte, and on an error that is a bug of the engine.
pub(crate) fn look(dataset: &Dataset, whole: &Whole) -> Wrong {
    let mut wrong = Wrong::default();
    assert_eq!(dataset.len(), whole.payloads.len() as u64, "another number of samples");
    for cache in dataset.caches().iter() {
        wrong.problems.extend(cache.verify(&mut Silent).unwrap());
    }
    for (row, expected) in (0..).zip(&whole.payloads) {
        match dataset.read_payload(row) {
            Ok(found) => assert_eq!(&found, expected, "sample {row} is wrong"),
            Err(error) => wrong.samples.push(error),
        }
    }
    let rows: Vec<u64> = (0..dataset.len()).collect();
    match dataset.read_payloads(&rows, &Arrangement::default(), &mut || Ok(())) {
        Ok(found) => {
            let Places::Rows(starts) = found.places else { panic!("columns where none were asked for") };
            for ((start, length), expected) in starts.iter().zip(&found.lengths).zip(&whole.payloads) {
                assert_eq!(&found.buffer.as_slice()[*start..start + length], expected, "a batch is wrong");
            }
        }
        Err(failure) => wrong.batch = Some(failure.error),
    }
    match metadata(dataset) {
        Ok(found) => assert!(found == whole.metadata, "metadata is wrong"),
        Err(error) => wrong.metadata = Some(error),
    }
    let all = wrong.problems.iter().chain(&wrong.samples).chain(&wrong.batch).chain(&wrong.metadata);
    all.for_each(check_error);
    wrong
}

/// What a check tells that needs no cache that opens.
pub(crate) fn survey(folder: &Path) -> Vec<Error> {
    let told = match Survey::of(folder) {
        Ok(survey) => survey.verify(&mut Silent).unwrap(),
        Err(error) => vec![error],
    };
    told.iter().for_each(check_error);
    told
}

/// Rules for every error about a cache: one line, a file, and no bug.
pub(crate) fn check_error(error: &Error) {
    assert!(!error.message().is_empty() && !error.message().contains('\n'), "{error:?}");
    assert!(error.path().is_some(), "no file: {error:?}");
    assert_ne!(error.kind(), ErrorKind::Bug, "{error:?}");
}

fn metadata(dataset: &Dataset) -> Result<Vec<u8>> {
    let rows: Vec<u64> = (0..dataset.len()).collect();
    let stored = dataset.metadata(&rows, &dataset.globals(&rows)?)?;
    for batch in dataset.export()? {
        let batch = batch?;
        // `cache_id` and `sample_id` come before the stored columns, `weight` after them.
        for (exported, stored) in batch.columns().iter().skip(2).zip(stored.columns()) {
            assert!(exported.to_data() == stored.to_data(), "an exported column is wrong");
        }
    }
    let mut bytes = Vec::new();
    write_segment(&mut bytes, &[stored])?;
    Ok(bytes)
}
