//! The input of `with_metadata`: the active table of golden caches, edited in every way that Arrow can say,
//! and in some that it cannot.
#![no_main]

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
    make_array, new_null_array,
};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_cast::cast;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit, UnionFields, UnionMode};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use datasetrt_core::Error;
use datasetrt_core::read::{Dataset, ReadOptions};
use datasetrt_fuzz::golden_folder;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    dataset: u8,
    edits: Vec<Edit>,
    chunks: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum Edit {
    Drop(u8),
    Rename(u8, String),
    Repeat(u8),
    Move(u8, u8),
    Cast(u8, u8),
    Take(Vec<u16>),
    Slice(u8, u8),
    SetInt(u8, u8, i64),
    SetFloat(u8, u8, f64),
    SetText(u8, u8, String),
    SetNull(u8, u8),
    Weights(Vec<f64>),
    AddNulls(String, u8),
    AddUnchecked { name: String, kind: u8, first: Vec<u8>, second: Vec<u8>, nulls: Vec<bool> },
}

struct Base {
    dataset: Dataset,
    payloads: Vec<Vec<u8>>,
    table: RecordBatch,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let groups: [&[&str]; 5] = [
        &["nulls"],
        &["no-metadata"],
        &["empty-payloads", "one-sample"],
        &["plain", "nulls", "zstd"],
        &["lz4"],
    ];
    let base = |names: &&[&str]| {
        let folders: Vec<_> = names.iter().map(|name| golden_folder(name)).collect();
        let dataset = Dataset::open(&folders, ReadOptions::default()).expect("golden");
        let payloads = (0..dataset.len()).map(|row| dataset.read_payload(row).expect("golden")).collect();
        Base { payloads, table: export(&dataset), dataset }
    };
    groups.iter().map(base).collect()
});

fn export(dataset: &Dataset) -> RecordBatch {
    let export = dataset.export().expect("one value a row");
    let schema = Arc::clone(export.schema());
    let batches: Vec<_> = export.map(|batch| batch.expect("it can be exported")).collect();
    for column in batches.iter().flat_map(|batch| batch.columns()) {
        column.to_data().validate_full().expect("what is exported keeps Arrow's rules");
    }
    concat_batches(&schema, &batches).expect("batches of one schema")
}

/// Types of every family, for casts and for columns of nulls.
fn types() -> Vec<DataType> {
    let item = |ty: DataType| Arc::new(Field::new("item", ty, true));
    let pair =
        Fields::from(vec![Field::new("a", DataType::Int8, true), Field::new("b", DataType::Utf8View, true)]);
    let entries = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Int32, true),
    ]);
    let union = UnionFields::try_new([0], [Field::new("a", DataType::Int32, true)]).expect("one field");
    vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int8,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::LargeBinary,
        DataType::BinaryView,
        DataType::FixedSizeBinary(0),
        DataType::FixedSizeBinary(3),
        DataType::Date32,
        DataType::Date64,
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Paris".into())),
        DataType::Timestamp(TimeUnit::Second, Some("nowhere".into())),
        DataType::Duration(TimeUnit::Millisecond),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Decimal128(38, -3),
        DataType::Decimal256(76, 76),
        DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8)),
        DataType::Dictionary(Box::new(DataType::Int64), Box::new(DataType::LargeUtf8)),
        DataType::List(item(DataType::Utf8)),
        DataType::LargeList(item(DataType::Float32)),
        DataType::ListView(item(DataType::Int8)),
        DataType::FixedSizeList(item(DataType::Int64), 0),
        DataType::FixedSizeList(item(DataType::Int8), 2),
        DataType::Struct(pair),
        DataType::Struct(Fields::empty()),
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false),
        DataType::Union(union, UnionMode::Sparse),
        DataType::RunEndEncoded(
            Arc::new(Field::new("run_ends", DataType::Int32, false)),
            Arc::new(Field::new("values", DataType::Utf8, true)),
        ),
    ]
}

type Columns = Vec<(String, ArrayRef)>;

fn pick(columns: &mut Columns, number: u8) -> Option<&mut (String, ArrayRef)> {
    let count = columns.len();
    columns.get_mut(usize::from(number) % count.max(1))
}

fn type_of(number: u8) -> DataType {
    let types = types();
    types[usize::from(number) % types.len()].clone()
}

fn edit(columns: &mut Columns, rows: &mut usize, edit: Edit) -> Option<()> {
    match edit {
        Edit::Drop(number) if columns.len() > 1 => {
            let at = usize::from(number) % columns.len();
            columns.remove(at);
        }
        Edit::Drop(_) => {}
        Edit::Rename(number, name) => pick(columns, number)?.0 = name,
        Edit::Repeat(number) => {
            let copy = pick(columns, number)?.clone();
            columns.push(copy);
        }
        Edit::Move(first, second) => {
            let count = columns.len().max(1);
            columns.swap(usize::from(first) % count, usize::from(second) % count);
        }
        Edit::Cast(number, ty) => {
            let (_, array) = pick(columns, number)?;
            *array = cast(array, &type_of(ty)).ok()?;
        }
        Edit::Take(wanted) => {
            let wanted = UInt32Array::from_iter_values(
                wanted.iter().filter(|_| *rows > 0).map(|row| u32::from(*row) % *rows as u32),
            );
            let taken: Option<Columns> =
                columns.iter().map(|(n, a)| Some((n.clone(), take(a, &wanted, None).ok()?))).collect();
            *columns = taken?;
            *rows = wanted.len();
        }
        Edit::Slice(start, length) => {
            let start = usize::from(start).min(*rows);
            let length = usize::from(length).min(*rows - start);
            columns.iter_mut().for_each(|(_, array)| *array = array.slice(start, length));
            *rows = length;
        }
        Edit::SetInt(number, row, value) => {
            let (_, array) = pick(columns, number)?;
            let values = array.as_primitive_opt::<Int64Type>()?;
            *array = Arc::new(replaced(values.iter(), row, Some(value)).collect::<Int64Array>());
        }
        Edit::SetFloat(number, row, value) => {
            let (_, array) = pick(columns, number)?;
            let values = array.as_primitive_opt::<Float64Type>()?;
            *array = Arc::new(replaced(values.iter(), row, Some(value)).collect::<Float64Array>());
        }
        Edit::SetText(number, row, value) => {
            let (_, array) = pick(columns, number)?;
            let values = cast(array, &DataType::Utf8).ok()?;
            let values = values.as_string_opt::<i32>()?;
            *array = Arc::new(replaced(values.iter(), row, Some(value.as_str())).collect::<StringArray>());
        }
        Edit::SetNull(number, row) => {
            let (_, array) = pick(columns, number)?;
            let row = usize::from(row) % (*rows).max(1);
            let valid: Vec<bool> = (0..*rows).map(|at| at != row && array.is_valid(at)).collect();
            let data = array.to_data().into_builder().nulls(Some(NullBuffer::from(valid))).offset(0);
            *array = if array.offset() == 0 { make_array(data.build().ok()?) } else { return None };
        }
        Edit::Weights(weights) => {
            let cycle = weights.iter().copied().cycle().take(*rows);
            let array = Float64Array::from_iter_values(cycle);
            columns.retain(|(name, _)| name != "weight");
            if array.len() == *rows {
                columns.push(("weight".into(), Arc::new(array)));
            }
        }
        Edit::AddNulls(name, ty) => columns.push((name, new_null_array(&type_of(ty), *rows))),
        Edit::AddUnchecked { name, kind, first, second, nulls } => {
            columns.push((name, unchecked(kind, *rows, &first, &second, &nulls)?));
        }
    }
    Some(())
}

fn replaced<T: Copy>(
    values: impl Iterator<Item = Option<T>>,
    row: u8,
    value: Option<T>,
) -> impl Iterator<Item = Option<T>> {
    let values: Vec<_> = values.collect();
    let row = usize::from(row) % values.len().max(1);
    values.into_iter().enumerate().map(move |(at, old)| if at == row { value } else { old })
}

/// What arrives over the C interface is not checked by whoever made it: here is an array of any bytes.
#[expect(
    unsafe_code,
    reason = "builds what a foreign library could hand over; nothing looks at it unchecked"
)]
fn unchecked(kind: u8, rows: usize, first: &[u8], second: &[u8], nulls: &[bool]) -> Option<ArrayRef> {
    let item = Arc::new(Field::new("item", DataType::UInt8, true));
    let (ty, width) = match kind % 7 {
        0 => (DataType::Utf8, 4 * (rows + 1)),
        1 => (DataType::LargeUtf8, 8 * (rows + 1)),
        2 => (DataType::Binary, 4 * (rows + 1)),
        3 => (DataType::Utf8View, 16 * rows),
        4 => (DataType::List(item), 4 * (rows + 1)),
        5 => (DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8)), rows),
        _ => (DataType::Boolean, rows.div_ceil(8)),
    };
    // Every buffer has the length that the type asks for: the C interface cannot say another.
    let mut one = first.to_vec();
    one.resize(width, 0);
    let child = match kind % 7 {
        4 => Some(ArrayData::builder(DataType::UInt8).len(second.len()).add_buffer(Buffer::from(second))),
        5 => Some(
            ArrayData::builder(DataType::Utf8)
                .len(1)
                .add_buffer(Buffer::from_slice_ref([0i32, second.len() as i32]))
                .add_buffer(Buffer::from(second)),
        ),
        _ => None,
    };
    let mut data = ArrayData::builder(ty).len(rows).add_buffer(Buffer::from(one)).align_buffers(true);
    if matches!(kind % 7, 0..=3) {
        data = data.add_buffer(Buffer::from(second));
    }
    if nulls.len() >= rows {
        data = data.nulls(Some(NullBuffer::from(&nulls[..rows])));
    }
    if let Some(child) = child {
        // SAFETY: no value is read before `with_table` has validated the array.
        data = data.add_child_data(unsafe { child.build_unchecked() });
    }
    // SAFETY: as above.
    Some(make_array(unsafe { data.build_unchecked() }))
}

fn batches(table: &RecordBatch, chunks: &[u8]) -> Vec<datasetrt_core::Result<RecordBatch>> {
    let mut out = Vec::new();
    let mut start = 0;
    let mut lengths = chunks.iter().take(300).map(|n| usize::from(*n));
    while start < table.num_rows() {
        let length = lengths.next().unwrap_or(usize::MAX).min(table.num_rows() - start);
        out.push(Ok::<_, Error>(table.slice(start, length)));
        start += length;
    }
    out
}

fuzz_target!(|input: Input| {
    let base = &BASES[usize::from(input.dataset) % BASES.len()];
    let schema = base.table.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    let mut columns: Columns = names.zip(base.table.columns().iter().cloned()).collect();
    let mut rows = base.table.num_rows();
    // Unchecked columns last: Arrow's own kernels, which edit, may trust what they are given.
    let (unchecked, edits): (Vec<_>, Vec<_>) =
        input.edits.into_iter().take(8).partition(|change| matches!(change, Edit::AddUnchecked { .. }));
    for change in edits.into_iter().chain(unchecked) {
        // What cannot be edited further is used as it is.
        let _ = edit(&mut columns, &mut rows, change);
    }
    let fields: Vec<_> = columns.iter().map(|(n, a)| Field::new(n, a.data_type().clone(), true)).collect();
    let arrays: Vec<_> = columns.iter().map(|(_, array)| Arc::clone(array)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::new(Schema::new(fields));
    let Ok(table) = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options) else { return };
    let dataset = match base.dataset.with_table(&schema, batches(&table, &input.chunks)) {
        Ok(dataset) => dataset,
        Err(error) => {
            assert!(!error.message().contains('\n') && !error.message().is_empty());
            assert!(error.message().len() < 2000, "{} bytes of message", error.message().len());
            return;
        }
    };
    accepted(base, &table, &dataset);
});

/// A table that was accepted is delivered as it was given, with the samples it names.
fn accepted(base: &Base, table: &RecordBatch, dataset: &Dataset) {
    assert_eq!(dataset.len(), table.num_rows() as u64);
    let column = |name: &str, ty| cast(table.column_by_name(name).expect("required"), &ty).expect("checked");
    let ids = column("cache_id", DataType::LargeUtf8);
    let samples = column("sample_id", DataType::Int64);
    let wanted: Vec<u64> = (0..dataset.len().min(200)).collect();
    let globals = dataset.globals(&wanted).expect("rows of the table");
    for (row, global) in globals.iter().enumerate() {
        let (cache, sample) = dataset.locate(*global).expect("in range");
        let id = datasetrt_core::format::manifest::cache_id(cache.checksum());
        assert_eq!(ids.as_string::<i64>().value(row), id);
        assert_eq!(samples.as_primitive::<Int64Type>().value(row), sample as i64);
        assert_eq!(dataset.read_payload(*global).expect("golden"), base.payloads[*global as usize]);
    }
    dataset.metadata(&wanted, &globals).expect("it can be taken");
    let fingerprint = dataset.fingerprint().expect("it has one");
    let again = export(dataset);
    assert_eq!(again.num_rows(), table.num_rows());
    let weights = again.column_by_name("weight").expect("exported").as_primitive::<Float64Type>().clone();
    match table.column_by_name("weight") {
        Some(given) => {
            assert_eq!(&cast(given, &DataType::Float64).expect("checked").to_data(), &weights.to_data())
        }
        None => assert!(weights.values().iter().all(|weight| *weight == 1.0)),
    }
    let second = base.dataset.with_table(&again.schema(), [Ok(again)]).expect("what is exported is accepted");
    assert_eq!(second.fingerprint().expect("it has one"), fingerprint);
    let picked = dataset.select(&[dataset.len() - 1, 0]).expect("in range");
    assert_eq!(picked.global(1).expect("in range"), globals[0]);
    export(&picked);
    let recipe = dataset.recipe().expect("it can be pickled");
    let restored = Dataset::from_recipe(&recipe).expect("ours");
    assert_eq!(restored.fingerprint().expect("it has one"), fingerprint);
}
