//! Files that no writer wrote. The decoder under the panic guard is called directly, so that a
//! panic fails the test instead of becoming an error.

use arrow_buffer::Buffer;
use arrow_ipc as ipc;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::metadata::ipc::{decode_file, guarded};
use crate::metadata::read_segment;

fn sample() -> Model {
    let columns = [
        ("i", ColumnType::Int64),
        ("f", ColumnType::Float64),
        ("b", ColumnType::Bool),
        ("t", ColumnType::String),
        ("none", ColumnType::String),
    ];
    let row = |n: i64| {
        let maybe = |cell| if n % 4 == 1 { Cell::Null } else { cell };
        vec![
            maybe(Cell::Int(n)),
            Cell::Float(n as f64),
            maybe(Cell::Bool(true)),
            maybe(Cell::Str(format!("é{n}"))),
            Cell::Null,
        ]
    };
    Model::of(&columns, (0..12).map(row).collect())
}

/// Decodes without the guard; what decodes is read to the last cell.
fn attack(bytes: &[u8], columns: &[ColumnInfo], rows: u64) -> bool {
    let Ok(decoded) = decode_file(&Buffer::from(bytes)) else {
        return false;
    };
    for batch in &decoded.batches {
        for column in batch.columns() {
            // Touches every value, offset and bit, as a user would.
            assert_eq!(column.to_data().validate_full().err().map(|e| e.to_string()), None);
        }
    }
    match Table::decode(Buffer::from(bytes), columns, rows) {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::BadMetadata);
            assert!(!error.message().contains('\n'));
            false
        }
        Ok(table) => {
            let all: Vec<u64> = (0..rows).collect();
            assert_eq!(table.take(&all).unwrap().num_rows() as u64, rows);
            true
        }
    }
}

#[test]
fn every_truncation_is_refused() {
    let (bytes, columns) = sample().file(&[5]);
    assert!(attack(&bytes, &columns, 12));
    for end in 0..bytes.len() {
        assert!(!attack(&bytes[..end], &columns, 12), "cut to {end} bytes");
        assert_eq!(read_segment(bytes[..end].to_vec()).unwrap_err().kind(), ErrorKind::BadMetadata);
    }
}

#[test]
fn no_flipped_bit_panics() {
    let (bytes, columns) = sample().file(&[5]);
    let mut refused = 0;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            refused += usize::from(!attack(&bytes, &columns, 12));
        }
    }
    assert!(refused > 1000, "{refused} refused: the attack did not reach the decoder");
}

#[test]
fn no_extreme_number_anywhere_panics() {
    let (bytes, columns) = sample().file(&[5]);
    for at in 0..bytes.len() {
        for word in [0, 1, -1, i64::MAX, i64::MIN, 1 << 31, (1 << 31) - 1, 1 << 40, 65_537] {
            for width in [2, 4, 8] {
                let mut bytes = bytes.clone();
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
                attack(&bytes, &columns, 12);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_random_damage_panics(
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        model in models(20),
    ) {
        let (mut bytes, columns) = model.file(&[7]);
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        attack(&bytes, &columns, model.rows.len() as u64);
    }

    #[test]
    fn no_bytes_at_all_panic(bytes in vec(any::<u8>(), 0..300)) {
        let framed = [b"ARROW1\0\0".as_slice(), &bytes, b"\x20\0\0\0ARROW1"].concat();
        attack(&bytes, &[], 0);
        attack(&framed, &[], 0);
    }
}

#[test]
fn another_schema_row_count_or_null_count_is_refused() {
    let (bytes, columns) = sample().file(&[5]);
    let refuse = |change: &dyn Fn(&mut Vec<ColumnInfo>), rows, words: &str| {
        let mut columns = columns.clone();
        change(&mut columns);
        let error = Table::decode(Buffer::from(bytes.as_slice()), &columns, rows).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadMetadata);
        assert!(error.message().contains(words), "{error}");
    };
    refuse(&|_| (), 11, "12 rows, 11 expected");
    refuse(&|c| c.truncate(4), 12, "columns");
    refuse(&|c| c[0].name = "j".to_owned(), 12, "columns");
    refuse(&|c| c[0].ty = ColumnType::Float64, 12, "columns");
    refuse(&|c| c.swap(0, 1), 12, "columns");
    refuse(&|c| c[0].null_count += 1, 12, "'i' has 3 nulls, 4 expected");
}

/// The footer's blocks, as places in the file.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let tail = bytes.len() - 10;
    let length = i32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let footer = ipc::root_as_footer(&bytes[tail - length..tail]).unwrap();
    let places = footer.recordBatches().unwrap().iter().map(|block| {
        let offset = block.offset().to_le_bytes();
        (tail - length..tail - 8).find(|at| bytes[*at..*at + 8] == offset).unwrap()
    });
    places.collect()
}

#[test]
fn one_batch_named_twice_is_refused() {
    let model = Model::of(&[("i", ColumnType::Int64)], (0..10).map(|n| vec![Cell::Int(n)]).collect());
    let (mut bytes, columns) = model.file(&[5]);
    let places = blocks(&bytes);
    let first: Vec<u8> = bytes[places[0]..places[0] + 24].to_vec();
    assert!(attack(&bytes, &columns, 10));
    bytes[places[1]..places[1] + 24].copy_from_slice(&first);
    let error = Table::decode(Buffer::from(bytes), &columns, 10).unwrap_err();
    assert!(error.message().contains("over another one"), "{error}");
}

#[test]
fn names_that_no_writer_lets_through_are_refused() {
    for names in [["weight", "a"], ["a", "a"], ["", "a"]] {
        let columns: Vec<_> = names.iter().map(|n| ((*n).to_owned(), Some(ColumnType::Bool))).collect();
        let (bytes, info) = MetadataWriter::new(Vec::new(), &columns).unwrap().finish().unwrap();
        let error = Table::decode(Buffer::from(bytes), &info, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadMetadata, "{error}");
    }
}

#[test]
fn types_that_metadata_never_has_are_refused() {
    use arrow_array::{Float32Array, Int32Array, StringArray, UInt64Array};
    let arrays: [(&str, Arc<dyn Array>); 4] = [
        ("int32", Arc::new(Int32Array::from(vec![1]))),
        ("uint64", Arc::new(UInt64Array::from(vec![1]))),
        ("float32", Arc::new(Float32Array::from(vec![1.0]))),
        ("utf8", Arc::new(StringArray::from(vec!["x"]))),
    ];
    for array in arrays {
        let batch = RecordBatch::try_from_iter([array]).unwrap();
        let mut writer = ipc::writer::FileWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
        writer.write(&batch).unwrap();
        let error = read_segment(writer.into_inner().unwrap()).unwrap_err();
        assert!(error.message().contains("type"), "{error}");
    }
}

#[test]
fn dictionaries_are_refused() {
    let words: arrow_array::DictionaryArray<arrow_array::types::Int32Type> =
        ["x", "y", "x"].into_iter().collect();
    let batch = RecordBatch::try_from_iter([("d", Arc::new(words) as Arc<dyn Array>)]).unwrap();
    let mut writer = ipc::writer::FileWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    writer.write(&batch).unwrap();
    let error = read_segment(writer.into_inner().unwrap()).unwrap_err();
    assert!(error.message().contains("dictionaries"), "{error}");
}

#[test]
fn a_panic_while_decoding_is_an_error() {
    let error = guarded::<()>(|| panic!("a rule of a dependency")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadMetadata);
}
