//! Fixed-width little-endian fields of headers: the only byte-level helpers.

/// Copies `N` bytes at `offset`. Offsets are constants inside a block whose size the type fixes.
pub(super) fn bytes<const N: usize, const BLOCK: usize>(block: &[u8; BLOCK], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(found) = block.get(offset..offset + N) {
        out.copy_from_slice(found);
    }
    out
}

pub(super) fn u32_at<const BLOCK: usize>(block: &[u8; BLOCK], offset: usize) -> u32 {
    u32::from_le_bytes(bytes(block, offset))
}

pub(super) fn u64_at<const BLOCK: usize>(block: &[u8; BLOCK], offset: usize) -> u64 {
    u64::from_le_bytes(bytes(block, offset))
}

/// Writes `value` at `offset`; a field outside the block is a mistake that the round-trip tests see.
pub(super) fn put<const BLOCK: usize>(block: &mut [u8; BLOCK], offset: usize, value: &[u8]) {
    if let Some(place) = block.get_mut(offset..offset + value.len()) {
        place.copy_from_slice(value);
    }
}
