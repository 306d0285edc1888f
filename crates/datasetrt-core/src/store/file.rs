//! Positioned reads of one finished file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{CWD, Mode, OFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::Memory;

/// A whole file is read in pieces of this size: what is done with one finds it in the core's own cache.
const PIECE_BYTES: usize = 256 << 10;

/// A regular file opened for reading. Reads name their offset, so that any number of threads and
/// forked processes can share it. A file that shrinks is a typed error, never a signal: it is not mapped.
#[derive(Debug)]
pub struct ReadFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Its file system cannot say what is in memory.
    waits: AtomicBool,
}

impl ReadFile {
    /// Opens a regular file; links, folders, pipes and devices are refused without waiting for them.
    /// Links in the folders on the way to it are followed: see [`super::folder::Folder::file`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_at(CWD, path.as_os_str(), path.to_owned())
    }

    /// Opens `name` in `folder`; `path` is what errors call it.
    pub(super) fn open_at(folder: BorrowedFd<'_>, name: &OsStr, path: PathBuf) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let descriptor = rustix::fs::openat(folder, name, flags, Mode::empty());
        let file = File::from(descriptor.map_err(|e| open_error(&path, e))?);
        let metadata = file.metadata().map_err(|e| Error::io("look at", &path, &e))?;
        if !metadata.is_file() {
            return Err(not_a_file(&path));
        }
        Ok(ReadFile { file, bytes: metadata.len(), path, waits: AtomicBool::new(false) })
    }

    /// The file's size when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the file was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `out` from `offset`.
    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|e| self.read_error(&e, offset))
    }

    /// Fills `out` from `offset` if all of it is in the system's memory, and never waits for a disk. False where it is not, or
    /// where nobody can say so; what is in `out` then means nothing.
    #[cfg(target_os = "linux")]
    pub fn read_nowait_at(&self, out: &mut [u8], offset: u64) -> bool {
        use rustix::io::{Errno, ReadWriteFlags};

        // To the system, the largest offset of all is where the file was read last.
        if self.waits.load(Relaxed) || i64::try_from(offset).is_err() {
            return false;
        }
        match rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(out)], offset, ReadWriteFlags::NOWAIT) {
            Ok(found) => found == out.len(),
            Err(Errno::AGAIN | Errno::INTR) => false,
            // What cannot say so now is not asked again.
            Err(_) => {
                self.waits.store(true, Relaxed);
                false
            }
        }
    }

    /// Fills nothing: this system has no such read.
    #[cfg(not(target_os = "linux"))]
    pub fn read_nowait_at(&self, _out: &mut [u8], _offset: u64) -> bool {
        false
    }

    /// Fills `parts` one after the other from `offset`: one system call where the file system gives all at once.
    pub fn read_scattered_at(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        match rustix::io::preadv(&self.file, parts, offset) {
            Ok(found) if found == wanted => Ok(()),
            // A short or interrupted read: begin again, part by part.
            Ok(_) | Err(rustix::io::Errno::INTR) => {
                let mut at = offset;
                for part in parts {
                    self.read_exact_at(part, at)?;
                    at += part.len() as u64;
                }
                Ok(())
            }
            Err(e) => Err(self.read_error(&e.into(), offset)),
        }
    }

    /// Hands the whole file to `sink` in pieces; memory stays flat. The size is that of the opening.
    pub fn stream(&self, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut buffer = zeroed(self.bytes.min(PIECE_BYTES as u64), &self.path)?;
        let mut offset = 0;
        while offset < self.bytes {
            let length = usize::try_from(self.bytes - offset).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let Some(piece) = buffer.get_mut(..length) else { break };
            self.read_exact_at(piece, offset)?;
            sink(piece);
            offset += length as u64;
        }
        Ok(())
    }

    /// The whole file in memory; `sink` gets it in pieces as it comes.
    pub(crate) fn load(&self, sink: &mut dyn FnMut(&[u8])) -> Result<Memory> {
        let memory = usize::try_from(self.bytes).ok().and_then(Memory::cleared);
        let mut memory = memory.ok_or_else(|| no_memory(self.bytes, &self.path))?;
        let mut offset = 0;
        for piece in memory.chunks_mut(PIECE_BYTES) {
            self.read_exact_at(piece, offset)?;
            sink(piece);
            offset += piece.len() as u64;
        }
        Ok(memory)
    }

    /// The whole file.
    pub fn read_all(&self) -> Result<Vec<u8>> {
        let mut bytes = zeroed(self.bytes, &self.path)?;
        self.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn read_error(&self, source: &std::io::Error, offset: u64) -> Error {
        if source.kind() == std::io::ErrorKind::UnexpectedEof {
            let message = format!(
                "{} ends before the bytes at offset {offset}: it was cut since it was written; restore it, or rebuild the cache with on_stale='rebuild'",
                self.path.display()
            );
            return Error::new(ErrorKind::UnexpectedEnd, message).at_path(&self.path);
        }
        Error::io("read", &self.path, source)
    }
}

/// A zeroed buffer, or a typed error where memory does not suffice.
pub fn zeroed(bytes: u64, path: &Path) -> Result<Vec<u8>> {
    let refuse = || no_memory(bytes, path);
    let length = usize::try_from(bytes).map_err(|_| refuse())?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length).map_err(|_| refuse())?;
    buffer.resize(length, 0);
    Ok(buffer)
}

/// The error where memory does not suffice to read.
pub(crate) fn no_memory(bytes: u64, path: &Path) -> Error {
    let shown = path.display();
    let message = format!(
        "not enough memory for {bytes} bytes of {shown}; free memory, or read on a machine with more"
    );
    Error::no_memory(message).at_path(path)
}

pub(super) fn open_error(path: &Path, errno: rustix::io::Errno) -> Error {
    use rustix::io::Errno;
    match errno {
        Errno::NOENT | Errno::NOTDIR => Error::new(
            ErrorKind::MissingFile,
            format!(
                "{} is missing; restore it, or rebuild the cache with on_stale='rebuild'",
                path.display()
            ),
        )
        .at_path(path),
        // Not of a link further up that leads to itself.
        Errno::LOOP if path.is_symlink() => not_followed(path),
        Errno::NXIO => not_a_file(path),
        other => Error::io("open", path, &other.into()),
    }
}

/// The refusal of a link inside a cache: whoever made it could name any file of the machine.
pub(super) fn not_followed(path: &Path) -> Error {
    let message = format!(
        "{} is a symbolic link, which is not followed inside a cache; put a copy of what it leads to in its place (cp -rL OLD NEW, or git annex unlock)",
        path.display()
    );
    Error::new(ErrorKind::SymbolicLink, message).at_path(path)
}

fn not_a_file(path: &Path) -> Error {
    Error::new(
        ErrorKind::MissingFile,
        format!(
            "{} is not a regular file; move it away and restore the file, or rebuild the cache with on_stale='rebuild'",
            path.display()
        ),
    )
    .at_path(path)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_in_memory_is_read_without_waiting_where_the_file_system_can_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        let file = ReadFile::open(&path).unwrap();
        let mut out = [0; 5000];
        // In memory, because it was written a moment ago.
        let found = file.read_nowait_at(&mut out, 4000);
        assert_eq!(found, !file.waits.load(Relaxed));
        assert!(!found || out == bytes[4000..9000]);
        assert!(!file.read_nowait_at(&mut out, 15_001), "one byte is not there");
        assert!(!file.read_nowait_at(&mut out, u64::MAX));
    }

    #[test]
    fn a_file_system_that_cannot_say_what_is_in_memory_is_asked_once() {
        let file = ReadFile::open(Path::new("/proc/self/status")).unwrap();
        let mut out = [0; 5];
        assert!(!file.read_nowait_at(&mut out, 0));
        assert!(file.waits.load(Relaxed));
        file.read_exact_at(&mut out, 0).unwrap();
        assert_eq!(&out, b"Name:");
    }
}
