//! XXH3 of long inputs with 512-bit instructions; an island of unsafe code.
//!
//! Verification is paid per byte, and the library that computes every other hash here has 256-bit
//! instructions at most: half the speed (docs/decisions/0005). This is the long branch of the algorithm alone, after its
//! specification, "XXH3 algorithm" in `doc/xxhash_spec.md` of xxHash 0.8; the library derives the secret, and is the
//! twin in the tests.

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "the processor is asked for the instructions first; each block says why it is sound"
    )
)]

use twox_hash::XxHash3_64;

const STRIPE_BYTES: usize = 64;
const BLOCK_BYTES: usize = 1024;
const SECRET_BYTES: usize = 192;
/// Where the secret of the last stripe begins, that of the merge, and that of the merge to the high half of 128 bits.
const LAST_STRIPE_SECRET: usize = SECRET_BYTES - STRIPE_BYTES - 7;
const MERGE_SECRET: usize = 11;
const MERGE_SECRET_HIGH: usize = SECRET_BYTES - STRIPE_BYTES - 11;

const PRIME32_1: u32 = 0x9E37_79B1;
const PRIME32_2: u32 = 0x85EB_CA77;
const PRIME32_3: u32 = 0xC2B2_AE3D;
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME64_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME64_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME64_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME64_5: u64 = 0x27D4_EB2F_1656_67C5;
const PRIME_MX1: u64 = 0x1656_6791_9E37_79F9;

type Stripe = [u8; STRIPE_BYTES];
type Block = [u8; BLOCK_BYTES];
type Secret = [u8; SECRET_BYTES];
type Accumulators = [u64; 8];

/// What every hash begins with.
static FIRST_ACCUMULATORS: Accumulators = [
    PRIME32_3 as u64,
    PRIME64_1,
    PRIME64_2,
    PRIME64_3,
    PRIME64_4,
    PRIME32_2 as u64,
    PRIME64_5,
    PRIME32_1 as u64,
];

/// Whether [`LongHasher`] is faster than the library, on this processor, for so many bytes; it takes them, too.
pub(super) fn worthwhile(bytes: u64) -> bool {
    // Below this its set-up costs what it saves.
    const LEAST_BYTES: u64 = 8 << 10;
    bytes >= LEAST_BYTES && has_wide_instructions()
}

/// XXH3-64 without a seed of many blocks, each by itself.
#[derive(Debug)]
pub struct BlockHasher {
    secret: Secret,
}

impl Default for BlockHasher {
    fn default() -> Self {
        BlockHasher { secret: secret_of(0) }
    }
}

impl BlockHasher {
    /// The hash of a block of 1024 bytes.
    pub fn hash(&self, block: &[u8; 1024]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if has_wide_instructions() {
            // SAFETY: the processor has just said that it has the instructions.
            let sums = unsafe { wide::accumulate_only_block(&self.secret, block) };
            let first = PRIME64_1.wrapping_mul(BLOCK_BYTES as u64);
            return merge(&sums, &self.secret, MERGE_SECRET, first);
        }
        XxHash3_64::oneshot(block)
    }
}

/// XXH3 with a seed of more than [`BLOCK_BYTES`] bytes, fed piece by piece.
pub(super) struct LongHasher {
    secret: Secret,
    accumulators: Accumulators,
    /// The last bytes, at most a block of them: what they become depends on whether any follow.
    held: Block,
    held_bytes: usize,
    /// The stripe that ends where the held bytes begin.
    before: Stripe,
    total_bytes: u64,
}

impl LongHasher {
    pub(super) fn new(seed: u64) -> Self {
        LongHasher {
            secret: secret_of(seed),
            accumulators: FIRST_ACCUMULATORS,
            held: [0; BLOCK_BYTES],
            held_bytes: 0,
            before: [0; STRIPE_BYTES],
            total_bytes: 0,
        }
    }

    pub(super) fn update(&mut self, mut piece: &[u8]) {
        self.total_bytes += piece.len() as u64;
        while !piece.is_empty() {
            if self.held_bytes == BLOCK_BYTES {
                let block = self.held;
                self.take(&[block]);
                self.held_bytes = 0;
            }
            if self.held_bytes == 0 && piece.len() > BLOCK_BYTES {
                let (blocks, rest) = piece.split_at((piece.len() - 1) / BLOCK_BYTES * BLOCK_BYTES);
                self.take(blocks.as_chunks().0);
                piece = rest;
                continue;
            }
            let (now, later) = piece.split_at(piece.len().min(BLOCK_BYTES - self.held_bytes));
            self.held[self.held_bytes..][..now.len()].copy_from_slice(now);
            self.held_bytes += now.len();
            piece = later;
        }
    }

    /// Blocks that are followed by at least one byte more.
    fn take(&mut self, blocks: &[Block]) {
        accumulate_blocks(&mut self.accumulators, &self.secret, blocks);
        if let Some(stripe) = blocks.last().and_then(|block| block.last_chunk()) {
            self.before = *stripe;
        }
    }

    pub(super) fn finish(&self) -> u64 {
        merge(&self.sums(), &self.secret, MERGE_SECRET, self.total_bytes.wrapping_mul(PRIME64_1))
    }

    /// XXH3-128 of the same bytes: that it shares all but the last step is part of its specification.
    pub(super) fn finish_128(&self) -> u128 {
        let sums = self.sums();
        let high = !self.total_bytes.wrapping_mul(PRIME64_2);
        u128::from(merge(&sums, &self.secret, MERGE_SECRET_HIGH, high)) << 64 | u128::from(self.finish())
    }

    /// The accumulators after all bytes.
    fn sums(&self) -> Accumulators {
        let mut accumulators = self.accumulators;
        let held = &self.held[..self.held_bytes];
        let followed = &held[..held.len().saturating_sub(1)];
        for (stripe, at) in followed.as_chunks().0.iter().zip((0..).step_by(8)) {
            accumulate(&mut accumulators, stripe, words(&self.secret, at));
        }
        let mut ends = [0; 2 * STRIPE_BYTES];
        let tail = held.last_chunk().map_or(held, |stripe: &Stripe| stripe);
        ends[..STRIPE_BYTES].copy_from_slice(&self.before);
        ends[STRIPE_BYTES..][..tail.len()].copy_from_slice(tail);
        let mut last = [0; STRIPE_BYTES];
        last.copy_from_slice(&ends[tail.len()..][..STRIPE_BYTES]);
        accumulate(&mut accumulators, &last, words(&self.secret, LAST_STRIPE_SECRET));
        accumulators
    }
}

fn secret_of(seed: u64) -> Secret {
    let mut secret = [0; SECRET_BYTES];
    let derived = XxHash3_64::with_seed(seed).into_secret();
    secret.iter_mut().zip(&*derived).for_each(|(place, byte)| *place = *byte);
    secret
}

/// The hash that sums over all bytes end in.
fn merge(accumulators: &Accumulators, secret: &Secret, secret_at: usize, first: u64) -> u64 {
    let keys = words(secret, secret_at);
    let pairs = accumulators.as_chunks().0.iter().zip(keys.as_chunks().0);
    let merged = pairs.fold(first, |sum, ([a, b], [key_a, key_b])| {
        let product = u128::from(a ^ key_a) * u128::from(b ^ key_b);
        sum.wrapping_add(product as u64 ^ (product >> 64) as u64)
    });
    let mixed = (merged ^ (merged >> 37)).wrapping_mul(PRIME_MX1);
    mixed ^ (mixed >> 32)
}

/// Eight little-endian words of the secret.
fn words(secret: &Secret, at: usize) -> [u64; 8] {
    let mut stripe = [0; STRIPE_BYTES];
    stripe.copy_from_slice(&secret[at..][..STRIPE_BYTES]);
    words_of(&stripe)
}

fn words_of(stripe: &Stripe) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(stripe.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn accumulate(accumulators: &mut Accumulators, stripe: &Stripe, keys: [u64; 8]) {
    let data = words_of(stripe);
    for (lane, (word, key)) in data.into_iter().zip(keys).enumerate() {
        let mixed = word ^ key;
        let product = (mixed & 0xFFFF_FFFF).wrapping_mul(mixed >> 32);
        accumulators[lane] = accumulators[lane].wrapping_add(product);
        accumulators[lane ^ 1] = accumulators[lane ^ 1].wrapping_add(word);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has_wide_instructions() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn has_wide_instructions() -> bool {
    is_x86_feature_detected!("avx512f")
}

fn accumulate_blocks(accumulators: &mut Accumulators, secret: &Secret, blocks: &[Block]) {
    #[cfg(target_arch = "x86_64")]
    if has_wide_instructions() {
        // SAFETY: the processor has just said that it has the instructions.
        return unsafe { wide::accumulate_blocks(accumulators, secret, blocks) };
    }
    accumulate_blocks_plainly(accumulators, secret, blocks);
}

/// What the wide instructions do, one word after the other.
fn accumulate_blocks_plainly(accumulators: &mut Accumulators, secret: &Secret, blocks: &[Block]) {
    for block in blocks {
        for (stripe, at) in block.as_chunks().0.iter().zip((0..).step_by(8)) {
            accumulate(accumulators, stripe, words(secret, at));
        }
        for (lane, key) in accumulators.iter_mut().zip(words(secret, SECRET_BYTES - STRIPE_BYTES)) {
            *lane = (*lane ^ (*lane >> 47) ^ key).wrapping_mul(u64::from(PRIME32_1));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_set1_epi32,
        _mm512_setzero_si512, _mm512_shuffle_epi32, _mm512_slli_epi64, _mm512_srli_epi64,
        _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    };

    use super::{
        Accumulators, BLOCK_BYTES, Block, FIRST_ACCUMULATORS, LAST_STRIPE_SECRET, PRIME32_1, STRIPE_BYTES,
        Secret,
    };

    #[target_feature(enable = "avx512f")]
    pub(super) fn accumulate_blocks(accumulators: &mut Accumulators, secret: &Secret, blocks: &[Block]) {
        // SAFETY: eight words of eight bytes lie there, and the instruction asks for no alignment.
        let mut sums = unsafe { _mm512_loadu_si512(accumulators.as_ptr().cast()) };
        let keys: [__m512i; 17] = std::array::from_fn(|number| load(secret, 8 * number));
        let [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15, last_key] = keys;
        let prime = _mm512_set1_epi32(PRIME32_1.cast_signed());
        for block in blocks {
            // A sum of its own: two short chains of additions instead of one long one.
            let mut swapped_sums = _mm512_setzero_si512();
            // Written out: a loop reads each key from memory again, which costs a quarter of the speed.
            macro_rules! accumulate {
                ($($number:literal $key:ident),*) => { $({
                    let data = load(block, $number * STRIPE_BYTES);
                    let mixed = _mm512_xor_si512(data, $key);
                    let product = _mm512_mul_epu32(mixed, _mm512_srli_epi64::<32>(mixed));
                    sums = _mm512_add_epi64(sums, product);
                    swapped_sums = _mm512_add_epi64(swapped_sums, _mm512_shuffle_epi32::<0b01_00_11_10>(data));
                })* };
            }
            accumulate!(0 k0, 1 k1, 2 k2, 3 k3, 4 k4, 5 k5, 6 k6, 7 k7);
            accumulate!(8 k8, 9 k9, 10 k10, 11 k11, 12 k12, 13 k13, 14 k14, 15 k15);
            sums = _mm512_add_epi64(sums, swapped_sums);
            // The exclusive or of three.
            let mixed =
                _mm512_ternarylogic_epi64::<0b1001_0110>(sums, _mm512_srli_epi64::<47>(sums), last_key);
            let low = _mm512_mul_epu32(mixed, prime);
            let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(mixed), prime);
            sums = _mm512_add_epi64(low, _mm512_slli_epi64::<32>(high));
        }
        // SAFETY: as above; nothing else refers to them meanwhile.
        unsafe { _mm512_storeu_si512(accumulators.as_mut_ptr().cast(), sums) }
    }

    /// Of a block that nothing precedes and nothing follows.
    #[target_feature(enable = "avx512f")]
    pub(super) fn accumulate_only_block(secret: &Secret, block: &Block) -> Accumulators {
        // SAFETY: eight words of eight bytes lie there, and the instruction asks for no alignment.
        let mut sums = unsafe { _mm512_loadu_si512(FIRST_ACCUMULATORS.as_ptr().cast()) };
        let mut swapped_sums = _mm512_setzero_si512();
        for stripe in 0..BLOCK_BYTES / STRIPE_BYTES {
            let key_at =
                if stripe == BLOCK_BYTES / STRIPE_BYTES - 1 { LAST_STRIPE_SECRET } else { 8 * stripe };
            let data = load(block, stripe * STRIPE_BYTES);
            let mixed = _mm512_xor_si512(data, load(secret, key_at));
            let product = _mm512_mul_epu32(mixed, _mm512_srli_epi64::<32>(mixed));
            sums = _mm512_add_epi64(sums, product);
            swapped_sums = _mm512_add_epi64(swapped_sums, _mm512_shuffle_epi32::<0b01_00_11_10>(data));
        }
        sums = _mm512_add_epi64(sums, swapped_sums);
        let mut found = [0; 8];
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(found.as_mut_ptr().cast(), sums) }
        found
    }

    /// The 64 bytes from `at`.
    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8], at: usize) -> __m512i {
        let stripe: &[u8] = &bytes[at..][..STRIPE_BYTES];
        // SAFETY: 64 bytes lie there, and the instruction asks for no alignment.
        unsafe { _mm512_loadu_si512(stripe.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use twox_hash::XxHash3_128;

    use super::*;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect()
    }

    fn in_pieces(seed: u64, data: &[u8], piece_bytes: usize) -> (u64, u128) {
        let mut hasher = LongHasher::new(seed);
        data.chunks(piece_bytes).for_each(|piece| hasher.update(piece));
        (hasher.finish(), hasher.finish_128())
    }

    fn of_library(seed: u64, data: &[u8]) -> (u64, u128) {
        (XxHash3_64::oneshot_with_seed(seed, data), XxHash3_128::oneshot_with_seed(seed, data))
    }

    #[test]
    fn every_length_has_the_hash_of_the_library() {
        let data = bytes(5000);
        for length in BLOCK_BYTES + 1..data.len() {
            let expected = of_library(7, &data[..length]);
            assert_eq!(in_pieces(7, &data[..length], length), expected, "{length}");
        }
    }

    proptest! {
        #[test]
        fn blocks_have_the_hash_of_the_library(block in prop::array::uniform32(any::<[u8; 32]>())) {
            let block: Block = block.concat().try_into().unwrap();
            prop_assert_eq!(BlockHasher::default().hash(&block), XxHash3_64::oneshot(&block));
        }

        #[test]
        fn any_pieces_have_the_hash_of_the_library(
            seed: u64,
            length in BLOCK_BYTES + 1..40_000,
            piece_bytes in 1usize..5000,
        ) {
            let data = bytes(length);
            let expected = of_library(seed, &data);
            prop_assert_eq!(in_pieces(seed, &data, piece_bytes), expected);
        }

        #[test]
        fn wide_instructions_do_what_the_plain_ones_do(
            mut accumulators: [u64; 8],
            secret in prop::array::uniform32(any::<[u8; 6]>()),
            data in prop::collection::vec(any::<u8>(), 0..4 * BLOCK_BYTES),
        ) {
            let mut plain = accumulators;
            let secret: Secret = secret.concat().try_into().unwrap();
            let blocks = data.as_chunks().0;
            accumulate_blocks(&mut accumulators, &secret, blocks);
            accumulate_blocks_plainly(&mut plain, &secret, blocks);
            prop_assert_eq!(accumulators, plain);
        }
    }
}
