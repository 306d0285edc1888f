//! A file system that fails or stops at a chosen operation; for tests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::local::Local;
use super::{Sink, Storage};
use crate::error::{Error, ErrorKind, Result};

/// What happens at the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing; operations are only counted.
    None,
    /// It and every later one fail and change nothing, as if the process had been killed.
    Stop,
    /// It alone fails, with this kind.
    Fail(ErrorKind),
    /// A write stores half of its bytes, then it and every later operation fails.
    Tear,
    /// A write stores half of its bytes and fails with this kind; other operations fail as with [`Fault::Fail`].
    Short(ErrorKind),
}

/// [`Local`] without its syncs, counted, with one fault.
#[derive(Clone, Debug)]
pub struct FaultStorage {
    fault: Fault,
    at: u64,
    counter: Arc<AtomicU64>,
}

impl FaultStorage {
    /// The fault happens at operation `at`, counted from 0.
    pub fn new(fault: Fault, at: u64) -> Self {
        FaultStorage { fault, at, counter: Arc::default() }
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.counter.load(Ordering::Acquire)
    }

    /// Counts an operation; whether it may happen.
    fn step(&self) -> Result<()> {
        let now = self.counter.fetch_add(1, Ordering::AcqRel);
        let failed = match self.fault {
            Fault::None => None,
            Fault::Stop | Fault::Tear => (now >= self.at).then_some(ErrorKind::Io),
            Fault::Fail(kind) | Fault::Short(kind) => (now == self.at).then_some(kind),
        };
        failed.map_or(Ok(()), |kind| Err(Error::new(kind, format!("injected at operation {now}"))))
    }
}

struct FaultSink {
    inner: Box<dyn Sink>,
    storage: FaultStorage,
}

impl Sink for FaultSink {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let tears = matches!(self.storage.fault, Fault::Tear | Fault::Short(_));
        let torn = tears && self.storage.operations() == self.storage.at;
        let allowed = self.storage.step();
        if torn {
            let (half, _) = data.split_at(data.len() / 2);
            self.inner.write(half)?;
        }
        allowed?;
        self.inner.write(data)
    }

    fn sync(&mut self) -> Result<()> {
        // Counted only: what is lost without it is lost with the power, and `tests/power_loss` is about that.
        self.storage.step()
    }
}

impl Storage for FaultStorage {
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.step()?;
        Local.create_dir(path)
    }

    fn create(&self, root: &Path, path: &Path) -> Result<Box<dyn Sink>> {
        self.step()?;
        Ok(Box::new(FaultSink { inner: Local.create(root, path)?, storage: self.clone() }))
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        self.step()
    }

    fn publish(&self, from: &Path, to: &Path) -> Result<()> {
        self.step()?;
        Local.publish(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        self.step()?;
        Local.exchange(a, b)
    }

    fn remove_file(&self, root: &Path, path: &Path) -> Result<()> {
        self.step()?;
        Local.remove_file(root, path)
    }

    fn remove_dir(&self, root: &Path, path: &Path) -> Result<()> {
        self.step()?;
        Local.remove_dir(root, path)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.step()?;
        Local.list(path)
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
        self.step()?;
        Local.read(path, limit)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.step()?;
        Local.exists(path)
    }
}
