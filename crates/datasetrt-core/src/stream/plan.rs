//! Which positions each rank gets at each step: arithmetic only.
//!
//! A global batch is a contiguous slice of the order. Each rank takes a contiguous part of it, so
//! that the positions delivered after some steps are the same whatever the number of ranks.

use std::ops::Range;

use crate::error::{Result, invalid};

/// What happens to the last global batch when it is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uneven {
    /// All ranks get equally many; the last ones repeat positions from the start of the epoch.
    Pad,
    /// All ranks get equally many; what does not divide is left out.
    Drop,
    /// Each position once; ranks may differ by one sample, and so by one batch.
    Keep,
    /// Every batch is full: the last global batch is filled up with positions from the start of the epoch.
    Fill,
}

impl Uneven {
    /// The mode behind its name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "pad" => Ok(Uneven::Pad),
            "drop" => Ok(Uneven::Drop),
            "keep" => Ok(Uneven::Keep),
            "fill" => Ok(Uneven::Fill),
            _ => Err(invalid(format!("uneven is '{name}'; choose 'pad', 'drop', 'keep' or 'fill'"))),
        }
    }
}

/// The steps of one rank through one epoch, from some position on.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    length: u64,
    start: u64,
    batch: u64,
    rank: u64,
    world: u64,
    uneven: Uneven,
    drop_last: bool,
}

/// The positions of one step of one rank; the last `padding` of them repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Positions in the order, each below its length.
    pub positions: Vec<u64>,
    /// How many at the end are padding.
    pub padding: u64,
}

/// More samples in a batch of one rank are refused: its lists alone would be hundreds of megabytes.
pub const MAX_BATCH: u64 = 1 << 24;

impl Plan {
    /// The plan of rank `rank` of `world` for the positions `start..length`, `batch` a step and rank.
    pub fn new(
        length: u64,
        start: u64,
        batch: u64,
        (rank, world): (u64, u64),
        uneven: Uneven,
        drop_last: bool,
    ) -> Result<Self> {
        if batch == 0 || world == 0 || rank >= world {
            return Err(invalid(format!(
                "batch_size {batch}, rank {rank}, world_size {world} do not go together; a batch has at least 1 sample and rank is below world_size"
            )));
        }
        if batch > MAX_BATCH {
            return Err(invalid(format!("batch_size is {batch}; choose at most {MAX_BATCH}")));
        }
        if start > length {
            return Err(invalid(format!(
                "position {start} is beyond the {length} positions of the epoch; begin within them"
            )));
        }
        batch.checked_mul(world).filter(|n| i64::try_from(*n).is_ok()).ok_or_else(|| {
            invalid(format!("batch_size {batch} times world_size {world} is too large; choose smaller ones"))
        })?;
        Ok(Plan { length, start, batch, rank, world, uneven, drop_last })
    }

    fn global(&self) -> u64 {
        self.batch * self.world
    }

    fn full_steps(&self) -> u64 {
        (self.length - self.start) / self.global()
    }

    fn remainder(&self) -> u64 {
        (self.length - self.start) % self.global()
    }

    /// Samples of a full step of this rank.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Positions in an epoch.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Number of steps of this rank.
    pub fn steps(&self) -> u64 {
        self.full_steps() + u64::from(self.last_share().end > self.last_share().start)
    }

    /// Samples of all steps of this rank, padding included.
    pub fn samples(&self) -> u64 {
        let share = self.last_share();
        self.full_steps() * self.batch + (share.end - share.start)
    }

    /// This rank's part of the last, unfull global batch, relative to its start; beyond the remainder it is padding.
    fn last_share(&self) -> Range<u64> {
        let rest = self.remainder();
        if rest == 0 || self.drop_last {
            return 0..0;
        }
        let each = match self.uneven {
            Uneven::Pad => rest.div_ceil(self.world),
            Uneven::Drop => rest / self.world,
            Uneven::Keep => return share(rest, self.rank, self.world),
            Uneven::Fill => self.batch,
        };
        self.rank * each..(self.rank + 1) * each
    }

    /// The positions of a step below [`Plan::steps`]; none beyond.
    pub fn step(&self, step: u64) -> Step {
        if step < self.full_steps() {
            let first = self.start + step * self.global() + self.rank * self.batch;
            return Step { positions: (first..first + self.batch).collect(), padding: 0 };
        }
        if step > self.full_steps() {
            return Step { positions: Vec::new(), padding: 0 };
        }
        let base = self.start + self.full_steps() * self.global();
        let share = self.last_share();
        let rest = self.remainder();
        let padding = share.end.saturating_sub(share.start.max(rest));
        // Padding begins at the first position of the epoch and goes round if need be.
        let position = |at: u64| if at < rest { base + at } else { (at - rest) % self.length };
        Step { positions: share.map(position).collect(), padding }
    }

    /// How far the whole run is once every rank was handed `steps` steps: the next position, or the
    /// length once nothing is left to deliver.
    pub fn position_after(&self, steps: u64) -> u64 {
        let last = match (self.drop_last, self.uneven) {
            (true, _) => false,
            (false, Uneven::Drop) => self.remainder() >= self.world,
            (false, _) => self.remainder() > 0,
        };
        if steps >= self.full_steps() + u64::from(last) {
            return self.length;
        }
        self.start + steps * self.global()
    }
}

/// Part `index` of `total` things in `parts` contiguous parts whose sizes differ by at most one.
fn share(total: u64, index: u64, parts: u64) -> Range<u64> {
    let (each, more) = (total / parts, total % parts);
    let start = index * each + index.min(more);
    start..start + each + u64::from(index < more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranks(length: u64, start: u64, batch: u64, world: u64, uneven: Uneven, drop_last: bool) -> Vec<Plan> {
        (0..world)
            .map(|rank| Plan::new(length, start, batch, (rank, world), uneven, drop_last).unwrap())
            .collect()
    }

    /// What all ranks deliver, step by step, without padding.
    fn delivered(plans: &[Plan]) -> Vec<u64> {
        let steps = plans.iter().map(Plan::steps).max().unwrap();
        let real = |plan: &Plan, step| {
            let mut found = plan.step(step);
            found.positions.truncate(found.positions.len() - found.padding as usize);
            found.positions
        };
        (0..steps).flat_map(|step| plans.iter().flat_map(move |plan| real(plan, step))).collect()
    }

    fn modes() -> impl Strategy<Value = Uneven> {
        prop_oneof![Just(Uneven::Pad), Just(Uneven::Drop), Just(Uneven::Keep), Just(Uneven::Fill)]
    }

    proptest! {
        #[test]
        fn ranks_together_deliver_the_order(length in 0u64..300, batch in 1u64..20, world in 1u64..9, uneven in modes(), drop_last: bool, skip in 0u64..300) {
            let start = skip.min(length);
            let plans = ranks(length, start, batch, world, uneven, drop_last);
            let rest = (length - start) % (batch * world);
            let left_out = match (drop_last, uneven) {
                (true, _) => rest,
                (false, Uneven::Drop) => rest % world,
                (false, _) => 0,
            };
            prop_assert_eq!(delivered(&plans), (start..length - left_out).collect::<Vec<_>>());
            if uneven != Uneven::Keep {
                prop_assert!(plans.iter().all(|p| p.steps() == plans[0].steps()));
            }
            for plan in &plans {
                prop_assert!(plan.step(plan.steps()).positions.is_empty());
                let samples: usize = (0..plan.steps()).map(|step| plan.step(step).positions.len()).sum();
                prop_assert_eq!(samples as u64, plan.samples());
                for step in 0..plan.steps() {
                    let found = plan.step(step);
                    prop_assert!(!found.positions.is_empty() && found.positions.len() as u64 <= batch);
                    prop_assert!(found.positions.iter().all(|p| *p < length));
                    prop_assert!(uneven != Uneven::Fill || found.positions.len() as u64 == batch);
                    prop_assert_eq!(plan.position_after(step + 1), plans[0].position_after(step + 1));
                }
            }
        }

        #[test]
        fn a_run_continues_with_another_number_of_ranks(length in 1u64..300, batch in 1u64..8, worlds in (1u64..5, 1u64..5), steps in 0u64..40) {
            let first = ranks(length, 0, batch, worlds.0, Uneven::Keep, false);
            let steps = steps.min(first.iter().map(Plan::steps).max().unwrap());
            let position = first[0].position_after(steps);
            let mut seen: Vec<u64> =
                (0..steps).flat_map(|step| first.iter().flat_map(move |plan| plan.step(step).positions)).collect();
            seen.extend(delivered(&ranks(length, position, batch, worlds.1, Uneven::Keep, false)));
            prop_assert_eq!(seen, (0..length).collect::<Vec<_>>());
        }
    }

    #[test]
    fn padding_repeats_the_start_of_the_epoch() {
        let plans = ranks(10, 0, 2, 4, Uneven::Pad, false);
        let last: Vec<_> = plans.iter().map(|p| p.step(1)).collect();
        assert_eq!(last[0], Step { positions: vec![8], padding: 0 });
        assert_eq!(last[2], Step { positions: vec![0], padding: 1 });
        assert_eq!(last[3], Step { positions: vec![1], padding: 1 });
    }

    #[test]
    fn a_filled_global_batch_does_not_depend_on_the_ranks() {
        let whole = ranks(7, 0, 12, 1, Uneven::Fill, false)[0].step(0);
        assert_eq!(whole, Step { positions: vec![0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4], padding: 5 });
        for world in [2, 3, 4, 6] {
            let parts: Vec<_> =
                ranks(7, 0, 12 / world, world, Uneven::Fill, false).iter().map(|p| p.step(0)).collect();
            assert_eq!(parts.iter().map(|p| p.padding).sum::<u64>(), 5);
            assert_eq!(parts.into_iter().flat_map(|p| p.positions).collect::<Vec<_>>(), whole.positions);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (batch, rank, world) in [(0, 0, 1), (1, 1, 1), (1, 0, 0), (u64::MAX, 0, 2)] {
            assert!(Plan::new(10, 0, batch, (rank, world), Uneven::Pad, false).is_err());
        }
        assert!(Plan::new(10, 11, 1, (0, 1), Uneven::Pad, false).is_err());
    }
}
