//! Positioned reads of one finished file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

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
        Ok(ReadFile { file, bytes: metadata.len(), path })
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
    Error::new(ErrorKind::Io, message).at_path(path)
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
