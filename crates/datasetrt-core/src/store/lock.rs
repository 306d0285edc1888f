//! One writer a cache: an advisory lock that the operating system drops with its holder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::file::ReadFile;
use super::folder::{Entry, Folder};
use crate::error::{Error, ErrorKind, Result};

/// What a lock file says, so that the one of a killed writer can be told from another program's.
pub const LOCK_TEXT: &[u8] = b"datasetrt writer lock\n";

/// A held lock. The file goes away with it; a killed holder leaves a file that the next one takes over.
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
            let file = open(path, OpenOptions::new().create(true).truncate(false).write(true))
                .map_err(|e| explain(path, name, e))?;
            check_ours(path, name)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(busy(path, name)),
                Err(TryLockError::Error(e)) => return Err(Error::io("lock", path, &e)),
            }
            if same_file(&file, path)? {
                mark(&file);
                return Ok(WriterLock { file, path: path.to_owned(), pid: std::process::id() });
            }
        }
        Err(busy(path, name))
    }

    /// The descriptor whose open file holds the lock. A forked child has it too, and holds the lock with it until it
    /// ends, longer than its parent perhaps, unless it puts another file in that place.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Whether a writer holds the lock right now. Takes it for an instant, and creates nothing.
pub fn is_held(path: &Path) -> Result<bool> {
    let file = match open(path, &mut OpenOptions::new()) {
        Ok(file) => file,
        Err(e) if e.os_error() == Some(rustix::io::Errno::NOENT.raw_os_error()) => return Ok(false),
        Err(e) => return Err(e),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", path, &e)),
    }
}

/// Whether a file says what a lock file says: the text, as much of it as a killed writer stored, or the zeros that a
/// loss of power leaves.
pub(crate) fn is_ours(file: &ReadFile) -> Result<bool> {
    let length = usize::try_from(file.bytes()).unwrap_or(usize::MAX);
    if length > LOCK_TEXT.len() {
        return Ok(false);
    }
    let mut text = vec![0; length];
    file.read_exact_at(&mut text, 0)?;
    Ok(LOCK_TEXT.starts_with(&text) || text.iter().all(|byte| *byte == 0))
}

/// Refuses another program's file: the end of a writer would remove it.
fn check_ours(path: &Path, name: &str) -> Result<()> {
    match ReadFile::open(path) {
        Ok(file) if is_ours(&file)? => Ok(()),
        Ok(_) => Err(occupied(path, name, "it has content that datasetrt does not write")),
        Err(_) => match entry(path) {
            // Its holder ended meanwhile; or it cannot be read, and the lock itself says why.
            None | Some(Entry::File(_)) => Ok(()),
            Some(entry) => Err(occupied(path, name, &format!("it is {}", entry.describe()))),
        },
    }
}

/// What is in a lock's place says more than the system's word for it.
fn explain(path: &Path, name: &str, error: Error) -> Error {
    match entry(path) {
        None | Some(Entry::File(_)) => error,
        Some(entry) => occupied(path, name, &format!("it is {}", entry.describe())),
    }
}

fn entry(path: &Path) -> Option<Entry> {
    Folder::open(path.parent()?).ok()?.look(path.file_name()?).ok()?
}

fn occupied(path: &Path, name: &str, why: &str) -> Error {
    let shown = path.display();
    let message = format!(
        "{shown} is in the way of writing '{name}': {why}; look at it, move it away, and run it again"
    );
    Error::new(ErrorKind::NameOccupied, message).at_path(path)
}

fn open(path: &Path, how: &mut OpenOptions) -> Result<File> {
    // A link in its place could make us create or lock a file anywhere; a pipe could make us wait.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    how.read(true).custom_flags(flags).open(path).map_err(|e| Error::io("open", path, &e))
}

/// Only names the file's maker: the lock works without it, so that a full disk is no failure here.
fn mark(mut file: &File) {
    if file.metadata().is_ok_and(|found| found.len() == 0) {
        let _ = file.write_all(LOCK_TEXT);
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
    match fs::symlink_metadata(path) {
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
        assert!(is_held(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), LOCK_TEXT);
        drop(held);
        assert!(!path.exists());
        assert!(!is_held(&path).unwrap());
        fs::write(&path, b"").unwrap();
        drop(WriterLock::acquire(&path, "x").unwrap());
    }

    #[test]
    fn another_programs_file_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".x.lock");
        for text in [&b"12345\n"[..], b"datasetrt writer lock\nand more"] {
            fs::write(&path, text).unwrap();
            let error = WriterLock::acquire(&path, "x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NameOccupied, "{error}");
            assert_eq!(fs::read(&path).unwrap(), text);
        }
        // What a killed writer, or a loss of power, leaves.
        for text in [&b""[..], b"datasetrt wri", LOCK_TEXT, &[0; 22]] {
            fs::write(&path, text).unwrap();
            drop(WriterLock::acquire(&path, "x").unwrap());
            assert!(!path.exists());
        }
        fs::create_dir(&path).unwrap();
        let error = WriterLock::acquire(&path, "x").unwrap_err();
        assert!(error.kind() == ErrorKind::NameOccupied && error.message().contains("a folder"), "{error}");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".x.lock");
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        let error = WriterLock::acquire(&path, "x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NameOccupied);
        assert!(error.message().contains("it is a symbolic link"), "{error}");
        assert!(is_held(&path).is_err());
        assert!(!folder.path().join("elsewhere").exists());
    }
}
