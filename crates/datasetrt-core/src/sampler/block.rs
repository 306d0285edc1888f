//! Blocks of consecutive rows in random order, samples shuffled within windows of blocks.
//!
//! Three numberings meet here. A *row* lies in block `row / block`. A *place* is a row's number once
//! the blocks are laid out in their random order, in *slots*. A *position* is a place shuffled
//! within its window of slots. Only the last block may be short; wherever the permutation put it,
//! all places after it are `short` lower than slots of full size would have them.

use super::permutation::Permutation;
use super::rng::{Purpose, Words};

/// Positions handled together, so that the block permutation can overlap its work.
const CHUNK: usize = 64;

/// The order of one epoch.
#[derive(Clone, Debug)]
pub(super) struct BlockOrder {
    block: u64,
    blocks: u64,
    /// Slots in a window.
    window: u64,
    /// Rows that the last block lacks.
    short: u64,
    /// The slot of the last block.
    short_slot: u64,
    permutation: Permutation,
    window_words: Words,
}

/// Consecutive places that are shuffled among themselves.
struct Window {
    first: u64,
    size: u64,
    permutation: Permutation,
}

impl BlockOrder {
    /// `rows` is at most 2^63, `block_samples` and `window_blocks` at least 1.
    pub(super) fn new(rows: u64, seed: u64, epoch: u64, block_samples: u64, window_blocks: u64) -> Self {
        // With these limits blocks * block < 2 * rows <= 2^64, and nothing below overflows.
        let block = block_samples.min(rows).max(1);
        let blocks = rows.div_ceil(block);
        let window = window_blocks.min(blocks).max(1);
        let permutation = Permutation::new(&Words::new(seed, Purpose::Block, epoch), blocks);
        let short_slot = if blocks == 0 { 0 } else { permutation.inverse(blocks - 1) };
        BlockOrder {
            block,
            blocks,
            window,
            short: blocks * block - rows,
            short_slot,
            permutation,
            window_words: Words::new(seed, Purpose::Window, epoch),
        }
    }

    /// The row at a position below `rows`.
    pub(super) fn at(&self, position: u64) -> u64 {
        let window = self.window_of(position);
        let place = window.first + window.permutation.at(position - window.first);
        let (slot, offset) = self.slot_and_offset(place);
        self.permutation.at(slot) * self.block + offset
    }

    /// The rows at consecutive positions from `start`, all below `rows`.
    pub(super) fn fill(&self, start: u64, mut out: &mut [u64]) {
        let mut position = start;
        while !out.is_empty() {
            let window = self.window_of(position);
            let left = window.first + window.size - position;
            let count = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (now, later) = out.split_at_mut(count);
            for (entry, index) in now.iter_mut().zip(position - window.first..) {
                *entry = index;
            }
            window.permutation.apply(now);
            for chunk in now.chunks_mut(CHUNK) {
                self.places_to_rows(window.first, chunk);
            }
            position += count as u64;
            out = later;
        }
    }

    /// The position that reads a row below `rows`.
    pub(super) fn position_of(&self, row: u64) -> u64 {
        let slot = self.permutation.inverse(row / self.block);
        let place = self.begin(slot) + row % self.block;
        let window = self.window_of(place);
        window.first + window.permutation.inverse(place - window.first)
    }

    /// Replaces places, counted from `first`, by the rows they hold.
    fn places_to_rows(&self, first: u64, chunk: &mut [u64]) {
        let mut offsets = [0; CHUNK];
        for (entry, offset) in chunk.iter_mut().zip(&mut offsets) {
            (*entry, *offset) = self.slot_and_offset(first + *entry);
        }
        self.permutation.apply(chunk);
        for (entry, offset) in chunk.iter_mut().zip(offsets) {
            *entry = *entry * self.block + offset;
        }
    }

    /// The place at which a slot begins; `slot` may be one past the last.
    fn begin(&self, slot: u64) -> u64 {
        slot * self.block - if slot > self.short_slot { self.short } else { 0 }
    }

    fn slot_and_offset(&self, place: u64) -> (u64, u64) {
        let after = place >= self.begin(self.short_slot + 1);
        let full = place + if after { self.short } else { 0 };
        (full / self.block, full % self.block)
    }

    /// The window of a place or position: shuffling within windows does not move their borders.
    fn window_of(&self, place: u64) -> Window {
        let number = self.slot_and_offset(place).0 / self.window;
        let first_slot = number * self.window;
        let end_slot = self.blocks.min(first_slot.saturating_add(self.window));
        let first = self.begin(first_slot);
        let size = self.begin(end_slot) - first;
        Window { first, size, permutation: Permutation::new(&self.window_words.stream(number), size) }
    }
}
