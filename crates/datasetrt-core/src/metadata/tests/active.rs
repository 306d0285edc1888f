//! Caches end to end: take, export, and what is delivered.

use std::sync::Mutex;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Int64Array, LargeStringArray, ListArray, StringArray, UInt8Array,
    UInt64Array,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::metadata::{
    CacheSet, Export, MAX_BATCH_ROWS, Rows, Selection, UnifiedColumn, deliverable, digest,
};

pub(super) const A: &str = "aaaaaaaaaaaaaaaa";
pub(super) const B: &str = "bbbbbbbbbbbbbbbb";

fn ints(name: &str, values: &[i64]) -> Model {
    Model::of(&[(name, ColumnType::Int64)], values.iter().map(|v| vec![Cell::Int(*v)]).collect())
}

/// Cache A has `shared` and `text`, cache B has `only_b` and `shared`.
pub(super) fn two_caches() -> Arc<CacheSet> {
    let a = Model::of(
        &[("shared", ColumnType::Int64), ("text", ColumnType::String)],
        vec![
            vec![Cell::Int(0), Cell::Str("zero".to_owned())],
            vec![Cell::Null, Cell::Str("é".to_owned())],
            vec![Cell::Int(2), Cell::Null],
        ],
    );
    let b = Model::of(
        &[("only_b", ColumnType::Float64), ("shared", ColumnType::Int64)],
        vec![vec![Cell::Float(f64::NAN), Cell::Int(10)], vec![Cell::Float(-0.0), Cell::Int(11)]],
    );
    Arc::new(CacheSet::new(vec![a.cache(A, &[2]), b.cache(B, &[])]).unwrap())
}

/// The whole export as one batch.
pub(super) fn exported(set: &Arc<CacheSet>, selection: Selection) -> RecordBatch {
    let export = Export::new(Arc::clone(set), selection).unwrap();
    let schema = Arc::clone(export.schema());
    let batches: Vec<_> = export.map(Result::unwrap).collect();
    assert!(batches.iter().all(|b| b.num_rows() <= MAX_BATCH_ROWS && b.schema() == schema));
    arrow_select::concat::concat_batches(&schema, &batches).unwrap()
}

#[test]
fn columns_are_united_in_first_seen_order() {
    let set = two_caches();
    let expected =
        [("shared", ColumnType::Int64), ("text", ColumnType::String), ("only_b", ColumnType::Float64)];
    let expected = expected.map(|(name, ty)| UnifiedColumn { name: name.to_owned(), ty });
    assert_eq!(set.columns(), expected);
    assert_eq!((set.rows(), set.base(0), set.base(1), set.base(2)), (5, Some(0), Some(3), None));
    assert_eq!(set.locate(2), Some((0, 2)));
    assert_eq!(set.locate(3), Some((1, 0)));
    assert_eq!(set.locate(5), None);
}

#[test]
fn caches_that_do_not_go_together_are_refused() {
    let a = ints("x", &[1]);
    let text = Model::of(&[("x", ColumnType::String)], vec![vec![Cell::Str(String::new())]]);
    let error = |caches| CacheSet::new(caches).unwrap_err();
    let types = error(vec![a.cache(A, &[]), text.cache(B, &[])]);
    let expected = format!("column 'x' is int64 in cache {A} but string in cache {B}; ");
    assert!(types.message().starts_with(&expected), "{types}");
    let twice = error(vec![a.cache(A, &[]), a.cache(A, &[])]);
    assert!(twice.message().contains(&format!("the same cache {A}")), "{twice}");
    for e in [types, twice, error(vec![])] {
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn take_spans_caches_and_fills_missing_columns() {
    let batch = two_caches().take(&[4, 0, 3, 1, 0]).unwrap();
    let shared = batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(shared.iter().collect::<Vec<_>>(), [Some(11), Some(0), Some(10), None, Some(0)]);
    let text = batch.column(1).as_string::<i64>();
    assert_eq!(text.iter().collect::<Vec<_>>(), [None, Some("zero"), None, Some("é"), Some("zero")]);
    let only_b = batch.column(2).as_primitive::<Float64Type>();
    assert!(only_b.is_null(1) && only_b.value(2).is_nan() && only_b.is_valid(0));
    let error = two_caches().take(&[0, 5]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IndexOutOfRange);
    assert!(error.message().contains("row 5 is out of range for 5 rows"), "{error}");
}

/// Counts how often its table is asked for, and may refuse.
struct Lazy {
    inner: Arc<Cache>,
    loads: Mutex<usize>,
    broken: bool,
}

impl TableSource for Lazy {
    fn cache_id(&self) -> &str {
        self.inner.cache_id()
    }
    fn rows(&self) -> u64 {
        self.inner.rows()
    }
    fn columns(&self) -> &[ColumnInfo] {
        self.inner.columns()
    }
    fn table(&self) -> Result<Arc<Table>> {
        *self.loads.lock().unwrap() += 1;
        if self.broken {
            return Err(Error::new(ErrorKind::MetadataChecksum, "broken"));
        }
        self.inner.table()
    }
}

fn lazy(model: &Model, id: &str, broken: bool) -> Arc<Lazy> {
    Arc::new(Lazy { inner: model.cache(id, &[]), loads: Mutex::new(0), broken })
}

#[test]
fn only_tables_that_are_needed_are_loaded() {
    let (a, b) = (lazy(&ints("x", &[1, 2]), A, false), lazy(&ints("x", &[3]), B, true));
    let caches: Vec<Arc<dyn TableSource>> = vec![a.clone(), b.clone()];
    let set = Arc::new(CacheSet::new(caches).unwrap());
    let mut export = Export::new(Arc::clone(&set), Selection::all()).unwrap();
    assert_eq!((*a.loads.lock().unwrap(), *b.loads.lock().unwrap()), (0, 0));
    set.take(&[0, 1, 0]).unwrap();
    assert_eq!((*a.loads.lock().unwrap(), *b.loads.lock().unwrap()), (1, 0));
    assert_eq!(set.take(&[0, 2]).unwrap_err().kind(), ErrorKind::MetadataChecksum);
    assert_eq!(export.next().unwrap().unwrap_err().kind(), ErrorKind::MetadataChecksum);
}

#[test]
fn an_operation_loads_each_table_once() {
    let long: Vec<i64> = (0..2 * MAX_BATCH_ROWS as i64 + 5).collect();
    let source = lazy(&ints("x", &long), A, false);
    let set = Arc::new(CacheSet::new(vec![source.clone()]).unwrap());
    let export = Export::new(Arc::clone(&set), Selection::all()).unwrap();
    let schema = Arc::clone(export.schema());
    let batches: Vec<_> = export.collect();
    assert_eq!((batches.len(), *source.loads.lock().unwrap()), (3, 1));
    set.check(&schema, batches).unwrap();
    assert_eq!(*source.loads.lock().unwrap(), 2);
}

#[test]
fn rows_that_were_only_left_out_are_not_compared() {
    let source = lazy(&ints("x", &[1, 2, 3]), A, false);
    let set = Arc::new(CacheSet::new(vec![source.clone()]).unwrap());
    let whole = exported(&set, Selection::all());
    let loads = *source.loads.lock().unwrap();
    let rows = whole.project(&[0, 1, 3]).unwrap();
    let selection = set.check_rows(&rows.schema(), [Ok(rows.slice(1, 2))]).unwrap();
    assert!(matches!(selection.rows, Rows::Range { start: 1, len: 2 }));
    assert_eq!(selection.extra, None);
    assert_eq!(*source.loads.lock().unwrap(), loads);
    let of_the_only_cache = whole.project(&[1]).unwrap();
    let alone = set.check_rows(&of_the_only_cache.schema(), [Ok(of_the_only_cache.slice(1, 2))]).unwrap();
    assert!(matches!(alone.rows, Rows::Range { start: 1, len: 2 }));
    let error = set.check(&of_the_only_cache.schema(), [Ok(of_the_only_cache.clone())]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTable, "{error}");
    let pair = CacheSet::new(vec![source, lazy(&ints("x", &[4]), B, false)]).unwrap();
    let error = pair.check_rows(&of_the_only_cache.schema(), [Ok(of_the_only_cache)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTable, "{error}");
    let no_samples = whole.project(&[0, 3]).unwrap();
    let error = set.check_rows(&no_samples.schema(), [Ok(no_samples)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTable, "{error}");
}

#[test]
fn an_export_ends_with_its_first_error() {
    let long: Vec<i64> = (0..MAX_BATCH_ROWS as i64 + 5).collect();
    let set = Arc::new(CacheSet::new(vec![lazy(&ints("x", &long), A, true)]).unwrap());
    let mut export = Export::new(set, Selection::all()).unwrap();
    assert!(export.next().unwrap().is_err());
    assert!(export.next().is_none());
}

#[test]
fn the_exported_table_has_the_promised_columns() {
    let extra = RecordBatch::try_from_iter([
        ("note", Arc::new(StringArray::from(vec!["p", "q", "r"])) as ArrayRef),
        ("rank", Arc::new(UInt8Array::from(vec![3, 2, 1])) as ArrayRef),
    ]);
    let selection = Selection {
        rows: Rows::Explicit(Arc::new(vec![4, 0, 3])),
        weights: Some(Arc::new(vec![1.0, 2.5, 9.0])),
        extra: Some(extra.unwrap()),
    };
    let batch = exported(&two_caches(), selection);
    let schema = batch.schema();
    let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let expected = ["cache_id", "sample_id", "shared", "text", "only_b", "weight", "note", "rank"];
    assert_eq!(names, expected);
    let ids: Vec<_> = batch.column(0).as_string_view().iter().flatten().collect();
    assert_eq!(ids, [B, A, B]);
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().values(), &[1, 0, 0]);
    assert_eq!(batch.column(2).as_primitive::<Int64Type>().values(), &[11, 0, 10]);
    assert_eq!(batch.column(5).as_primitive::<Float64Type>().values(), &[1.0, 2.5, 9.0]);
    assert_eq!(batch.column(6).as_string::<i32>().value(2), "r");
}

#[test]
fn long_exports_come_in_batches() {
    let rows = MAX_BATCH_ROWS as i64 + 5;
    let set = CacheSet::new(vec![ints("x", &(0..rows).collect::<Vec<_>>()).cache(A, &[])]).unwrap();
    let set = Arc::new(set);
    let sizes = |rows: Rows| {
        let selection = Selection { rows, ..Selection::all() };
        let export = Export::new(Arc::clone(&set), selection).unwrap();
        export.map(|b| b.unwrap().num_rows()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(Rows::All), [MAX_BATCH_ROWS, 5]);
    assert_eq!(sizes(Rows::Range { start: 7, len: 3 }), [3]);
    let note = Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
    let weights: Vec<f64> = (1..=rows).map(|n| n as f64).collect();
    let edited = Selection {
        rows: Rows::All,
        weights: Some(Arc::new(weights.clone())),
        extra: Some(RecordBatch::try_from_iter([("note", note.clone())]).unwrap()),
    };
    let batch = exported(&set, edited);
    assert_eq!(&batch["note"], &note);
    assert_eq!(batch["weight"].as_primitive::<Float64Type>().values(), weights.as_slice());
    let batch = exported(&set, Selection { rows: Rows::Range { start: 65_530, len: 9 }, ..Selection::all() });
    let expected: Vec<i64> = (65_530..65_539).collect();
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().values(), expected.as_slice());
    assert_eq!(batch.column(2).as_primitive::<Int64Type>().values(), expected.as_slice());
}

#[test]
fn selections_that_do_not_fit_are_refused() {
    let set = two_caches();
    let short = Selection { weights: Some(Arc::new(vec![1.0])), ..Selection::all() };
    let error = Export::new(Arc::clone(&set), short).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let rows = Rows::Explicit(Arc::new(vec![9]));
    let mut export = Export::new(set, Selection { rows, ..Selection::all() }).unwrap();
    assert_eq!(export.next().unwrap().unwrap_err().kind(), ErrorKind::IndexOutOfRange);
}

#[test]
fn rows_answer_by_place() {
    let explicit = Rows::Explicit(Arc::new(vec![7, 7]));
    let range = Rows::Range { start: 3, len: 2 };
    assert_eq!((Rows::All.len(9), range.len(9), explicit.len(9)), (9, 2, 2));
    assert_eq!((Rows::All.get(8, 9), Rows::All.get(9, 9)), (Some(8), None));
    assert_eq!((range.get(1, 9), range.get(2, 9)), (Some(4), None));
    assert_eq!((explicit.get(1, 9), explicit.get(2, 9)), (Some(7), None));
    assert_eq!(Rows::Range { start: u64::MAX, len: 2 }.get(1, 9), None);
}

proptest! {
    #[test]
    fn take_is_the_tables_one_by_one(
        a in models(20),
        mut b in models(20),
        shards in vec(any::<usize>(), 0..3),
        picks in vec(any::<prop::sample::Index>(), 0..40),
    ) {
        b.columns.iter_mut().for_each(|(name, _)| *name = format!("b {name}"));
        let set = CacheSet::new(vec![a.cache(A, &shards), b.cache(B, &shards)]).unwrap();
        let total = a.rows.len() + b.rows.len();
        let rows: Vec<u64> = picks.iter().map(|pick| pick.index(total) as u64).collect();
        let taken = set.take(&rows).unwrap();
        prop_assert_eq!(taken.num_rows(), rows.len());
        for (at, row) in rows.iter().enumerate() {
            let row = *row as usize;
            let blank = |model: &Model| vec![Cell::Null; model.columns.len()];
            let (left, right) = match a.rows.get(row) {
                Some(cells) => (cells.clone(), blank(&b)),
                None => (blank(&a), b.rows[row - a.rows.len()].clone()),
            };
            for (column, cell) in left.iter().chain(&right).enumerate() {
                prop_assert!(same(batch_value(&taken, at, column), cell.value()));
            }
        }
    }
}

#[test]
fn only_simple_added_columns_are_delivered() {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)]), None]);
    let words: arrow_array::DictionaryArray<arrow_array::types::UInt32Type> =
        vec![Some("x"), None].into_iter().collect();
    let extra = RecordBatch::try_from_iter_with_nullable([
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), None])) as ArrayRef, true),
        ("list", Arc::new(list) as ArrayRef, true),
        ("u8", Arc::new(UInt8Array::from(vec![255, 0])) as ArrayRef, true),
        ("u64", Arc::new(UInt64Array::from(vec![Some(i64::MAX as u64), None])) as ArrayRef, true),
        ("f32", Arc::new(Float32Array::from(vec![0.5, f32::INFINITY])) as ArrayRef, true),
        ("text", Arc::new(StringArray::from(vec!["a", "é"])) as ArrayRef, true),
        ("words", Arc::new(words) as ArrayRef, true),
    ])
    .unwrap();
    let batch = deliverable(&extra).unwrap();
    let schema = batch.schema();
    let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["bool", "u8", "u64", "f32", "text", "words"]);
    let row = |row| (0..6).map(move |column| (row, column)).collect::<Vec<_>>();
    let values = |at: Vec<(usize, usize)>| -> Vec<Value<'_>> {
        at.into_iter().map(|(row, column)| batch_value(&batch, row, column)).collect()
    };
    assert_eq!(
        values(row(0)),
        [
            Value::Bool(true),
            Value::Int(255),
            Value::Int(i64::MAX),
            Value::Float(0.5),
            Value::Str("a"),
            Value::Str("x"),
        ]
    );
    assert_eq!(
        values(row(1)),
        [Value::Null, Value::Int(0), Value::Null, Value::Float(f64::INFINITY), Value::Str("é"), Value::Null,]
    );
}

#[test]
fn unsigned_integers_beyond_int64_are_refused() {
    let column = Arc::new(UInt64Array::from(vec![1, 1 << 63])) as ArrayRef;
    let error = deliverable(&RecordBatch::try_from_iter([("u", column)]).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTable);
    assert!(error.message().starts_with("row 1: column 'u' has 9223372036854775808"), "{error}");
}

fn digested(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    digest(batch, &mut |piece| bytes.extend_from_slice(piece)).unwrap();
    bytes
}

#[test]
fn the_digest_sees_values_and_nothing_else() {
    let column = |values: Vec<Option<i64>>| {
        RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
    };
    let batch = column(vec![Some(1), None, Some(3)]);
    let longer = column(vec![None, Some(1), None, Some(3), Some(4)]);
    assert_eq!(digested(&batch), digested(&longer.slice(1, 3)), "an offset shows");
    let mut seen = vec![digested(&batch), digested(&longer)];
    seen.push(digested(&column(vec![Some(1), Some(0), Some(3)])));
    seen.push(digested(&column(vec![Some(1), None])));
    let renamed = RecordBatch::try_from_iter([("b", batch.column(0).clone())]).unwrap();
    seen.push(digested(&renamed));
    for texts in [["ab", "c"], ["a", "bc"], ["", "abc"]] {
        let texts = Arc::new(LargeStringArray::from(texts.to_vec())) as ArrayRef;
        seen.push(digested(&RecordBatch::try_from_iter([("a", texts)]).unwrap()));
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "two tables have one digest");
}

#[test]
fn the_digest_of_long_text_is_whole() {
    let long = "x".repeat(200_000);
    let texts = Arc::new(LargeStringArray::from(vec!["a", &long, "b"])) as ArrayRef;
    let bytes = digested(&RecordBatch::try_from_iter([("t", texts)]).unwrap());
    // Counts, the name and the type with their lengths, then flag, length and text of each cell.
    let head = 16 + 8 + 1 + 8 + "string".len();
    assert_eq!(bytes.len(), head + 3 * 9 + 1 + 200_000 + 1);
    assert_eq!(&bytes[head + 9..head + 11], b"a\x01");
    assert_eq!(bytes.last(), Some(&b'b'));
}
