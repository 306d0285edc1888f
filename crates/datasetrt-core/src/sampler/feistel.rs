//! A keyed permutation of a large range in constant memory: a Feistel network over two digits.
//!
//! An index is written as two digits, `index = left * right_size + right`, with sizes so chosen that
//! the digits cover hardly more than the range. A round adds to one digit a keyed hash of the other,
//! which can be undone, so twelve of them are a permutation of all digit pairs. The few results
//! beyond the range are sent through again ("cycle walking"): following one cycle of the
//! permutation from inside the range must come back inside, so that ends.
//!
//! Each round waits for the one before; throughput comes from working on several indices at once.

use super::rng::{Words, wide_mul};

const ROUNDS: usize = 12;
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Indices worked on at once.
const LANES: usize = 8;

/// A permutation of `[0, len)`.
#[derive(Clone, Debug)]
pub(super) struct Feistel {
    len: u64,
    left_size: u64,
    right_size: u64,
    rounds: [Round; ROUNDS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    add: u64,
    multiply: u64,
}

impl Round {
    /// What is added to a digit of `size`, given the `other` digit.
    #[inline(always)]
    fn step(self, other: u64, size: u64) -> u64 {
        let hash = other.wrapping_add(self.add).wrapping_mul(self.multiply);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(MIX);
        wide_mul(hash, size).0
    }
}

impl Feistel {
    /// The permutation that `words` choose; `1 <= len <= 2^63`.
    pub(super) fn new(words: &Words, len: u64) -> Self {
        let root = len.isqrt();
        let left_size = if root * root == len { root } else { root + 1 };
        let right_size = len.div_ceil(left_size);
        let mut rounds = [Round::default(); ROUNDS];
        for (pair, position) in rounds.chunks_exact_mut(2).zip(0..) {
            let [add0, multiply0, add1, multiply1] = words.block(position, 0);
            pair[0] = Round { add: add0, multiply: multiply0 | 1 };
            pair[1] = Round { add: add1, multiply: multiply1 | 1 };
        }
        Feistel { len, left_size, right_size, rounds }
    }

    /// Replaces every index by its image; all are below `len`.
    pub(super) fn apply(&self, indices: &mut [u64]) {
        let (groups, rest) = indices.as_chunks_mut::<LANES>();
        for group in groups {
            self.permute(group);
            for index in group {
                *index = self.walk(*index);
            }
        }
        for index in rest {
            *index = self.at(*index);
        }
    }

    /// The image of one index below `len`.
    pub(super) fn at(&self, index: u64) -> u64 {
        let mut one = [index];
        self.permute(&mut one);
        self.walk(one[0])
    }

    /// The index whose image is `image`, which is below `len`.
    pub(super) fn inverse(&self, image: u64) -> u64 {
        let mut index = self.unpermute(image);
        while index >= self.len {
            index = self.unpermute(index);
        }
        index
    }

    #[inline(always)]
    fn walk(&self, mut index: u64) -> u64 {
        while index >= self.len {
            let mut one = [index];
            self.permute(&mut one);
            index = one[0];
        }
        index
    }

    #[inline(always)]
    fn permute<const N: usize>(&self, indices: &mut [u64; N]) {
        let mut left = indices.map(|index| index / self.right_size);
        let mut right = indices.map(|index| index % self.right_size);
        for pair in self.rounds.chunks_exact(2) {
            for lane in 0..N {
                let moved = left[lane] + pair[0].step(right[lane], self.left_size);
                left[lane] = wrap(moved, self.left_size);
            }
            for lane in 0..N {
                let moved = right[lane] + pair[1].step(left[lane], self.right_size);
                right[lane] = wrap(moved, self.right_size);
            }
        }
        for lane in 0..N {
            indices[lane] = left[lane] * self.right_size + right[lane];
        }
    }

    fn unpermute(&self, index: u64) -> u64 {
        let (mut left, mut right) = (index / self.right_size, index % self.right_size);
        for pair in self.rounds.chunks_exact(2).rev() {
            right = unwrap_step(right, pair[1].step(left, self.right_size), self.right_size);
            left = unwrap_step(left, pair[0].step(right, self.left_size), self.left_size);
        }
        left * self.right_size + right
    }
}

/// `moved` modulo `size`, for a sum of two numbers below `size`.
#[inline(always)]
fn wrap(moved: u64, size: u64) -> u64 {
    if moved >= size { moved - size } else { moved }
}

/// `digit - step` modulo `size`, for two numbers below `size`.
#[inline(always)]
fn unwrap_step(digit: u64, step: u64, size: u64) -> u64 {
    if digit >= step { digit - step } else { digit + size - step }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Purpose;
    use super::*;

    #[test]
    fn digits_cover_the_range_and_little_more() {
        let lens = (1..5000).chain((0..62).flat_map(|e| [(2 << e) - 1, 2 << e])).chain([1 << 63]);
        for len in lens {
            let network = Feistel::new(&Words::new(0, Purpose::Shuffle, 0), len);
            let covered = network.left_size.checked_mul(network.right_size).unwrap();
            assert!(covered >= len && covered - len < network.left_size, "{len}");
        }
    }

    #[test]
    fn every_result_lies_in_the_range_although_some_walk() {
        // 1025 = 33 * 32 - 31: the largest share of results outside that any network has.
        let network = Feistel::new(&Words::new(3, Purpose::Shuffle, 0), 1025);
        let walked = |index: u64| {
            let mut one = [index];
            network.permute(&mut one);
            one[0] >= network.len
        };
        assert!((0..1025).any(walked));
        assert!((0..1025).all(|index| network.at(index) < 1025));
    }
}
