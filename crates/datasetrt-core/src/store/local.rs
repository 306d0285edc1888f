//! [`Storage`] on the operating system's file systems.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags};

use super::folder::parent;
use super::{Sink, Storage, writeback};
use crate::error::{Error, ErrorKind, Result};

/// The operating system's file systems.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local;

struct LocalSink {
    file: File,
    path: PathBuf,
    written: u64,
    /// How much of it the disk was given to write.
    begun: u64,
}

/// The disk is given so much at a time.
const WRITEBACK_BYTES: u64 = 8 << 20;

impl Sink for LocalSink {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.file.write_all(data).map_err(|e| Error::io("write", &self.path, &e))?;
        self.written = self.written.saturating_add(data.len() as u64);
        let ready = self.written.saturating_sub(self.begun);
        if ready >= WRITEBACK_BYTES {
            writeback::begin(&self.file, self.begun, ready);
            self.begun = self.written;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, &e))
    }
}

impl Storage for Local {
    fn create_dir(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(|e| Error::io("create folder", path, &e))
    }

    fn create(&self, root: &Path, path: &Path) -> Result<Box<dyn Sink>> {
        let Some((folder, name)) = parent(root, path)? else {
            let gone = io::Error::from(rustix::io::Errno::NOENT);
            return Err(Error::io("create", path, &gone));
        };
        // Unlinked first: a link or a file with another owner's mode must not be written through.
        folder.remove_file(name)?;
        let file = folder.create_file(name)?;
        Ok(Box::new(LocalSink { file, path: path.to_owned(), written: 0, begun: 0 }))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let synced = File::open(path).and_then(|folder| folder.sync_all());
        synced.map_err(|e| Error::io("sync folder", path, &e))
    }

    fn publish(&self, from: &Path, to: &Path) -> Result<()> {
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::EXIST) => Err(taken(to)),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
                rename_plain(from, to)
            }
            Err(e) => Err(Error::io("publish", to, &e.into())),
        }
    }

    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)
            .map_err(|e| Error::io("exchange", b, &e.into()))
    }

    fn remove_file(&self, root: &Path, path: &Path) -> Result<()> {
        parent(root, path)?.map_or(Ok(()), |(folder, name)| folder.remove_file(name))
    }

    fn remove_dir(&self, root: &Path, path: &Path) -> Result<()> {
        parent(root, path)?.map_or(Ok(()), |(folder, name)| folder.remove_folder(name))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list", path, &e)),
        };
        let names = entries.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()));
        let mut names: Vec<String> =
            names.collect::<io::Result<_>>().map_err(|e| Error::io("list", path, &e))?;
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
        // A link could lead anywhere; a pipe could make us wait.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", path, &e)),
        };
        let mut bytes = Vec::new();
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|e| Error::io("read", path, &e))?;
        if bytes.len() as u64 > limit {
            let message = format!(
                "{} is larger than {limit} bytes; it is not what datasetrt wrote: move it away",
                path.display()
            );
            return Err(Error::new(ErrorKind::FileSize, message).at_path(path));
        }
        Ok(Some(bytes))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            // Below a file there is nothing.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(Error::io("look at", path, &e)),
        }
    }
}

/// For file systems without a rename that refuses to replace. The caller holds the cache's lock, so
/// only a stranger could take the name between the check and the rename; and renaming a folder over
/// anything but an empty folder fails.
fn rename_plain(from: &Path, to: &Path) -> Result<()> {
    if Local.exists(to)? {
        return Err(taken(to));
    }
    fs::rename(from, to).map_err(|e| Error::io("publish", to, &e))
}

fn taken(path: &Path) -> Error {
    let message = format!("{} exists already; another writer published it: open that one", path.display());
    Error::new(ErrorKind::AlreadyExists, message).at_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_many_pieces_hold_what_was_written() {
        let root = tempfile::tempdir().unwrap();
        let piece: Vec<u8> = (0..1_000_003_u32).map(|i| (i % 251) as u8).collect();
        let path = root.path().join("file");
        let mut sink = Local.create(root.path(), &path).unwrap();
        for _ in 0..2 * WRITEBACK_BYTES / piece.len() as u64 + 2 {
            sink.write(&piece).unwrap();
        }
        sink.sync().unwrap();
        let written = fs::read(&path).unwrap();
        assert!(written.len() as u64 > 2 * WRITEBACK_BYTES);
        assert!(written.chunks(piece.len()).all(|found| found == piece));
    }
}
