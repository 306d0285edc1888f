//! How long the parts of a read take. Looked at in some reads alone, because a clock costs as much as hashing a small
//! payload.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A part of a read that is timed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Comparing checksums.
    Verify,
    /// Decompressing.
    Decompress,
    /// Looking up rows and their metadata.
    Gather,
}

/// How long the parts of one or more reads took, and these reads as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Everything.
    pub whole: Duration,
    /// Comparing checksums.
    pub verify: Duration,
    /// Decompressing.
    pub decompress: Duration,
    /// Looking up rows and their metadata.
    pub gather: Duration,
}

impl Parts {
    /// What is left of the whole: reading files.
    pub fn files(&self) -> Duration {
        self.whole.saturating_sub(self.verify + self.decompress + self.gather)
    }
}

impl std::ops::AddAssign for Parts {
    fn add_assign(&mut self, other: Parts) {
        self.whole += other.whole;
        self.verify += other.verify;
        self.decompress += other.decompress;
        self.gather += other.gather;
    }
}

thread_local! {
    /// What was found in the read that this thread is watched at; none while it is not.
    static FOUND: Cell<Option<Parts>> = const { Cell::new(None) };
}

/// Runs `work` and tells how long its parts on this thread took.
pub(crate) fn watch<T>(work: impl FnOnce() -> T) -> (T, Parts) {
    FOUND.set(Some(Parts::default()));
    let begun = Instant::now();
    let made = work();
    let whole = begun.elapsed();
    (made, Parts { whole, ..FOUND.take().unwrap_or_default() })
}

/// Runs `work`, which is such a part.
pub(crate) fn timed<T>(part: Part, work: impl FnOnce() -> T) -> T {
    if FOUND.get().is_none() {
        return work();
    }
    let begun = Instant::now();
    let made = work();
    let took = begun.elapsed();
    if let Some(mut found) = FOUND.get() {
        match part {
            Part::Verify => found.verify += took,
            Part::Decompress => found.decompress += took,
            Part::Gather => found.gather += took,
        }
        FOUND.set(Some(found));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait() {
        std::thread::sleep(Duration::from_millis(2));
    }

    #[test]
    fn parts_are_told_apart_and_only_while_somebody_watches() {
        timed(Part::Verify, wait);
        let ((), found) = watch(|| {
            timed(Part::Verify, wait);
            timed(Part::Verify, wait);
            timed(Part::Gather, wait);
            wait();
        });
        assert!(found.verify >= 2 * found.gather.min(Duration::from_millis(2)), "{found:?}");
        assert_eq!(found.decompress, Duration::ZERO);
        assert!(found.whole >= found.verify + found.gather + Duration::from_millis(2), "{found:?}");
        assert_eq!(watch(|| ()).1.verify, Duration::ZERO);
    }
}
