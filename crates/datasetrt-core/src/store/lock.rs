//! One writer a cache: an advisory lock that the operating system drops with its holder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// A held lock. The file goes away with it; a killed holder leaves an empty file that the next one takes over.
#[derive(Debug)]
pub struct WriterLock {
    file: File,
    path: PathBuf,
    pid: u32,
}

impl WriterLock {
    /// Takes the lock at once, or says that another writer holds it.
    pub fn acquire(path: &Path, name: &str) -> Result<Self> {
        // A holder unlinks the file when it ends, so what was locked may no longer have the name: look again.
        for _ in 0..100 {
            let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
            let file = file.map_err(|e| Error::io("create", path, &e))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(busy(path, name)),
                Err(TryLockError::Error(e)) => return Err(Error::io("lock", path, &e)),
            }
            if same_file(&file, path)? {
                return Ok(WriterLock { file, path: path.to_owned(), pid: std::process::id() });
            }
        }
        Err(busy(path, name))
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent and must not give it away.
        if self.pid == std::process::id() {
            // Nothing can be done about a failure here, and the next writer copes with the file.
            let _ = fs::remove_file(&self.path);
            let _ = self.file.unlock();
        }
    }
}

fn same_file(file: &File, path: &Path) -> Result<bool> {
    let held = file.metadata().map_err(|e| Error::io("look at", path, &e))?;
    match fs::metadata(path) {
        Ok(named) => Ok(named.ino() == held.ino() && named.dev() == held.dev()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("look at", path, &e)),
    }
}

fn busy(path: &Path, name: &str) -> Error {
    let message = format!(
        "cache '{name}' is being written by another writer; wait for it, or choose another name or root"
    );
    Error::new(ErrorKind::BeingWritten, message).at_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_nothing_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".x.lock");
        let held = WriterLock::acquire(&path, "x").unwrap();
        assert_eq!(WriterLock::acquire(&path, "x").unwrap_err().kind(), ErrorKind::BeingWritten);
        drop(held);
        assert!(!path.exists());
        fs::write(&path, b"").unwrap();
        drop(WriterLock::acquire(&path, "x").unwrap());
    }
}
