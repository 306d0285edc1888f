//! Which error belongs to which damage: its kind, file, shard, offset and sample.

use std::path::Path;

use datasetrt_core::{Error, ErrorKind};

use crate::caches::{Copy, Part};
use crate::reading::Wrong;

/// What became of a damaged cache.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It did not open.
    Refused(Error),
    /// It opened, and this was wrong.
    Opened(Wrong),
}

impl Outcome {
    /// What was told first.
    pub(crate) fn first(&self) -> Option<&Error> {
        match self {
            Outcome::Refused(error) => Some(error),
            Outcome::Opened(wrong) => wrong.problems.first(),
        }
    }
}

pub(crate) fn name(part: Part) -> &'static str {
    match part {
        Part::Manifest => "manifest.json",
        Part::Index => "index.bin",
        Part::Metadata => "metadata.arrow",
        Part::Header { .. } => "shard header",
        Part::Record { .. } => "record",
        Part::Trailer { .. } => "shard trailer",
    }
}

type Check = std::result::Result<ErrorKind, &'static str>;

/// Kind and place of a flipped bit.
pub(crate) fn check_flip(copy: &Copy<'_>, part: Part, outcome: &Outcome) -> Check {
    match (part, outcome) {
        (Part::Manifest, Outcome::Refused(error)) => {
            // A flip in `format` or `version` makes it another format's or a newer version's file.
            let kinds = [ErrorKind::ManifestChecksum, ErrorKind::NotACache, ErrorKind::UnsupportedVersion];
            refused(error, &copy.path("manifest.json"), &kinds)
        }
        (Part::Index, Outcome::Refused(error)) => {
            refused(error, &copy.path("index.bin"), &[ErrorKind::IndexChecksum])
        }
        (Part::Metadata, Outcome::Refused(error)) => {
            refused(error, &copy.path("metadata.arrow"), &[ErrorKind::MetadataChecksum])
        }
        (Part::Header { shard }, Outcome::Opened(wrong)) => {
            lost_shard(copy, wrong, shard, 0)?;
            let digest = wrong.problems.last().is_some_and(|e| is_digest(copy, e, shard));
            if digest && wrong.problems.len() == 2 { Ok(ErrorKind::ShardMismatch) } else { Err("no digest") }
        }
        (Part::Trailer { shard, start }, Outcome::Opened(wrong)) => {
            lost_shard(copy, wrong, shard, start)?;
            if wrong.problems.len() == 1 { Ok(ErrorKind::ShardMismatch) } else { Err("more is told") }
        }
        (Part::Record { shard, sample, start }, Outcome::Opened(wrong)) => {
            let path = copy.path(&format!("shards/{shard:06}.bin"));
            let here = |e: &Error| {
                let kinds = [ErrorKind::RecordChecksum, ErrorKind::BadRecord];
                kinds.contains(&e.kind()) && at(e, &path, shard, start) && e.sample_id() == Some(sample)
            };
            let told: Vec<_> = wrong.problems.iter().collect();
            let [record, digest] = told[..] else { return Err("not two problems") };
            if !here(record) || !is_digest(copy, digest, shard) {
                return Err("verify names another place or kind");
            }
            let reads = wrong.samples.iter().chain(&wrong.batch);
            if wrong.samples.len() == 1 && reads.into_iter().all(here) {
                Ok(record.kind())
            } else {
                Err("reading names another place or kind")
            }
        }
        _ => Err("it opens where it must not, or does not where it must"),
    }
}

/// Kind and place of a file of another size.
pub(crate) fn check_size(copy: &Copy<'_>, file: &str, outcome: &Outcome) -> Check {
    let Outcome::Refused(error) = outcome else { return Err("it opens") };
    let kind = if file == "manifest.json" { ErrorKind::ManifestChecksum } else { ErrorKind::FileSize };
    refused(error, &copy.path(file), &[kind])
}

pub(crate) fn refused(error: &Error, path: &Path, kinds: &[ErrorKind]) -> Check {
    if error.path() != Some(path) {
        return Err("another file is named");
    }
    if kinds.contains(&error.kind()) { Ok(error.kind()) } else { Err("another kind") }
}

/// Every sample of one shard is lost, and no other; the first problem is the shard's end at `offset`.
fn lost_shard(copy: &Copy<'_>, wrong: &Wrong, shard: u64, offset: u64) -> Result<(), &'static str> {
    let path = copy.path(&format!("shards/{shard:06}.bin"));
    let here = |e: &Error| e.kind() == ErrorKind::ShardMismatch && at(e, &path, shard, offset);
    if !wrong.problems.first().is_some_and(here) {
        return Err("verify names another place or kind");
    }
    let samples = copy.sound.samples(shard);
    let lost = wrong.samples.iter().filter_map(Error::sample_id);
    if !lost.eq(samples) {
        return Err("other samples are lost than those of the shard");
    }
    let named = |e: &Error| e.kind() == ErrorKind::ShardMismatch && e.path() == Some(&path);
    let reads = wrong.samples.iter().chain(&wrong.batch);
    if reads.into_iter().all(|e| named(e) && e.shard() == Some(shard)) {
        Ok(())
    } else {
        Err("reading names another place or kind")
    }
}

fn is_digest(copy: &Copy<'_>, error: &Error, shard: u64) -> bool {
    let file = format!("shards/{shard:06}.bin");
    let trailer = copy.sound.manifest.shards[shard as usize].bytes - 64;
    error.kind() == ErrorKind::ShardDigest && at(error, &copy.path(&file), shard, trailer)
}

fn at(error: &Error, path: &Path, shard: u64, offset: u64) -> bool {
    error.path() == Some(path) && error.shard() == Some(shard) && error.offset() == Some(offset)
}
