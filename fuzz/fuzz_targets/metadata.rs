//! `metadata.arrow`: any bytes, against the columns of a golden cache and against those it names itself.
#![no_main]

use std::sync::LazyLock;

use arrow_buffer::Buffer;
use datasetrt_core::format::manifest::Manifest;
use datasetrt_core::metadata::{
    CellFile, ColumnInfo, ColumnType, ReadAt, Table, read_segment, write_segment,
};
use datasetrt_core::{Error, ErrorKind, Result};
use datasetrt_fuzz::{Files, GOLDEN, golden_folder};
use libfuzzer_sys::fuzz_target;

static CASES: LazyLock<Vec<(Vec<ColumnInfo>, u64)>> = LazyLock::new(|| {
    let case = |name: &&str| {
        let (manifest, _) =
            Manifest::decode(&Files::load(&golden_folder(name)).0["manifest.json"]).expect("golden");
        let columns = manifest.columns.iter().map(|c| ColumnInfo {
            name: c.name.clone(),
            ty: ColumnType::parse(&c.type_name).expect("golden"),
            null_count: c.null_count,
        });
        (columns.collect(), manifest.sample_count)
    };
    GOLDEN.iter().map(case).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (columns, rows) = &CASES[usize::from(*choice) % CASES.len()];
    both(bytes, columns, *rows);
    let Ok(batches) = read_segment(bytes.to_vec()) else { return };
    for batch in &batches {
        for column in batch.columns() {
            column.to_data().validate_full().expect("what was decoded keeps Arrow's rules");
        }
    }
    // Whatever batches it has can be written, and what we write we read: the same values.
    let Some(first) = batches.first() else { return };
    let mut again = Vec::new();
    write_segment(&mut again, &batches).expect("decoded batches can be written");
    let second = read_segment(again).expect("what we write we read");
    let count = |batches: &[arrow_array::RecordBatch]| batches.iter().map(|b| b.num_rows()).sum::<usize>();
    assert_eq!(count(&second), count(&batches));
    assert!(second.first().is_none_or(|s| s.num_columns() == first.num_columns()));
    // The table behind it, as if a manifest described just this file.
    let schema = first.schema();
    let typed: Option<Vec<_>> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(number, field)| {
            let ty = ColumnType::ALL.into_iter().find(|ty| ty.arrow() == *field.data_type())?;
            let nulls = batches.iter().map(|b| b.column(number).null_count() as u64).sum();
            Some(ColumnInfo { name: field.name().clone(), ty, null_count: nulls })
        })
        .collect();
    let Some(columns) = typed else { return };
    let rows = count(&batches) as u64;
    both(bytes, &columns, rows);
});

struct Bytes<'a>(&'a [u8]);

impl ReadAt for Bytes<'_> {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let end = || Error::new(ErrorKind::UnexpectedEnd, "the file ends before");
        let start = usize::try_from(offset).map_err(|_| end())?;
        let part = start.checked_add(out.len()).and_then(|stop| self.0.get(start..stop)).ok_or_else(end)?;
        out.copy_from_slice(part);
        Ok(())
    }
}

/// The reader of small files, and that of large ones, which leaves the cells where they are: what one
/// delivers the other delivers as well.
fn both(bytes: &[u8], columns: &[ColumnInfo], rows: u64) {
    let table = Table::decode(Buffer::from_vec(bytes.to_vec()), columns, rows);
    let wanted: Vec<u64> = (0..rows.min(5000)).collect();
    let cells = CellFile::open(&Bytes(bytes), columns, rows).and_then(|c| c.take(&Bytes(bytes), &wanted));
    if let Ok(table) = &table {
        look_at(table, columns, rows);
        let cells = cells.expect("a sound file is sound to both");
        let whole: Vec<u64> = (0..wanted.len() as u64).collect();
        let found = cells.take(&whole).expect("in range");
        let expected = table.take(&wanted).expect("in range");
        for (found, expected) in found.columns().iter().zip(expected.columns()) {
            assert_eq!(found.to_data(), expected.to_data());
        }
    }
}

fn look_at(table: &Table, columns: &[ColumnInfo], rows: u64) {
    assert_eq!(table.rows(), rows);
    let wanted: Vec<u64> = (0..rows.min(300)).rev().collect();
    let taken = table.take(&wanted).expect("rows in range");
    assert_eq!(taken.num_rows(), wanted.len());
    for row in wanted {
        for column in 0..columns.len() {
            table.value(row, column).expect("a cell in range");
        }
    }
    assert!(table.take(&[rows]).is_err());
    assert!(table.value(0, columns.len()).is_err());
}
