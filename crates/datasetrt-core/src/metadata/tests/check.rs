//! Edited tables: what comes back as a selection, and each kind of damage that does not.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt32Type};
use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray, UInt64Array};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::take::take_record_batch;
use proptest::collection::vec;
use proptest::prelude::*;

use super::active::{A, B, exported, two_caches};
use super::*;
use crate::error::{Error, ErrorKind};
use crate::metadata::{CacheSet, MAX_BATCH_ROWS, Rows, Selection};

fn check(set: &CacheSet, batch: &RecordBatch) -> Result<Selection> {
    set.check(&batch.schema(), [Ok(batch.clone())])
}

fn place(batch: &RecordBatch, name: &str) -> usize {
    batch.schema().index_of(name).unwrap()
}

/// The table with one column replaced.
fn with(batch: &RecordBatch, name: &str, array: ArrayRef) -> RecordBatch {
    let schema = batch.schema();
    let mut fields: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    let mut columns = batch.columns().to_vec();
    let field = Field::new(name, array.data_type().clone(), true);
    match schema.index_of(name) {
        Ok(place) => (fields[place], columns[place]) = (field, array),
        Err(_) => {
            fields.push(field);
            columns.push(array);
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn without(batch: &RecordBatch, name: &str) -> RecordBatch {
    let keep: Vec<_> = (0..batch.num_columns()).filter(|n| *n != place(batch, name)).collect();
    batch.project(&keep).unwrap()
}

fn picked(batch: &RecordBatch, rows: &[u64]) -> RecordBatch {
    take_record_batch(batch, &UInt64Array::from(rows.to_vec())).unwrap()
}

#[test]
fn the_exported_table_is_everything() {
    let set = two_caches();
    assert_eq!(check(&set, &exported(&set, Selection::all())).unwrap(), Selection::all());
}

#[test]
fn rows_are_kept_in_their_shortest_form() {
    let set = two_caches();
    let table = exported(&set, Selection::all());
    let rows = |batch: &RecordBatch| check(&set, batch).unwrap().rows;
    assert_eq!(rows(&table.slice(1, 3)), Rows::Range { start: 1, len: 3 });
    assert_eq!(rows(&table.slice(4, 1)), Rows::Range { start: 4, len: 1 });
    assert_eq!(rows(&table.slice(0, 3)), Rows::Range { start: 0, len: 3 });
    assert_eq!(rows(&picked(&table, &[0, 1, 1])), Rows::Explicit(Arc::new(vec![0, 1, 1])));
    assert_eq!(rows(&picked(&table, &[4, 3])), Rows::Explicit(Arc::new(vec![4, 3])));
    assert_eq!(rows(&picked(&table, &[0, 2, 3, 4])), Rows::Explicit(Arc::new(vec![0, 2, 3, 4])));
}

proptest! {
    /// Whatever is picked, in whatever batches it comes, the selection exports the same table.
    #[test]
    fn picks_come_back(
        model in models(30),
        picks in vec(any::<prop::sample::Index>(), 1..50),
        weights in proptest::option::of(vec(1e-300_f64..1e300, 50)),
        cuts in vec(any::<usize>(), 0..5),
    ) {
        let set = Arc::new(CacheSet::new(vec![model.cache(A, &[3])]).unwrap());
        let rows: Vec<u64> = picks.iter().map(|p| p.index(model.rows.len()) as u64).collect();
        let mut table = picked(&exported(&set, Selection::all()), &rows);
        if let Some(weights) = &weights {
            let weights = Float64Array::from(weights[..rows.len()].to_vec());
            table = with(&table, "weight", Arc::new(weights));
        }
        let note = Int64Array::from_iter_values(0..rows.len() as i64);
        table = with(&table, "note", Arc::new(note));
        let pieces = split(rows.len(), &cuts).into_iter();
        let batches: Vec<_> = pieces.map(|p| Ok(table.slice(p.start, p.len()))).collect();
        let selection = set.check(&table.schema(), batches).unwrap();
        prop_assert_eq!(selection.weights.is_some(), weights.is_some());
        let again = exported(&set, selection);
        prop_assert_eq!(again.num_rows(), rows.len());
        for name in ["sample_id", "weight", "note"] {
            prop_assert_eq!(&again[name], &table[name]);
        }
        let cells = |batch: &RecordBatch, row: usize, column: usize| -> String {
            format!("{:?}", batch_value(batch, row, column + 2))
        };
        for row in 0..rows.len() {
            for column in 0..model.columns.len() {
                prop_assert_eq!(cells(&again, row, column), cells(&table, row, column));
            }
        }
    }

    /// A changed stored cell is found wherever it is.
    #[test]
    fn no_change_goes_unnoticed(
        values in vec(proptest::option::of(-3_i64..3), 1..80),
        at in any::<prop::sample::Index>(),
        new in proptest::option::of(-3_i64..3),
    ) {
        let cells = values.iter().map(|v| vec![v.map_or(Cell::Null, Cell::Int)]).collect();
        let model = Model::of(&[("x", ColumnType::Int64)], cells);
        prop_assume!(values.iter().any(Option::is_some));
        let set = Arc::new(CacheSet::new(vec![model.cache(A, &[7])]).unwrap());
        let mut edited = values.clone();
        let at = at.index(values.len());
        edited[at] = new;
        let table = with(&exported(&set, Selection::all()), "x", Arc::new(Int64Array::from(edited)));
        let outcome = check(&set, &table);
        if values[at] == new {
            prop_assert!(outcome.is_ok());
        } else {
            let error = outcome.unwrap_err();
            let words = format!("row {at}: column 'x' has ");
            prop_assert!(error.message().starts_with(&words), "{}", error);
        }
    }
}

#[test]
fn other_encodings_of_the_same_values_are_welcome() {
    let set = two_caches();
    let table = exported(&set, Selection::all());
    let dictionary = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8View));
    for ty in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View, dictionary] {
        for name in ["cache_id", "text"] {
            let edited = with(&table, name, cast(&table[name], &ty).unwrap());
            assert_eq!(check(&set, &edited).unwrap(), Selection::all(), "{name} as {ty}");
        }
    }
    for ty in [DataType::Int8, DataType::UInt16, DataType::Int32, DataType::UInt64] {
        let edited = with(&table, "sample_id", cast(&table["sample_id"], &ty).unwrap());
        assert_eq!(check(&set, &edited).unwrap(), Selection::all(), "sample_id as {ty}");
    }
    let other_nan = f64::from_bits(f64::NAN.to_bits() | 0xbeef);
    let floats = vec![None, None, None, Some(other_nan), Some(0.0)];
    let edited = with(&table, "only_b", Arc::new(Float64Array::from(floats)));
    assert_eq!(check(&set, &edited).unwrap(), Selection::all());
    assert_eq!(check(&set, &without(&table, "weight")).unwrap(), Selection::all());
}

#[test]
fn weights_of_any_number_type_are_kept() {
    let set = two_caches();
    let table = exported(&set, Selection::all());
    let weights = Int64Array::from(vec![1, 1, 1, 2, 1]);
    for ty in [DataType::Int64, DataType::UInt8, DataType::Float32, DataType::Float16] {
        let edited = with(&table, "weight", cast(&weights, &ty).unwrap());
        let found = check(&set, &edited).unwrap().weights.unwrap();
        assert_eq!(*found, [1.0, 1.0, 1.0, 2.0, 1.0], "{ty}");
    }
}

#[test]
fn added_columns_are_kept_as_they_are() {
    let set = two_caches();
    let table = exported(&set, Selection::all());
    let note: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e"]));
    let words: arrow_array::DictionaryArray<UInt32Type> = ["x", "y", "x", "y", "x"].into_iter().collect();
    let edited = with(&with(&table, "note", note.clone()), "words", Arc::new(words));
    let halves = [Ok(edited.slice(0, 2)), Ok(edited.slice(2, 0)), Ok(edited.slice(2, 3))];
    let selection = set.check(&edited.schema(), halves).unwrap();
    let extra = selection.extra.clone().unwrap();
    assert_eq!(&extra["note"], &note);
    assert_eq!(extra["words"].data_type(), edited["words"].data_type());
    assert_eq!(cast(&extra["words"], &DataType::Utf8).unwrap().as_string::<i32>().value(3), "y");
    // And what was added survives the next edit.
    let again = check(&set, &exported(&set, selection)).unwrap();
    assert_eq!(&again.extra.unwrap()["note"], &note);
}

fn int_column(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn each_kind_of_damage_is_named() {
    let set = two_caches();
    let table = exported(&set, Selection::all());
    let ids = |row: usize, id: Option<&str>| -> ArrayRef {
        let mut ids = vec![Some(A), Some(A), Some(A), Some(B), Some(B)];
        ids[row] = id;
        Arc::new(StringArray::from(ids))
    };
    let floats = |values: [f64; 5]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    let texts = |values: [Option<&str>; 5]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let samples = |last| int_column(&[Some(0), Some(1), Some(2), Some(0), last]);
    let beyond: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1, 2, 0, u64::MAX]));
    let nan = f64::NAN;
    let cases: Vec<(RecordBatch, &str)> = vec![
        (without(&table, "cache_id"), "column 'cache_id' is missing"),
        (without(&table, "sample_id"), "column 'sample_id' is missing"),
        (without(&table, "text"), "column 'text' is missing"),
        (with(&table, "cache_id", samples(Some(1))), "'cache_id' has type Int64, a string expected"),
        (with(&table, "sample_id", ids(0, Some(A))), "'sample_id' has type Utf8, an integer expected"),
        (with(&table, "sample_id", floats([0., 1., 2., 0., 1.])), "'sample_id' has type Float64"),
        (with(&table, "weight", ids(0, Some(A))), "'weight' has type Utf8, a number expected"),
        (with(&table, "shared", floats([0.; 5])), "'shared' has type Float64, int64 expected"),
        (with(&table, "text", samples(Some(1))), "'text' has type Int64, string expected"),
        (with(&table, "cache_id", ids(2, Some("zz"))), "row 2: cache_id 'zz' is no cache of this"),
        (with(&table, "cache_id", ids(2, None)), "row 2: cache_id is null"),
        (with(&table, "sample_id", samples(None)), "row 4: sample_id is null"),
        (with(&table, "sample_id", samples(Some(2))), "row 4: sample_id 2 is not in cache bbb"),
        (with(&table, "sample_id", samples(Some(-1))), "row 4: sample_id -1 is not in cache bbb"),
        (with(&table, "sample_id", beyond), "row 4: sample_id 18446744073709551615 is not in"),
        (
            with(&table, "shared", int_column(&[Some(0), None, Some(2), Some(7), Some(11)])),
            "row 3: column 'shared' has 7, but sample 0 of cache bbbbbbbbbbbbbbbb stores 10; put",
        ),
        (
            with(&table, "shared", int_column(&[Some(0), Some(1), Some(2), Some(10), Some(11)])),
            "row 1: column 'shared' has 1, but sample 1 of cache aaaaaaaaaaaaaaaa stores None",
        ),
        (
            with(&table, "text", texts([Some("zero"), Some("é"), None, Some(""), None])),
            "row 3: column 'text' has '', but sample 0 of cache bbbbbbbbbbbbbbbb stores None",
        ),
        (
            with(&table, "text", texts([Some("Zero"), Some("é"), None, None, None])),
            "row 0: column 'text' has 'Zero', but sample 0 of cache aaaaaaaaaaaaaaaa stores 'zero'",
        ),
        (
            with(&table, "only_b", Arc::new(Float64Array::from(vec![None, None, None, Some(nan), None]))),
            "row 4: column 'only_b' has None, but sample 1",
        ),
        (with(&table, "weight", floats([1., 1., 0., 1., 1.])), "row 2: weight is 0"),
        (with(&table, "weight", floats([1., nan, 0., 1., 1.])), "row 1: weight is NaN"),
        (with(&table, "weight", floats([1., 1., 1., 1., f64::INFINITY])), "row 4: weight is inf"),
        (with(&table, "weight", floats([-0.5, 1., 1., 1., 1.])), "row 0: weight is -0.5"),
        (
            with(&table, "weight", int_column(&[Some(1), None, Some(1), Some(1), Some(1)])),
            "row 1: weight is None",
        ),
    ];
    for (edited, words) in cases {
        let error = check(&set, &edited).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTable, "{error}");
        assert!(error.message().contains(words), "{error}\nlacks {words}");
        assert!(!error.message().contains('\n'));
        // Rows count from the start of the table, not of the batch.
        let halves = [Ok(edited.slice(0, 1)), Ok(edited.slice(1, 4))];
        let error = set.check(&edited.schema(), halves).unwrap_err();
        assert!(error.message().contains(words), "{error}\nlacks {words}");
    }
}

#[test]
fn found_and_stored_values_are_printed_alike() {
    let model = Model::of(&[("b", ColumnType::Bool)], vec![vec![Cell::Bool(true)]]);
    let set = Arc::new(CacheSet::new(vec![model.cache(A, &[])]).unwrap());
    let flipped = Arc::new(arrow_array::BooleanArray::from(vec![false]));
    let error = check(&set, &with(&exported(&set, Selection::all()), "b", flipped)).unwrap_err();
    assert!(error.message().contains("has False, but sample 0"), "{error}");
    assert!(error.message().contains("stores True; "), "{error}");
}

#[test]
fn tables_without_rows_or_with_double_columns_are_refused() {
    let set = two_caches();
    let table = exported(&set, Selection::all());
    let empty = Error::kind(&check(&set, &table.slice(0, 0)).unwrap_err());
    assert_eq!(empty, ErrorKind::Empty);
    let none = set.check(&table.schema(), []).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Empty);
    let twice: Vec<_> = (0..table.num_columns()).chain([2]).collect();
    let error = check(&set, &table.project(&twice).unwrap()).unwrap_err();
    assert!(error.message().contains("'shared' is there twice"), "{error}");
}

#[test]
fn streams_that_fail_or_change_their_columns_are_refused() {
    let set = two_caches();
    let table = exported(&set, Selection::all());
    let failed = Error::new(ErrorKind::Io, "gone");
    let batches = [Ok(table.clone()), Err(failed.clone())];
    assert_eq!(set.check(&table.schema(), batches).unwrap_err(), failed);
    for other in [without(&table, "weight"), with(&table, "shared", table["weight"].clone())] {
        let error = set.check(&table.schema(), [Ok(table.clone()), Ok(other)]).unwrap_err();
        assert!(error.message().contains("other columns"), "{error}");
    }
}

#[test]
fn a_change_far_into_a_long_table_is_found() {
    let rows = 2 * MAX_BATCH_ROWS as i64 + 100;
    let cells = (0..rows).map(|n| vec![Cell::Float(n as f64)]).collect();
    let model = Model::of(&[("x", ColumnType::Float64)], cells);
    let set = Arc::new(CacheSet::new(vec![model.cache(A, &[])]).unwrap());
    let table = exported(&set, Selection::all());
    assert_eq!(check(&set, &table).unwrap(), Selection::all());
    let mut values: Vec<f64> = table["x"].as_primitive::<Float64Type>().values().to_vec();
    values[131_073] = -1.0;
    let error = check(&set, &with(&table, "x", Arc::new(Float64Array::from(values)))).unwrap_err();
    let words = "row 131073: column 'x' has -1.0, but sample 131073";
    assert!(error.message().starts_with(words), "{error}");
}
