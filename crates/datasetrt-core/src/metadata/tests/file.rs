//! Rows through segments into the file and back.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, LargeStringArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc as ipc;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::metadata::gather::{Cells, Chunks, IntCells};
use crate::metadata::{MAX_BATCH_ROWS, read_segment, write_segment};

/// Through everything that must not show in the bytes: batches cut anywhere, a new builder after
/// each of them, segments written and read back.
fn file_the_long_way(model: &Model, shards: &[usize], cuts: &[usize]) -> Vec<u8> {
    let mut builder = RowBuilder::new(None).unwrap();
    let mut segments = Vec::new();
    for shard in split(model.rows.len(), shards) {
        let mut batches = vec![];
        for piece in split(shard.len(), cuts) {
            model.push(&mut builder, shard.start + piece.start..shard.start + piece.end);
            batches.push(builder.take_batch().unwrap());
            builder = RowBuilder::resume(builder.columns().to_vec()).unwrap();
        }
        let mut bytes = Vec::new();
        write_segment(&mut bytes, &batches).unwrap();
        segments.push(bytes);
    }
    let mut writer = MetadataWriter::new(Vec::new(), builder.columns()).unwrap();
    for segment in segments {
        writer.write_shard(&read_segment(segment).unwrap()).unwrap();
    }
    writer.finish().unwrap().0
}

proptest! {
    #[test]
    fn bytes_depend_on_rows_and_shards_alone(
        model in models(40),
        shards in vec(any::<usize>(), 0..4),
        cuts in vec(any::<usize>(), 0..6),
    ) {
        let (bytes, _) = model.file(&shards);
        prop_assert_eq!(&file_the_long_way(&model, &shards, &cuts), &bytes);
    }

    #[test]
    fn cells_come_back(model in models(40), shards in vec(any::<usize>(), 0..4)) {
        let table = model.table(&shards);
        for (row, cells) in model.rows.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let found = table.value(row as u64, column).unwrap();
                prop_assert!(same(found, cell.value()), "{:?} is not {:?}", found, cell);
            }
        }
        prop_assert_eq!(table.rows(), model.rows.len() as u64);
        prop_assert_eq!(table.starts().len(), split(model.rows.len(), &shards).len());
    }

    #[test]
    fn take_is_the_rows_one_by_one(
        model in models(40),
        shards in vec(any::<usize>(), 0..4),
        picks in vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let table = model.table(&shards);
        let rows: Vec<u64> = picks.iter().map(|p| p.index(model.rows.len()) as u64).collect();
        let taken = table.take(&rows).unwrap();
        prop_assert_eq!(taken.num_rows(), rows.len());
        for (at, row) in rows.iter().enumerate() {
            for (column, cell) in model.rows[*row as usize].iter().enumerate() {
                prop_assert!(same(batch_value(&taken, at, column), cell.value()));
            }
        }
    }
}

fn three_columns(rows: i64) -> Model {
    let row = |n: i64| {
        let text = if n % 3 == 0 { Cell::Null } else { Cell::Str(format!("row {n}")) };
        vec![Cell::Int(n), text, Cell::Bool(n % 2 == 0)]
    };
    let columns = [("n", ColumnType::Int64), ("t", ColumnType::String), ("b", ColumnType::Bool)];
    Model::of(&columns, (0..rows).map(row).collect())
}

#[test]
fn long_shards_are_split_and_rows_found_across_batches() {
    let rows = MAX_BATCH_ROWS as i64 + 10;
    let model = three_columns(2 * rows);
    let table = model.table(&[rows as usize]);
    let batch = MAX_BATCH_ROWS as u64;
    assert_eq!(table.starts(), [0, batch, batch + 10, 2 * batch + 10]);
    for row in [0, 65_535, 65_536, rows - 1, rows, 2 * rows - 1] {
        assert_eq!(table.value(row as u64, 0).unwrap(), Value::Int(row));
    }
    let cuts = [1, 70_000, 65_536, 3];
    assert!(file_the_long_way(&model, &[rows as usize], &cuts) == model.file(&[rows as usize]).0);
}

#[test]
fn rows_out_of_range_are_named() {
    let table = three_columns(5).table(&[]);
    for error in [table.take(&[0, 5]).unwrap_err(), table.value(5, 0).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::IndexOutOfRange);
        assert!(error.message().contains("sample 5"), "{error}");
    }
    assert_eq!(table.value(0, 3).unwrap_err().kind(), ErrorKind::IndexOutOfRange);
}

#[test]
fn what_lies_under_nulls_and_around_slices_is_not_written() {
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let all_valid = || Some(NullBuffer::new_valid(3));
    let dirty = RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::new(vec![1, 77, 3].into(), nulls())) as ArrayRef, true),
        ("v", Arc::new(Int64Array::new(vec![1, 2, 3].into(), all_valid())) as ArrayRef, true),
        ("b", Arc::new(BooleanArray::new(BooleanBuffer::new_set(3), nulls())) as ArrayRef, true),
        ("t", Arc::new(dirty_strings(nulls())) as ArrayRef, true),
    ]);
    let dirty = dirty.unwrap();
    let columns: Vec<_> = ["n", "v", "b", "t"]
        .into_iter()
        .zip([ColumnType::Int64, ColumnType::Int64, ColumnType::Bool, ColumnType::String])
        .collect();
    let row = |n: i64, null: bool| {
        let or_null = |cell| if null { Cell::Null } else { cell };
        vec![
            or_null(Cell::Int(n)),
            Cell::Int(n),
            or_null(Cell::Bool(true)),
            or_null(Cell::Str("ab".to_owned())),
        ]
    };
    let clean = Model::of(&columns, vec![row(1, false), row(2, true), row(3, false)]);
    let (bytes, info) = clean.file(&[]);
    let named: Vec<_> = info.iter().map(|c| (c.name.clone(), Some(c.ty))).collect();
    for batches in [vec![dirty.clone()], vec![dirty.slice(0, 2), dirty.slice(2, 1)]] {
        let mut writer = MetadataWriter::new(Vec::new(), &named).unwrap();
        writer.write_shard(&batches).unwrap();
        let (written, found) = writer.finish().unwrap();
        assert_eq!(found, info);
        assert!(written == bytes);
    }
}

/// "ab", a null with text under it, "ab", in a buffer that starts and ends with other text.
fn dirty_strings(nulls: Option<NullBuffer>) -> LargeStringArray {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![1_i64, 3, 4, 6]));
    LargeStringArray::new(offsets, Buffer::from(b"xab!abz"), nulls)
}

#[test]
fn undecided_columns_are_strings_in_the_file() {
    let mut builder = RowBuilder::new(None).unwrap();
    builder.push(0, &[("a", Value::Null)]).unwrap();
    let batch = builder.take_batch().unwrap();
    let mut segment = Vec::new();
    write_segment(&mut segment, std::slice::from_ref(&batch)).unwrap();
    assert_eq!(read_segment(segment).unwrap(), std::slice::from_ref(&batch));
    let mut writer = MetadataWriter::new(Vec::new(), builder.columns()).unwrap();
    writer.write_shard(&[batch]).unwrap();
    let (_, columns) = writer.finish().unwrap();
    let expected = ColumnInfo { name: "a".to_owned(), ty: ColumnType::String, null_count: 1 };
    assert_eq!(columns, [expected]);
}

#[test]
fn no_columns_at_all() {
    let model = Model::of(&[], vec![vec![]; 5]);
    let table = model.table(&[2]);
    assert_eq!(table.rows(), 5);
    assert_eq!(table.take(&[4, 4]).unwrap().num_rows(), 2);
    assert!(table.take(&[5]).is_err());
    assert_eq!(file_the_long_way(&model, &[2], &[1]), model.file(&[2]).0);
}

#[test]
fn batches_of_other_columns_are_refused() {
    let mut builder = RowBuilder::new(None).unwrap();
    builder.push(0, &[("a", Value::Int(1))]).unwrap();
    let batch = builder.take_batch().unwrap();
    for columns in [vec![], vec![("b", ColumnType::Int64)], vec![("a", ColumnType::Bool)]] {
        let columns: Vec<_> = columns.into_iter().map(|(n, ty)| (n.to_owned(), Some(ty))).collect();
        let mut writer = MetadataWriter::new(Vec::new(), &columns).unwrap();
        let error = writer.write_shard(std::slice::from_ref(&batch)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Bug);
    }
    assert_eq!(write_segment(&mut Vec::new(), &[]).unwrap_err().kind(), ErrorKind::Bug);
}

#[test]
fn a_full_disk_is_a_storage_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = MetadataWriter::new(Full, &[]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
}

#[test]
fn buffers_lie_at_multiples_of_64_and_nothing_is_compressed() {
    let (bytes, _) = three_columns(100).file(&[37]);
    let tail = bytes.len() - 10;
    let length = i32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let footer = ipc::root_as_footer(&bytes[tail - length..tail]).unwrap();
    assert!(footer.custom_metadata().is_none());
    let blocks = footer.recordBatches().unwrap();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let start = block.offset() as usize;
        let body = start + block.metaDataLength() as usize;
        let message = ipc::root_as_message(&bytes[start + 8..body]).unwrap();
        let batch = message.header_as_record_batch().unwrap();
        assert!(batch.compression().is_none());
        for buffer in batch.buffers().unwrap() {
            assert_eq!((body + buffer.offset() as usize) % 64, 0);
        }
    }
}

#[test]
fn tables_are_views_of_the_bytes() {
    let model = three_columns(100);
    let (bytes, columns) = model.file(&[]);
    let bytes = Buffer::from(bytes);
    let table = Table::decode(bytes.clone(), &columns, 100).unwrap();
    let Some(Chunks::Int(chunks)) = table.chunks(0) else { panic!("another type") };
    let [IntCells::Cells(Cells::Plain(array))] = &chunks[..] else { panic!("not as it is") };
    let inside = bytes.as_slice().as_ptr_range();
    assert!(inside.contains(&array.to_data().buffers()[0].as_ptr()), "the column was copied");
    // At an odd address a copy is made, and the values are the same.
    let mut shifted = vec![0_u8; 1];
    shifted.extend_from_slice(&bytes);
    for skew in 1..8 {
        let odd = Buffer::from([&vec![0; skew], bytes.as_slice()].concat()).slice(skew);
        let moved = Table::decode(odd, &columns, 100).unwrap();
        let all: Vec<u64> = (0..100).collect();
        assert_eq!(moved.take(&all), table.take(&all));
    }
}
