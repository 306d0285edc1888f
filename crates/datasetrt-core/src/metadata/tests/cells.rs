//! Rows read from the file are those of the table in memory, and refused where that is refused.

use std::cell::RefCell;

use arrow_buffer::Buffer;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{CellFile, ReadAt};

/// A file that may change while it is open.
struct Bytes(RefCell<Vec<u8>>);

impl Bytes {
    fn new(bytes: Vec<u8>) -> Self {
        Bytes(RefCell::new(bytes))
    }
}

impl ReadAt for Bytes {
    fn bytes(&self) -> u64 {
        self.0.borrow().len() as u64
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.0.borrow();
        let place = usize::try_from(offset).ok().and_then(|start| bytes.get(start..start + out.len()));
        out.copy_from_slice(place.ok_or_else(|| Error::new(ErrorKind::UnexpectedEnd, "cut"))?);
        Ok(())
    }
}

fn taken(file: &Bytes, columns: &[ColumnInfo], rows: u64, picks: &[u64]) -> Result<RecordBatch> {
    CellFile::open(file, columns, rows)?.take(file, picks)?.take(&(0..picks.len() as u64).collect::<Vec<_>>())
}

fn assert_same(left: &RecordBatch, right: &RecordBatch) {
    assert_eq!((left.num_rows(), left.schema()), (right.num_rows(), right.schema()));
    for column in 0..left.num_columns() {
        for row in 0..left.num_rows() {
            assert!(same(batch_value(left, row, column), batch_value(right, row, column)));
        }
    }
}

proptest! {
    #[test]
    fn rows_are_those_of_the_table(
        model in models(40),
        shards in vec(any::<usize>(), 0..4),
        picks in vec((any::<prop::sample::Index>(), 1usize..6), 0..30),
    ) {
        let (bytes, columns) = model.file(&shards);
        let rows = model.rows.len() as u64;
        let picks: Vec<u64> = picks
            .iter()
            .flat_map(|(pick, run)| {
                let first = pick.index(model.rows.len());
                first..(first + run).min(model.rows.len())
            })
            .map(|row| row as u64)
            .collect();
        let table = Table::decode(Buffer::from(bytes.clone()), &columns, rows).unwrap();
        let file = Bytes::new(bytes);
        assert_same(&taken(&file, &columns, rows, &picks).unwrap(), &table.take(&picks).unwrap());
        let packed = CellFile::open(&file, &columns, rows).unwrap().pack(&file, u64::MAX).unwrap().unwrap();
        assert_same(&packed.take(&picks).unwrap(), &table.take(&picks).unwrap());
        for row in 0..rows {
            for column in 0..columns.len() {
                assert!(same(packed.value(row, column).unwrap(), table.value(row, column).unwrap()));
            }
        }
    }

    #[test]
    fn damage_is_refused_where_the_table_refuses_it(
        model in models(12),
        shards in vec(any::<usize>(), 0..3),
        place in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let (mut bytes, columns) = model.file(&shards);
        let rows = model.rows.len() as u64;
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let all: Vec<u64> = (0..rows).collect();
        let table = Table::decode(Buffer::from(bytes.clone()), &columns, rows);
        let file = Bytes::new(bytes);
        let packed = CellFile::open(&file, &columns, rows).and_then(|cells| cells.pack(&file, u64::MAX));
        match (taken(&file, &columns, rows, &all), table) {
            (Ok(found), Ok(table)) => {
                assert_same(&found, &table.take(&all).unwrap());
                assert_same(&packed.unwrap().unwrap().take(&all).unwrap(), &found);
            }
            (Err(error), Err(expected)) => {
                prop_assert_eq!(error.kind(), ErrorKind::BadMetadata);
                prop_assert!(!error.message().contains('\n'), "{}", error.message());
                prop_assert_eq!(expected.kind(), ErrorKind::BadMetadata);
            }
            (found, expected) => {
                prop_assert!(false, "found {:?}, expected {:?}", found.map(|_| ()), expected.map(|_| ()));
            }
        }
    }

    #[test]
    fn a_file_that_changes_while_it_is_open_is_an_error_or_other_values(
        model in models(12),
        place in any::<prop::sample::Index>(),
        change in vec(any::<u8>(), 1..9),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (bytes, columns) = model.file(&[]);
        let (rows, length) = (model.rows.len() as u64, bytes.len());
        let file = Bytes::new(bytes);
        let cells = CellFile::open(&file, &columns, rows).unwrap();
        let all: Vec<u64> = (0..rows).collect();
        cells.take(&file, &all).unwrap();
        let from = place.index(length);
        file.0.borrow_mut()[from..].iter_mut().zip(&change).for_each(|(byte, new)| *byte = *new);
        if let Some(cut) = cut {
            file.0.borrow_mut().truncate(cut.index(length));
        }
        match cells.take(&file, &all) {
            Ok(table) => prop_assert_eq!(table.rows(), rows),
            Err(error) => {
                prop_assert!(matches!(error.kind(), ErrorKind::BadMetadata | ErrorKind::UnexpectedEnd));
            }
        }
    }
}

#[test]
fn every_cut_is_refused() {
    let columns = [("i", ColumnType::Int64), ("t", ColumnType::String)];
    let row = |n: i64| vec![Cell::Int(n), if n == 2 { Cell::Null } else { Cell::Str(format!("é{n}")) }];
    let (bytes, columns) = Model::of(&columns, (0..5).map(row).collect()).file(&[2]);
    for length in 0..bytes.len() {
        let file = Bytes::new(bytes[..length].to_vec());
        assert!(taken(&file, &columns, 5, &[0, 1, 2, 3, 4]).is_err(), "{length} bytes");
    }
}

#[test]
fn rows_and_counts_that_are_not_there_are_named() {
    let model = Model::of(&[("i", ColumnType::Int64)], vec![vec![Cell::Int(1)], vec![Cell::Null]]);
    let (bytes, columns) = model.file(&[]);
    let file = Bytes::new(bytes);
    let error = taken(&file, &columns, 2, &[0, 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IndexOutOfRange);
    assert!(error.message().contains("sample 2"));
    assert!(taken(&file, &columns, 3, &[0]).unwrap_err().message().contains("2 rows, 3 expected"));
    let other = [ColumnInfo { null_count: 0, ..columns[0].clone() }];
    assert!(taken(&file, &other, 2, &[0]).unwrap_err().message().contains("1 nulls, 0 expected"));
    let other = [ColumnInfo { name: "j".into(), ..columns[0].clone() }];
    assert!(taken(&file, &other, 2, &[0]).unwrap_err().message().contains("not those in the manifest"));
}

#[test]
fn only_what_fits_is_packed() {
    let columns = [("label", ColumnType::Int64), ("name", ColumnType::String)];
    let name = |n: i64| Cell::Str(format!("sample number {n}"));
    let model = Model::of(&columns, (0..5000).map(|n| vec![Cell::Int(n % 7), name(n % 3)]).collect());
    let (bytes, columns) = model.file(&[1700, 3400]);
    let file = Bytes::new(bytes);
    let cells = CellFile::open(&file, &columns, 5000).unwrap();
    // Two bytes a row, and the values.
    assert!(cells.pack(&file, 12_000).unwrap().is_some());
    assert!(cells.pack(&file, 10_100).unwrap().is_none());
    // It is known without a look.
    file.0.borrow_mut().clear();
    assert!(cells.pack(&file, 9_999).unwrap().is_none());
    assert_eq!(cells.pack(&file, 12_000).unwrap_err().kind(), ErrorKind::UnexpectedEnd);
}
