//! The first chunks of a write whose compression learns from them, held back until it has.

use super::chunk::Chunk;
use crate::error::Result;
use crate::format::dictionary::{Dictionary, LEARNT_FROM_EACH};
use crate::format::record::RAW_FRAME_BYTES;

/// What is learnt from: so many bytes of the first payloads, at most …
const ENOUGH_BYTES: usize = 4 << 20;
/// … of so many samples …
const ENOUGH_SAMPLES: usize = 1 << 16;
/// … of which no more than so much is held. None of these depends on the writer's options: the same samples give the
/// same dictionary.
const MOST_HELD_BYTES: usize = 32 << 20;

/// Chunks that wait, and where what is learnt from ends in them.
#[derive(Default)]
pub(super) struct Training {
    held: Vec<Chunk>,
    samples: usize,
    learnt_bytes: usize,
    held_bytes: usize,
}

impl Training {
    /// Takes the next chunk; true once there is enough to learn from.
    pub(super) fn hold(&mut self, chunk: Chunk) -> bool {
        for payload in payloads(&chunk) {
            if !self.is_enough() {
                self.samples += 1;
                self.learnt_bytes += payload.len().min(LEARNT_FROM_EACH);
                self.held_bytes += payload.len();
            }
        }
        self.held.push(chunk);
        self.is_enough()
    }

    fn is_enough(&self) -> bool {
        self.learnt_bytes >= ENOUGH_BYTES
            || self.samples >= ENOUGH_SAMPLES
            || self.held_bytes >= MOST_HELD_BYTES
    }

    /// What was learnt, and the chunks that waited for it.
    pub(super) fn finish(self) -> Result<(Dictionary, Vec<Chunk>)> {
        let learnt = Dictionary::learn(self.held.iter().flat_map(payloads).take(self.samples))?;
        Ok((learnt, self.held))
    }
}

/// The payloads of a chunk that is not encoded yet.
fn payloads(chunk: &Chunk) -> impl Iterator<Item = &[u8]> {
    let starts = std::iter::once(0).chain(chunk.records.iter().map(|info| info.end));
    let spans = starts.zip(&chunk.records);
    spans.map(|(start, info)| chunk.frames.get(start + RAW_FRAME_BYTES..info.end).unwrap_or_default())
}
