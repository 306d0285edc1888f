//! `index.bin`: a header, then for each sample the offset at which its record ends.

use super::VERSION;
use super::wire::{bytes, put, u32_at, u64_at};
use crate::error::{Error, ErrorKind, Result};

/// Size of the header; row 0 begins here.
pub const HEADER_BYTES: usize = 32;
/// Size of a row.
pub const ROW_BYTES: usize = 8;

/// How the file begins.
pub const MAGIC: &[u8; 8] = b"DRTINDEX";
const FIELD_VERSION: usize = 8;
const FIELD_ROW_BYTES: usize = FIELD_VERSION + 4;
const FIELD_SAMPLES: usize = FIELD_ROW_BYTES + 4;
const FIELD_ZERO: usize = FIELD_SAMPLES + 8;

/// The header for `samples` rows.
pub fn encode_header(samples: u64) -> [u8; HEADER_BYTES] {
    let mut block = [0; HEADER_BYTES];
    put(&mut block, 0, MAGIC);
    put(&mut block, FIELD_VERSION, &VERSION.to_le_bytes());
    put(&mut block, FIELD_ROW_BYTES, &(ROW_BYTES as u32).to_le_bytes());
    put(&mut block, FIELD_SAMPLES, &samples.to_le_bytes());
    block
}

/// Checks a header against the number of samples that the manifest states.
pub fn check_header(block: &[u8; HEADER_BYTES], samples: u64) -> Result<()> {
    let version = u32_at(block, FIELD_VERSION);
    if bytes::<8, HEADER_BYTES>(block, 0) == *MAGIC && version != VERSION {
        return Err(Error::new(
            ErrorKind::UnsupportedVersion,
            format!(
                "index.bin has format version {version}, this release reads {VERSION}; upgrade datasetrt"
            ),
        ));
    }
    let rows = u64_at(block, FIELD_SAMPLES);
    if *block != encode_header(samples) || u64_at(block, FIELD_ZERO) != 0 {
        let what = match rows == samples {
            true => "a damaged header".to_owned(),
            false => format!("a header of {rows} samples, {samples} expected"),
        };
        return Err(Error::new(
            ErrorKind::IndexChecksum,
            format!("index.bin has {what}; rebuild the cache with on_stale='rebuild'"),
        ));
    }
    Ok(())
}

/// The size of the file for `samples` rows, if it is a possible size.
pub fn file_bytes(samples: u64) -> Option<u64> {
    samples.checked_mul(ROW_BYTES as u64)?.checked_add(HEADER_BYTES as u64)
}

/// The rows behind their bytes; a trailing part of a row is ignored.
pub fn decode_rows(data: &[u8]) -> Vec<u64> {
    let (rows, _) = data.as_chunks::<ROW_BYTES>();
    rows.iter().map(|row| u64::from_le_bytes(*row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_exact() {
        let block = encode_header(12);
        assert!(check_header(&block, 12).is_ok());
        assert!(check_header(&block, 13).is_err());
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check_header(&flipped, 12).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(file_bytes(2), Some(48));
        assert_eq!(file_bytes(u64::MAX / 4), None);
    }
}
