//! A keyed permutation of `[0, len)` for any length.
//!
//! Small ones are tables, shuffled so that every order is equally likely; a Feistel network reaches
//! too few orders of a handful of items. Large ones are networks, which need no memory.

use super::feistel::Feistel;
use super::rng::Words;

/// The longest permutation that is kept as a table.
const TABLE_MAX: u64 = 1024;

/// One permutation, chosen by random words.
#[derive(Clone, Debug)]
pub(super) enum Permutation {
    Table(Box<[u16]>),
    Network(Box<Feistel>),
}

impl Permutation {
    /// The permutation of `[0, len)` that `words` choose; `len` is at most 2^63.
    pub(super) fn new(words: &Words, len: u64) -> Self {
        if len > TABLE_MAX {
            return Permutation::Network(Box::new(Feistel::new(words, len)));
        }
        let mut table: Box<[u16]> = (0..len as u16).collect();
        for i in (1..len).rev() {
            let j = words.below(i + 1, i / 4, (i % 4) as usize);
            table.swap(i as usize, j as usize);
        }
        Permutation::Table(table)
    }

    /// Replaces every index by its image; all are below the length.
    pub(super) fn apply(&self, indices: &mut [u64]) {
        match self {
            Permutation::Table(table) => {
                for index in indices {
                    *index = u64::from(table[*index as usize]);
                }
            }
            Permutation::Network(network) => network.apply(indices),
        }
    }

    /// The image of one index below the length.
    pub(super) fn at(&self, index: u64) -> u64 {
        match self {
            Permutation::Table(table) => u64::from(table[index as usize]),
            Permutation::Network(network) => network.at(index),
        }
    }

    /// The index whose image is `image`, which is below the length.
    pub(super) fn inverse(&self, image: u64) -> u64 {
        match self {
            // At most 1024 short entries: looking through them is cheaper than a second table.
            Permutation::Table(table) => table
                .iter()
                .zip(0..)
                .find(|(entry, _)| u64::from(**entry) == image)
                .map_or(0, |(_, index)| index),
            Permutation::Network(network) => network.inverse(image),
        }
    }
}
