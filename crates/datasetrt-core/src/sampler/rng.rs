//! Random words as a function of where they are used: Philox4x64-10.
//!
//! Seed, purpose, epoch and position are separate words of the generator's input. They are never
//! added, so no two of (seed, epoch, position) share a stream.

const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
const KEY_STEPS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];
const ROUNDS: usize = 10;

/// What the random words are for. Two purposes never share a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The order of [`super::Sampler::Shuffle`].
    Shuffle = 1,
    /// The order of blocks.
    Block = 2,
    /// The order inside one window of blocks.
    Window = 3,
    /// Draws with replacement.
    Weighted = 4,
    /// Draws without replacement.
    Once = 5,
    /// Seeds for the user's random transforms.
    Transform = 6,
    /// Replacements for samples that cannot be read.
    Substitute = 7,
}

/// All the random words of one (seed, purpose, epoch, stream).
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    key: [u64; 2],
    epoch: u64,
    stream: u64,
}

impl Words {
    pub(super) fn new(seed: u64, purpose: Purpose, epoch: u64) -> Self {
        Words { key: [seed, purpose as u64], epoch, stream: 0 }
    }

    /// The same words but for one more independent input, such as the number of a window.
    pub(super) fn stream(self, stream: u64) -> Self {
        Words { stream, ..self }
    }

    /// Four random words.
    pub(super) fn block(&self, position: u64, lane: u64) -> [u64; 4] {
        philox([position, self.epoch, lane, self.stream], self.key)
    }

    /// A random multiple of 2^-53 in [0, 1), as the integer that 2^-53 is multiplied with.
    pub(super) fn bits53(&self, position: u64) -> u64 {
        self.block(position, 0)[0] >> 11
    }

    /// An integer in `[0, bound)`, all equally likely; `bound` is at least 1.
    pub(super) fn below(&self, bound: u64, position: u64, word: usize) -> u64 {
        // 2^64 modulo bound: that many words would make small values too frequent.
        let refused = bound.wrapping_neg() % bound;
        let mut lane = 0;
        loop {
            let (high, low) = wide_mul(self.block(position, lane)[word], bound);
            if low >= refused {
                return high;
            }
            lane += 1;
        }
    }
}

/// The upper and lower half of the 128-bit product.
#[inline(always)]
pub(super) fn wide_mul(x: u64, y: u64) -> (u64, u64) {
    let product = u128::from(x) * u128::from(y);
    ((product >> 64) as u64, product as u64)
}

/// Philox4x64-10 of Salmon, Moraes, Dror and Shaw (SC 2011).
pub(super) fn philox(counter: [u64; 4], key: [u64; 2]) -> [u64; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let (high0, low0) = wide_mul(MULTIPLIERS[0], c0);
        let (high1, low1) = wide_mul(MULTIPLIERS[1], c2);
        (c0, c1, c2, c3) = (high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0);
        k0 = k0.wrapping_add(KEY_STEPS[0]);
        k1 = k1.wrapping_add(KEY_STEPS[1]);
    }
    [c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with Random123.
    #[test]
    fn philox_gives_the_published_vectors() {
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b, 0x7e68b68aec7ba23b]
        );
        assert_eq!(
            philox([u64::MAX; 4], [u64::MAX; 2]),
            [0x87b092c3013fe90b, 0x438c3c67be8d0224, 0x9cc7d7c69cd777b6, 0xa09caebf594f0ba0]
        );
        assert_eq!(
            philox(
                [0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89],
                [0x452821e638d01377, 0xbe5466cf34e90c6c]
            ),
            [0xa528f45403e61d95, 0x38c72dbd566e9788, 0xa5a1610e72fd18b5, 0x57bd43b5e52b7fe6]
        );
    }

    #[test]
    fn below_refuses_words_that_would_be_one_too_many() {
        // For 2^63 + 1 nearly half of all words are refused, so the next lane is needed often.
        let words = Words::new(1, Purpose::Substitute, 0);
        let bound = (1 << 63) + 1;
        let first_lane = |p| wide_mul(words.block(p, 0)[0], bound).0;
        let moved = (0..1000).filter(|&p| words.below(bound, p, 0) != first_lane(p)).count();
        assert!((400..600).contains(&moved), "{moved} of 1000 draws went to another lane");
        assert!((0..1000).all(|p| words.below(1, p, 0) == 0));
    }
}
