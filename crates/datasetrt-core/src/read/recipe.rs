//! A dataset as a recipe: where its caches are, which they were, and the active table.
//!
//! A recipe holds no handle and no payload, so it travels to worker processes cheaply. It is made
//! and followed by the same release; it is no storage format.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use super::cache::ReadOptions;
use super::dataset::Dataset;
use crate::error::{Error, ErrorKind, Result};
use crate::exec;
use crate::format::checksum::hex;
use crate::format::compression::is_no_memory;
use crate::memory;
use crate::metadata::{Rows, Selection, bytes_of};

const VERSION: u32 = 1;
/// What messages call the lists of a selection.
const LISTS: &str = "a pickled dataset";
/// Rows and weights compress well; a recipe beyond this is not one of ours.
const MAX_BODY_BYTES: u64 = 1 << 40;

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    release: String,
    max_open_shards: usize,
    caches: Vec<CacheRef>,
    rows: RowsRef,
    weights: bool,
    body_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct CacheRef {
    folder: PathBuf,
    checksum: String,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum RowsRef {
    All,
    Range { start: u64, len: u64 },
    Explicit { len: u64 },
}

impl Dataset {
    /// The recipe of this dataset.
    ///
    /// # Errors
    ///
    /// `bug` if the table cannot be encoded, `io` if there is no memory for it.
    pub fn recipe(&self) -> Result<Vec<u8>> {
        let selection = self.selection();
        let body = body_of(selection)?;
        let rows = match &selection.rows {
            Rows::All => RowsRef::All,
            Rows::Range { start, len } => RowsRef::Range { start: *start, len: *len },
            Rows::Explicit(rows) => RowsRef::Explicit { len: rows.len() as u64 },
        };
        let reference = |cache: &Arc<super::Cache>| CacheRef {
            folder: cache.folder().to_owned(),
            checksum: hex(cache.checksum()),
        };
        let header = Header {
            version: VERSION,
            release: crate::RELEASE.to_owned(),
            max_open_shards: self.options().max_open_shards,
            caches: self.caches().iter().map(reference).collect(),
            rows,
            weights: selection.weights.is_some(),
            body_bytes: body.len() as u64,
        };
        let header = serde_json::to_vec(&header).map_err(|e| bug(&e))?;
        let mut recipe = (header.len() as u64).to_le_bytes().to_vec();
        recipe.extend_from_slice(&header);
        if !body.is_empty() {
            let frame = zstd::bulk::compress(&body, 3).map_err(|e| match is_no_memory(&e) {
                true => memory::refused(LISTS, body.len()),
                false => bug(&e),
            })?;
            recipe.try_reserve_exact(frame.len()).map_err(|_| memory::refused(LISTS, frame.len()))?;
            recipe.extend_from_slice(&frame);
        }
        Ok(recipe)
    }

    /// Opens the caches of a recipe again.
    ///
    /// # Errors
    ///
    /// `changed` if a cache is not the one that it was, `invalid-argument` for other bytes, or what opening says.
    pub fn from_recipe(recipe: &[u8]) -> Result<Self> {
        let (header, body) = parse(recipe)?;
        let folders: Vec<_> = header.caches.iter().map(|c| &c.folder).collect();
        let dataset = Dataset::open(&folders, ReadOptions { max_open_shards: header.max_open_shards })?;
        for (cache, expected) in dataset.caches().iter().zip(&header.caches) {
            let found = hex(cache.checksum());
            if found != expected.checksum {
                let message = format!(
                    "cache {} changed since the dataset was pickled ({} then, {} now); open it anew",
                    cache.folder().display(),
                    expected.checksum.get(..16).unwrap_or_default(),
                    found.get(..16).unwrap_or_default()
                );
                return Err(Error::new(ErrorKind::Changed, message).at_path(cache.folder()));
            }
        }
        let selection = selection(&header, &body, dataset.set().rows())?;
        dataset.restore(selection)
    }
}

/// The lists of a selection, one after the other: rows, weights, added columns.
fn body_of(selection: &Selection) -> Result<Vec<u8>> {
    let rows: &[u64] = if let Rows::Explicit(rows) = &selection.rows { rows } else { &[] };
    let weights = selection.weights.as_deref().map(Vec::as_slice).unwrap_or_default();
    let words = rows.len().saturating_add(weights.len());
    let mut body = memory::list(LISTS, words.saturating_mul(8))?;
    rows.iter().for_each(|row| body.extend_from_slice(&row.to_le_bytes()));
    weights.iter().for_each(|weight| body.extend_from_slice(&weight.to_le_bytes()));
    if let Some(extra) = &selection.extra {
        // Arrow makes a copy of its own before it writes one.
        memory::ask(LISTS, bytes_of(extra).saturating_mul(2).saturating_add(body.len()))?;
        let mut writer = StreamWriter::try_new(&mut body, &extra.schema()).map_err(|e| bug(&e))?;
        writer.write(extra).and_then(|()| writer.finish()).map_err(|e| bug(&e))?;
    }
    Ok(body)
}

fn parse(recipe: &[u8]) -> Result<(Header, Vec<u8>)> {
    let (length, rest) = recipe.split_first_chunk::<8>().ok_or_else(not_ours)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| not_ours())?;
    let (header, body) = rest.split_at_checked(length).ok_or_else(not_ours)?;
    let header: Header = serde_json::from_slice(header).map_err(|_| not_ours())?;
    if header.version != VERSION || header.body_bytes > MAX_BODY_BYTES {
        return Err(not_ours());
    }
    if header.body_bytes == 0 {
        return Ok((header, Vec::new()));
    }
    let body = unpack(body, header.body_bytes)?;
    Ok((header, body))
}

/// The frame itself states its length as well: a wrong one costs no memory.
fn unpack(frame: &[u8], bytes: u64) -> Result<Vec<u8>> {
    if zstd::zstd_safe::get_frame_content_size(frame).ok().flatten() != Some(bytes) {
        return Err(not_ours());
    }
    let length = usize::try_from(bytes).map_err(|_| not_ours())?;
    let mut body = memory::list(LISTS, length)?;
    let unpacked =
        zstd::bulk::Decompressor::new().and_then(|mut zstd| zstd.decompress_to_buffer(frame, &mut body));
    unpacked.map_err(|e| if is_no_memory(&e) { memory::refused(LISTS, length) } else { not_ours() })?;
    if body.len() == length { Ok(body) } else { Err(not_ours()) }
}

fn selection(header: &Header, body: &[u8], total: u64) -> Result<Selection> {
    let mut rest = body;
    let rows = match header.rows {
        RowsRef::All => Rows::All,
        RowsRef::Range { start, len } => Rows::Range { start, len },
        RowsRef::Explicit { len } => Rows::Explicit(Arc::new(words(&mut rest, len, u64::from_le_bytes)?)),
    };
    let len = rows.len(total);
    let weights =
        if header.weights { Some(Arc::new(words(&mut rest, len, f64::from_le_bytes)?)) } else { None };
    let extra = if rest.is_empty() { None } else { Some(read_extra(rest)?) };
    if extra.as_ref().is_some_and(|extra| extra.num_rows() as u64 != len) {
        return Err(not_ours());
    }
    Ok(Selection { rows, weights, extra })
}

fn words<T>(rest: &mut &[u8], count: u64, word: fn([u8; 8]) -> T) -> Result<Vec<T>> {
    let bytes = usize::try_from(count).ok().and_then(|n| n.checked_mul(8)).ok_or_else(not_ours)?;
    let (found, others) = rest.split_at_checked(bytes).ok_or_else(not_ours)?;
    *rest = others;
    memory::collect(LISTS, found.as_chunks::<8>().0.iter().map(|bytes| word(*bytes)))
}

fn read_extra(bytes: &[u8]) -> Result<arrow_array::RecordBatch> {
    // The general reader of Arrow panics on some bytes: then these are not ours, and no bug.
    memory::ask(LISTS, bytes.len())?;
    let read = exec::guard("reading the added columns", || {
        // The reader of files takes the memory that a file states; this one takes what there is.
        let mut bytes = Buffer::from(bytes);
        let mut decoder = StreamDecoder::new();
        let batch = decoder.decode(&mut bytes).map_err(|_| not_ours())?.ok_or_else(not_ours)?;
        let no_other = decoder.decode(&mut bytes).is_ok_and(|other| other.is_none());
        if no_other && decoder.finish().is_ok() { Ok(batch) } else { Err(not_ours()) }
    });
    read.map_err(|_| not_ours())
}

fn not_ours() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "these bytes are no dataset of this release of datasetrt; pickle the dataset again",
    )
}

fn bug(source: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Bug, format!("the dataset cannot be pickled: {source}; please report this"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn golden() -> Dataset {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/caches/format-1/plain");
        Dataset::open(&[folder], ReadOptions::default()).unwrap()
    }

    #[test]
    fn a_recipe_gives_the_dataset_again() {
        let dataset = golden().select(&[5, 3, 3]).unwrap().with_weights(vec![1.0, 2.0, 0.5]).unwrap();
        let again = Dataset::from_recipe(&dataset.recipe().unwrap()).unwrap();
        assert_eq!(again.fingerprint().unwrap(), dataset.fingerprint().unwrap());
    }

    #[test]
    fn a_column_that_is_there_already_is_refused() {
        let dataset = golden();
        let stored = dataset.set().columns()[0].name.clone();
        for names in [["a", "b"], ["a", "a"], ["a", &stored], ["weight", "a"]] {
            let column: arrow_array::ArrayRef =
                Arc::new(arrow_array::Int64Array::from_iter_values(0..dataset.len() as i64));
            let extra =
                arrow_array::RecordBatch::try_from_iter(names.map(|name| (name, Arc::clone(&column))));
            let selection = Selection { extra: Some(extra.unwrap()), ..Selection::all() };
            let recipe = dataset.with_selection(selection, None).recipe().unwrap();
            let refused = Dataset::from_recipe(&recipe).err().map(|e| e.kind());
            assert_eq!(refused, (names != ["a", "b"]).then_some(ErrorKind::Changed), "{names:?}");
        }
    }

    #[test]
    fn a_wrong_length_is_refused_before_memory_is_taken() {
        let recipe = golden().select(&[5, 3]).unwrap().recipe().unwrap();
        let (length, rest) = recipe.split_first_chunk::<8>().unwrap();
        let (header, body) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let header = std::str::from_utf8(header).unwrap();
        for wrong in ["15", "17", "1099511627776", "18446744073709551615"] {
            let header = header.replace("\"body_bytes\":16", &format!("\"body_bytes\":{wrong}"));
            let forged = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), body].concat();
            assert_eq!(
                Dataset::from_recipe(&forged).err().map(|e| e.kind()),
                Some(ErrorKind::InvalidArgument)
            );
        }
        for cut in 0..recipe.len() {
            assert!(Dataset::from_recipe(&recipe[..cut]).is_err(), "{cut}");
        }
    }
}
