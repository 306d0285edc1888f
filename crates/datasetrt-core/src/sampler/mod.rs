//! I have a position of an epoch; which row is read there?
//!
//! A [`Sampler`] is what the user chose. [`Sampler::bind`] checks it against the rows and weights of
//! one dataset and gives an [`Order`], which is valid for every epoch; [`Order::epoch`] gives the
//! [`EpochOrder`] that maps positions to rows. Each is a pure function of its inputs: no files,
//! threads, clocks or state. The algorithms are those of `docs/sampling.md`, which never change.
//!
//! ```text
//! rng          seed, purpose, epoch, position -> random words
//! feistel      a keyed permutation of a large range, in constant memory
//! permutation  a keyed permutation of any range
//! block        blocks, and samples within windows of blocks
//! weighted     draws by weight, with and without replacement
//! order        the public types: checks, then one of the above
//! ```

mod block;
mod feistel;
mod order;
mod permutation;
mod rng;
mod weighted;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod statistics;

pub use order::{EpochOrder, Order, Sampler};
