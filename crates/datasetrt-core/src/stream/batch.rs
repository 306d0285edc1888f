//! One batch: from step numbers to positions, rows, payloads and metadata.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow_array::RecordBatch;

use super::StreamOptions;
use super::plan::{MAX_BATCH, Plan};
use crate::error::{Error, ErrorKind, Result, invalid};
use crate::exec::Watch;
use crate::memory;
use crate::read::timing::{Part, timed};
use crate::read::{Arrangement, Dataset, Failure, Payloads};
use crate::sampler::{EpochOrder, Order};

/// What happens to a sample whose bytes are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorrupt {
    /// The batch fails with the sample's error.
    Raise,
    /// Another sample takes its place: the same one in every run, on every rank and machine.
    Substitute,
}

impl OnCorrupt {
    /// The policy behind its name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "raise" => Ok(OnCorrupt::Raise),
            "substitute" => Ok(OnCorrupt::Substitute),
            _ => Err(invalid(format!("on_corrupt is '{name}'; choose 'raise' or 'substitute'"))),
        }
    }
}

/// A damaged sample and what took its place.
#[derive(Clone, Debug)]
pub struct Substitution {
    /// Its place in the batch.
    pub place: usize,
    /// Its position in the epoch.
    pub position: u64,
    /// Its row.
    pub row: u64,
    /// Its global row.
    pub global: u64,
    /// The row that was delivered instead.
    pub replacement: u64,
    /// What is wrong with it.
    pub error: Error,
}

/// What the lists of a batch take for each row while it is read and handed out, compressed records' included.
const BYTES_PER_ROW: usize = 256;

/// Samples read together. All lists have one entry a sample.
#[derive(Debug)]
pub struct Batch {
    /// Rows of the active table.
    pub rows: Vec<u64>,
    /// The same as global rows.
    pub globals: Vec<u64>,
    /// Positions in the epoch's order; empty for samples that were asked for by row.
    pub positions: Vec<u64>,
    /// Whether a sample only fills up the batch.
    pub padding: Vec<bool>,
    /// Whether another sample was damaged, and this one is here in its place.
    pub substituted: Vec<bool>,
    /// Their bytes.
    pub payloads: Payloads,
    /// Their metadata, if it was known to be wanted when they were read.
    pub metadata: Option<RecordBatch>,
    /// Damaged samples that were replaced.
    pub substitutions: Vec<Substitution>,
}

impl Batch {
    /// Bytes of all payloads, without what lies between them.
    pub fn bytes(&self) -> u64 {
        self.payloads.lengths.iter().map(|length| *length as u64).sum()
    }

    /// The samples of some rows, in the order given. `interrupted` is asked every tenth of a second whether to give
    /// up.
    ///
    /// # Errors
    ///
    /// A row out of range, before anything is read; or the first sample that cannot be read; `closed` if
    /// `interrupted` said so.
    pub fn of_rows(dataset: &Dataset, rows: Vec<u64>, interrupted: &mut dyn FnMut() -> bool) -> Result<Self> {
        let mut watch = Watch::new(interrupted);
        memory::ask("a batch's lists", rows.len().saturating_mul(BYTES_PER_ROW))?;
        let globals = dataset.globals(&rows)?;
        let arrangement = Arrangement { pool: Some(Arc::clone(dataset.spare())), split: None };
        let payloads = dataset.read_payloads(&globals, &arrangement, &mut || watch.check());
        let payloads = payloads.map_err(|failure| failure.error)?;
        Ok(Batch {
            padding: vec![false; rows.len()],
            substituted: vec![false; rows.len()],
            rows,
            globals,
            positions: Vec::new(),
            payloads,
            metadata: None,
            substitutions: Vec::new(),
        })
    }
}

/// How often something was to stand in for a sample, and which substitution it is.
struct Tries {
    at: usize,
    count: u64,
}

/// Everything that decides the batches of a stream.
#[derive(Clone)]
pub(super) struct Source {
    dataset: Dataset,
    order: Order,
    epoch_order: EpochOrder,
    plan: Plan,
    options: StreamOptions,
    arrangement: Arrangement,
}

impl Source {
    pub(super) fn new(dataset: Dataset, order: Order, plan: Plan, options: StreamOptions) -> Result<Self> {
        if options.steps_per_read == 0 || options.steps_per_read > MAX_BATCH {
            return Err(invalid(format!(
                "steps_per_read is {}; choose 1 to {MAX_BATCH}",
                options.steps_per_read
            )));
        }
        let pool = options.pool.clone().unwrap_or_else(|| options.new_pool());
        let arrangement = Arrangement { pool: Some(pool), split: options.split.clone() };
        Ok(Source { epoch_order: order.epoch(options.epoch)?, dataset, order, plan, options, arrangement })
    }

    /// The same with memory of its own: in a forked child the pool may be locked for ever.
    pub(super) fn in_child(&self) -> Self {
        let arrangement = Arrangement { pool: Some(self.options.new_pool()), ..self.arrangement.clone() };
        Source { arrangement, ..self.clone() }
    }

    /// Number of reads.
    pub(super) fn reads(&self) -> u64 {
        self.plan.steps().div_ceil(self.options.steps_per_read)
    }

    /// Reads number `number`: one step or several. `proceed` is asked before each sample, and ends the read with its
    /// error.
    pub(super) fn read(&self, number: u64, proceed: &mut dyn FnMut() -> Result<()>) -> Result<Batch> {
        let first = number * self.options.steps_per_read;
        let last = (first + self.options.steps_per_read).min(self.plan.steps());
        let rows = self.options.steps_per_read.saturating_mul(self.plan.batch()).min(self.plan.samples());
        memory::ask(
            "a batch's lists",
            usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_ROW),
        )?;
        let mut positions = Vec::new();
        let mut padding = Vec::new();
        for step in first..last {
            let step = self.plan.step(step);
            let real = step.positions.len() - usize::try_from(step.padding).unwrap_or(0);
            padding.extend((0..step.positions.len()).map(|at| at >= real));
            positions.extend(step.positions);
        }
        let mut rows = vec![0; positions.len()];
        timed(Part::Gather, || self.epoch_order.look_up(&positions, &mut rows))?;
        let (globals, payloads, substitutions) = self.payloads(&positions, &mut rows, proceed)?;
        let mut substituted = vec![false; rows.len()];
        for found in &substitutions {
            substituted.get_mut(found.place).into_iter().for_each(|it| *it = true);
        }
        let wanted = self.options.metadata_wanted.load(Relaxed);
        let metadata = match wanted {
            true => Some(timed(Part::Gather, || self.dataset.metadata(&rows, &globals))?),
            false => None,
        };
        Ok(Batch { rows, globals, positions, padding, substituted, payloads, metadata, substitutions })
    }

    /// Reads rows, and puts others in the place of damaged ones.
    fn payloads(
        &self,
        positions: &[u64],
        rows: &mut [u64],
        proceed: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Vec<u64>, Payloads, Vec<Substitution>)> {
        /// So many replacements in a row are not damaged samples any more but a damaged cache.
        const MOST_ATTEMPTS: u64 = 64;
        let mut globals = self.dataset.globals(rows)?;
        let mut substitutions: Vec<Substitution> = Vec::new();
        // By place: a position may be there again as padding, and has the same replacement there.
        let mut tries: HashMap<usize, Tries> = HashMap::new();
        loop {
            let Failure { place, error } =
                match self.dataset.read_payloads(&globals, &self.arrangement, proceed) {
                    Ok(payloads) => return Ok((globals, payloads, substitutions)),
                    Err(failure) => failure,
                };
            let (Some(row), Some(global)) = (rows.get_mut(place), globals.get_mut(place)) else {
                return Err(error);
            };
            if !self.may_replace(&error) {
                return Err(error);
            }
            let tried = tries.entry(place).or_insert(Tries { at: substitutions.len(), count: 0 });
            let known = substitutions.get_mut(tried.at);
            if tried.count >= MOST_ATTEMPTS {
                // Why the sample is not there: not what is wrong with the last of those that stood in for it.
                return Err(known.map_or(error, |found| found.error.clone()));
            }
            let position = positions.get(place).copied().unwrap_or_default();
            let replacement = self.order.substitute(self.options.epoch, position, tried.count);
            tried.count += 1;
            match known {
                // What was to stand in is damaged, too.
                Some(found) => found.replacement = replacement,
                None => {
                    let found =
                        Substitution { place, position, row: *row, global: *global, replacement, error };
                    substitutions.push(found);
                }
            }
            *row = replacement;
            *global = self.dataset.global(replacement)?;
        }
    }

    /// A damaged record may be replaced. A shard that is missing, of another size, damaged at its ends or another one is
    /// no damaged sample: a whole part of the data would be replaced by repetitions of the rest.
    fn may_replace(&self, error: &Error) -> bool {
        let of_a_record = matches!(
            error.kind(),
            ErrorKind::RecordChecksum
                | ErrorKind::BadRecord
                | ErrorKind::Decompression
                | ErrorKind::UnexpectedEnd
        );
        self.options.on_corrupt == OnCorrupt::Substitute && of_a_record
    }
}
