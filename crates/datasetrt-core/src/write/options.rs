//! What a writer is told, checked once.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};
use crate::exec;
use crate::format::compression::Compression;
use crate::format::{VERSION, names};
use crate::metadata::ColumnType;

/// Everything that decides what a writer does.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The folder that holds caches.
    pub root: PathBuf,
    /// The source's name: the cache's folder in `root`.
    pub name: String,
    /// What made the data; without one an unfinished write cannot be resumed.
    pub fingerprint: Option<String>,
    /// The name of the codec that packed the payloads.
    pub codec: Option<String>,
    /// The metadata columns, or `None` to infer them.
    pub schema: Option<Vec<(String, ColumnType)>>,
    /// How records are compressed.
    pub compression: Compression,
    /// A shard is closed before it would become larger.
    pub max_shard_bytes: u64,
    /// Threads that compress and checksum; `None` is the machine's budget.
    pub threads: Option<usize>,
    /// Bytes that may wait between the source and the disk.
    pub queue_bytes: u64,
    /// Whether samples are pushed with the numbers of items of the source, or each with its own.
    pub by_item: bool,
    /// Replace a complete cache of that name, in one step, at the end.
    pub replace: bool,
}

impl WriteOptions {
    /// Checks what a source says of itself.
    ///
    /// # Errors
    ///
    /// `invalid-argument` for a name that is no plain folder name, or a text that is too long or has a NUL.
    pub fn check_texts(name: &str, fingerprint: Option<&str>, codec: Option<&str>) -> Result<()> {
        names::check_name(name)?;
        fingerprint.map_or(Ok(()), |text| names::check_label("fingerprint", text))?;
        codec.map_or(Ok(()), |text| names::check_label("codec name", text))
    }

    pub(super) fn check(&self) -> Result<()> {
        Self::check_texts(&self.name, self.fingerprint.as_deref(), self.codec.as_deref())?;
        exec::threads_or_budget(self.threads)?;
        if self.max_shard_bytes == 0 || self.max_shard_bytes > i64::MAX as u64 {
            return Err(invalid(format!("max_shard_bytes is {}; choose at least 1", self.max_shard_bytes)));
        }
        if self.queue_bytes == 0 {
            return Err(invalid("queue_bytes is 0; choose at least 1"));
        }
        Ok(())
    }

    pub(super) fn identity(&self) -> Identity {
        let column = |(name, ty): &(String, ColumnType)| (name.clone(), ty.name().to_owned());
        Identity {
            version: VERSION,
            release: crate::RELEASE.to_owned(),
            name: self.name.clone(),
            fingerprint: self.fingerprint.clone(),
            codec: self.codec.clone(),
            schema: self.schema.as_ref().map(|columns| columns.iter().map(column).collect()),
            compression: self.compression.method().to_owned(),
            level: self.compression.level(),
            max_shard_bytes: self.max_shard_bytes,
            by_item: self.by_item,
        }
    }
}

/// What has to agree for an unfinished write to be resumed: everything that decides the bytes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    version: u32,
    release: String,
    name: String,
    fingerprint: Option<String>,
    codec: Option<String>,
    schema: Option<Vec<(String, String)>>,
    compression: String,
    level: Option<i64>,
    max_shard_bytes: u64,
    /// Otherwise the number of a sample would be taken for that of an item.
    by_item: bool,
}

impl Identity {
    /// A write without a fingerprint says nothing about its data, so it never continues another.
    pub(super) fn resumes(&self, found: &Identity) -> bool {
        self.fingerprint.is_some() && self == found
    }
}
