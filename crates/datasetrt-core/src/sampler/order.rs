//! What the user chose, bound to a dataset, then to an epoch.

use super::block::BlockOrder;
use super::permutation::Permutation;
use super::rng::{Purpose, Words};
use super::weighted::{WeightTable, check_weights, draw_once};
use crate::error::{Error, ErrorKind, Result, invalid};
use std::sync::Arc;

/// The most rows or positions of an order: each then fits a signed 64-bit number.
const MAX_LEN: u64 = 1 << 63;

/// How the rows of a dataset are put in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sampler {
    /// Rows as they are in the active table.
    Sequential,
    /// Every row once an epoch, in random order. Constant memory at any size.
    Shuffle {
        /// Chooses the orders of all epochs.
        seed: u64,
    },
    /// Every row once an epoch; rows that are neighbours are read at about the same time.
    BlockShuffle {
        /// Chooses the orders of all epochs.
        seed: u64,
        /// Consecutive rows in a block; at least 1.
        block_samples: u64,
        /// Blocks whose samples are shuffled together; at least 1.
        window_blocks: u64,
    },
    /// Rows drawn by weight.
    Weighted {
        /// Chooses the draws of all epochs.
        seed: u64,
        /// Draws in an epoch; as many as there are rows if absent.
        num_samples: Option<u64>,
        /// Independent draws; otherwise each row at most once.
        replacement: bool,
    },
}

/// A sampler bound to the rows and weights of one dataset; valid for every epoch, cheap to clone.
#[derive(Clone, Debug)]
pub struct Order {
    rows: u64,
    len: u64,
    seed: u64,
    plan: Plan,
}

/// What an [`Order`] keeps for all epochs.
#[derive(Clone, Debug)]
enum Plan {
    Sequential,
    Shuffle,
    Blocks { block_samples: u64, window_blocks: u64 },
    Draws(Arc<WeightTable>),
    Once(Option<Arc<Vec<f64>>>),
}

/// The order of one epoch; cheap to clone.
///
/// Making one costs little, except for weighted draws without replacement, where it sorts all rows:
/// keep it for as long as the epoch lasts.
#[derive(Clone, Debug)]
pub struct EpochOrder {
    rows: u64,
    len: u64,
    map: Arc<Map>,
}

/// How positions of one epoch become rows.
#[derive(Debug)]
enum Map {
    Sequential,
    Shuffle(Permutation),
    Blocks(BlockOrder),
    Draws(Words, Arc<WeightTable>),
    Once(Vec<u64>),
}

impl Sampler {
    /// Checks the sampler against a dataset; without `weights` every row weighs 1.0.
    ///
    /// Only [`Sampler::Weighted`] looks at weights. Orders of no rows are empty.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a count is 0, there are more than 2^63 rows, the weights are not one finite
    /// positive number a row with a sum between 1e-280 and 1e280, or more draws are asked for than
    /// there are rows; `Empty` if draws are asked for where there are no rows.
    pub fn bind(&self, rows: u64, weights: Option<Arc<Vec<f64>>>) -> Result<Order> {
        if rows > MAX_LEN {
            return Err(invalid(format!("{rows} rows are more than the {MAX_LEN} that an order can have")));
        }
        let (len, plan) = match *self {
            Sampler::Sequential => (rows, Plan::Sequential),
            Sampler::Shuffle { .. } => (rows, Plan::Shuffle),
            Sampler::BlockShuffle { block_samples, window_blocks, .. } => {
                check_positive("BlockShuffle", "block_samples", block_samples)?;
                check_positive("BlockShuffle", "window_blocks", window_blocks)?;
                (rows, Plan::Blocks { block_samples, window_blocks })
            }
            Sampler::Weighted { num_samples, replacement, .. } => {
                let len = check_draws(num_samples, replacement, rows)?;
                (len, weighted_plan(rows, weights, replacement)?)
            }
        };
        Ok(Order { rows, len, seed: self.seed(), plan })
    }

    fn seed(&self) -> u64 {
        match *self {
            Sampler::Sequential => 0,
            Sampler::Shuffle { seed }
            | Sampler::BlockShuffle { seed, .. }
            | Sampler::Weighted { seed, .. } => seed,
        }
    }
}

fn weighted_plan(rows: u64, weights: Option<Arc<Vec<f64>>>, replacement: bool) -> Result<Plan> {
    if let Some(weights) = &weights {
        check_weights(weights, rows)?;
    }
    if replacement {
        Ok(Plan::Draws(Arc::new(WeightTable::new(rows, weights.as_deref().map(Vec::as_slice))?)))
    } else {
        Ok(Plan::Once(weights))
    }
}

fn check_positive(sampler: &str, argument: &str, value: u64) -> Result<()> {
    if value == 0 {
        return Err(invalid(format!("{sampler}: {argument} is 0; it must be at least 1")));
    }
    Ok(())
}

/// The number of draws in an epoch.
fn check_draws(num_samples: Option<u64>, replacement: bool, rows: u64) -> Result<u64> {
    let Some(draws) = num_samples else {
        return Ok(rows);
    };
    check_positive("Weighted", "num_samples", draws)?;
    if rows == 0 {
        let message = format!("Weighted: num_samples is {draws}, but there are no rows to draw from");
        return Err(Error::new(ErrorKind::Empty, message));
    }
    if draws > MAX_LEN {
        return Err(invalid(format!("Weighted: num_samples is {draws}; it must be at most {MAX_LEN}")));
    }
    if !replacement && draws > rows {
        return Err(invalid(format!(
            "Weighted: num_samples is {draws} but there are {rows} rows to draw without replacement; \
             ask for at most {rows} or set replacement=True"
        )));
    }
    Ok(draws)
}

impl Order {
    /// Positions in an epoch, the same in every epoch.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether an epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The order of one epoch.
    ///
    /// # Errors
    ///
    /// `Io` if there is no memory for the rows of weighted draws without replacement.
    pub fn epoch(&self, epoch: u64) -> Result<EpochOrder> {
        let map = match &self.plan {
            Plan::Sequential => Map::Sequential,
            Plan::Shuffle => {
                let words = Words::new(self.seed, Purpose::Shuffle, epoch);
                Map::Shuffle(Permutation::new(&words, self.rows))
            }
            Plan::Blocks { block_samples, window_blocks } => {
                Map::Blocks(BlockOrder::new(self.rows, self.seed, epoch, *block_samples, *window_blocks))
            }
            Plan::Draws(table) => {
                Map::Draws(Words::new(self.seed, Purpose::Weighted, epoch), Arc::clone(table))
            }
            Plan::Once(weights) => {
                let words = Words::new(self.seed, Purpose::Once, epoch);
                Map::Once(draw_once(&words, self.rows, weights.as_deref().map(Vec::as_slice), self.len)?)
            }
        };
        Ok(EpochOrder { rows: self.rows, len: self.len, map: Arc::new(map) })
    }

    /// A seed below 2^63 for a random transform of the sample at a position.
    pub fn transform_seed(&self, epoch: u64, position: u64) -> u64 {
        Words::new(self.seed, Purpose::Transform, epoch).block(position, 0)[0] >> 1
    }

    /// The row to read instead of one that cannot be read, at the given attempt from 0.
    ///
    /// All rows are equally likely, that of the position too. Without rows it is 0.
    pub fn substitute(&self, epoch: u64, position: u64, attempt: u64) -> u64 {
        let words = Words::new(self.seed, Purpose::Substitute, epoch).stream(attempt);
        words.below(self.rows.max(1), position, 0)
    }
}

impl EpochOrder {
    /// The row at a position.
    ///
    /// # Errors
    ///
    /// `IndexOutOfRange` if the order has no such position.
    pub fn at(&self, position: u64) -> Result<u64> {
        self.check_positions(position, 1)?;
        Ok(match &*self.map {
            Map::Sequential => position,
            Map::Shuffle(permutation) => permutation.at(position),
            Map::Blocks(blocks) => blocks.at(position),
            Map::Draws(words, table) => table.draw(words, position),
            Map::Once(drawn) => drawn[position as usize],
        })
    }

    /// The rows at consecutive positions from `start`, as many as `out` holds.
    ///
    /// # Errors
    ///
    /// `IndexOutOfRange` if the order has not all of these positions; `out` is then unchanged.
    pub fn fill(&self, start: u64, out: &mut [u64]) -> Result<()> {
        self.check_positions(start, out.len() as u64)?;
        match &*self.map {
            Map::Sequential => count_from(start, out),
            Map::Shuffle(permutation) => {
                count_from(start, out);
                permutation.apply(out);
            }
            Map::Blocks(blocks) => blocks.fill(start, out),
            Map::Draws(words, table) => {
                for (entry, position) in out.iter_mut().zip(start..) {
                    *entry = table.draw(words, position);
                }
            }
            Map::Once(drawn) => {
                let start = start as usize;
                out.copy_from_slice(&drawn[start..start + out.len()]);
            }
        }
        Ok(())
    }

    /// The rows at any positions, one for each entry of `out`; runs of neighbours are looked up together.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the two differ in length, `IndexOutOfRange` if the order has not all of these
    /// positions.
    pub fn look_up(&self, positions: &[u64], out: &mut [u64]) -> Result<()> {
        if positions.len() != out.len() {
            return Err(invalid(format!(
                "{} positions for {} rows; give one each",
                positions.len(),
                out.len()
            )));
        }
        let mut rest = out;
        for run in positions.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
            let Some((now, later)) = rest.split_at_mut_checked(run.len()) else { break };
            self.fill(run.first().copied().unwrap_or_default(), now)?;
            rest = later;
        }
        Ok(())
    }

    /// The position at which a row is read.
    ///
    /// # Errors
    ///
    /// `IndexOutOfRange` if the dataset has no such row; `InvalidArgument` for draws with replacement,
    /// which may read a row any number of times, and for a row that was not drawn.
    pub fn position_of(&self, row: u64) -> Result<u64> {
        if row >= self.rows {
            return Err(out_of_range(format!(
                "row {row} is not in the dataset; {}",
                range(self.rows, "rows")
            )));
        }
        match &*self.map {
            Map::Sequential => Ok(row),
            Map::Shuffle(permutation) => Ok(permutation.inverse(row)),
            Map::Blocks(blocks) => Ok(blocks.position_of(row)),
            Map::Draws(..) => Err(invalid(format!(
                "row {row} has no one position: Weighted draws with replacement; \
                 look it up in indices(), or set replacement=False"
            ))),
            Map::Once(drawn) => match drawn.iter().zip(0..).find(|(drawn, _)| **drawn == row) {
                Some((_, position)) => Ok(position),
                None => Err(invalid(format!(
                    "row {row} is not among the {} of {} rows drawn in this epoch; \
                     look at indices() first, or draw all rows",
                    self.len, self.rows
                ))),
            },
        }
    }

    fn check_positions(&self, start: u64, count: u64) -> Result<()> {
        match start.checked_add(count) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(out_of_range(format!(
                "{count} positions from {start} are not all in the order; {}",
                range(self.len, "positions")
            ))),
        }
    }
}

fn count_from(start: u64, out: &mut [u64]) {
    for (entry, position) in out.iter_mut().zip(start..) {
        *entry = position;
    }
}

fn out_of_range(message: String) -> Error {
    Error::new(ErrorKind::IndexOutOfRange, message)
}

fn range(len: u64, what: &str) -> String {
    match len {
        0 => format!("it has no {what}"),
        _ => format!("{what} run from 0 to {}", len - 1),
    }
}
