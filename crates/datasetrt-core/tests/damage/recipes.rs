//! Pickled datasets with any bit flipped: refused, or a dataset, and never more memory than their bytes explain.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Date32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::Schema;
use datasetrt_core::read::{Dataset, ReadOptions};

use super::allocation::peak;

/// Several times what the small tables here take, far less than what a flipped length may state.
const MOST_BYTES: usize = 1 << 20;

fn with_added_columns() -> Dataset {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/caches/format-1/plain");
    let dataset = Dataset::open(&[folder], ReadOptions::default()).unwrap();
    let table = dataset.export().unwrap().next().unwrap().unwrap();
    let rows = table.num_rows() as i32;
    let mut fields: Vec<_> = table.schema().fields().iter().cloned().collect();
    let mut columns = table.columns().to_vec();
    let added = RecordBatch::try_from_iter([
        ("note", Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("n{n}")))) as _),
        ("day", Arc::new(Date32Array::from_iter_values(0..rows)) as _),
        ("rank", Arc::new(Int64Array::from_iter((0..rows).map(|n| (n > 1).then_some(i64::from(n))))) as _),
    ])
    .unwrap();
    fields.extend(added.schema().fields().iter().cloned());
    columns.extend(added.columns().iter().cloned());
    let schema = Arc::new(Schema::new(fields));
    let table = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    dataset.with_table(&schema, [Ok(table)]).unwrap()
}

#[test]
fn flipped_bits_in_a_recipe() {
    let recipe = with_added_columns().recipe().unwrap();
    let (length, rest) = recipe.split_first_chunk::<8>().unwrap();
    let (header, frame) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut body = zstd::decode_all(frame).unwrap();
    assert!(body.len() > 500, "{}", body.len());
    let sealed = |body: &[u8]| [&length[..], header, &zstd::bulk::compress(body, 1).unwrap()].concat();
    assert!(Dataset::from_recipe(&sealed(&body)).is_ok());
    // Arrow's reader panics on some of them, which is caught; what a trace of that takes is not what is measured.
    std::panic::set_hook(Box::new(|_| ()));
    let (mut refused, mut most, mut largest) = (0, 0, 0_usize);
    for bit in 0..body.len() * 8 {
        body[bit / 8] ^= 1 << (bit % 8);
        let forged = sealed(&body);
        let (followed, held) = peak(|| Dataset::from_recipe(&forged).is_ok());
        refused += usize::from(!followed);
        if held > most {
            (most, largest) = (held, bit);
        }
        body[bit / 8] ^= 1 << (bit % 8);
    }
    drop(std::panic::take_hook());
    assert!(most < MOST_BYTES, "{most} bytes, bit {largest}");
    println!("{} cases, {refused} refused, at most {most} bytes allocated", body.len() * 8);
    assert!(refused > 100, "{refused}");
}
