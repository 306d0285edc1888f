//! One open folder, in which names are looked up and removed without ever following a link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::file::{ReadFile, not_followed, open_error};
use crate::error::{Error, ErrorKind, Result};

/// What a name in a folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file of so many bytes.
    File(u64),
    /// A folder.
    Folder,
    /// A symbolic link, wherever it leads.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

impl Entry {
    /// In words, such as `a symbolic link`.
    pub fn describe(self) -> &'static str {
        match self {
            Entry::File(_) => "a file",
            Entry::Folder => "a folder",
            Entry::Link => "a symbolic link",
            Entry::Other => "a pipe, socket or device",
        }
    }
}

/// The folder that `path` is in, opened from `root` on without following links, and its last name. `None` if that
/// folder is not there.
pub(super) fn parent<'a>(root: &Path, path: &'a Path) -> Result<Option<(Folder, &'a OsStr)>> {
    let outside = || {
        let message = format!("{} is not below {}", path.display(), root.display());
        Error::new(ErrorKind::Bug, message).at_path(path)
    };
    let below = path.strip_prefix(root).map_err(|_| outside())?;
    let mut parts: Vec<&OsStr> = below.iter().collect();
    let name = parts.pop().ok_or_else(outside)?;
    let mut folder = Folder::open(root)?;
    for part in parts {
        if folder.look(part)?.is_none() {
            return Ok(None);
        }
        folder = folder.child(part)?;
    }
    Ok(Some((folder, name)))
}

/// What `path` below `root` stands for; `None` if nothing has the name. No link below `root` is followed.
pub fn look(root: &Path, path: &Path) -> Result<Option<Entry>> {
    parent(root, path)?.map_or(Ok(None), |(folder, name)| folder.look(name))
}

/// An open folder. It stays the same folder whatever happens to the path that led to it, so that
/// nobody can put a link in its place between a check and what follows.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder that a user named: links on the way to it are the user's own choice.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let descriptor = opened.map_err(|e| open_error(path, e))?;
        Ok(Folder { descriptor, path: path.to_owned() })
    }

    /// Opens a folder in this one; a link in its place is refused.
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let path = self.path.join(name.as_ref());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&self.descriptor, name.as_ref(), flags, Mode::empty());
        let descriptor = opened.map_err(|e| match self.look(&name) {
            // The system's word for a link here is "not a folder".
            Ok(Some(Entry::Link)) => not_followed(&path),
            _ => open_error(&path, e),
        })?;
        Ok(Folder { descriptor, path })
    }

    /// Opens a regular file in this folder; see [`ReadFile::open`].
    pub fn file(&self, name: impl AsRef<OsStr>) -> Result<ReadFile> {
        ReadFile::open_at(self.descriptor(), name.as_ref(), self.path.join(name.as_ref()))
    }

    /// Makes a new file in this folder for writing.
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The process's umask takes away from it, as everywhere.
        let made = rustix::fs::openat(&self.descriptor, name.as_ref(), flags, Mode::from_raw_mode(0o666));
        made.map(File::from).map_err(|e| Error::io("create", &self.path.join(name.as_ref()), &e.into()))
    }

    /// Where the folder was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The names in it, sorted.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let failed = |e: Errno| Error::io("list", &self.path, &e.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// What a name stands for; `None` if nothing has it.
    pub fn look(&self, name: impl AsRef<OsStr>) -> Result<Option<Entry>> {
        match rustix::fs::statat(&self.descriptor, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => Entry::File(u64::try_from(found.st_size).unwrap_or(0)),
                FileType::Directory => Entry::Folder,
                FileType::Symlink => Entry::Link,
                _ => Entry::Other,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::io("look at", &self.path.join(name.as_ref()), &e.into())),
        }
    }

    /// Removes a name that is no folder; one that is not there is fine.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.unlink(name.as_ref(), AtFlags::empty(), "remove")
    }

    /// Removes an empty folder; one that is not there is fine.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.unlink(name.as_ref(), AtFlags::REMOVEDIR, "remove folder")
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags, action: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.descriptor, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io(action, &self.path.join(name), &e.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_seen_and_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("x"), b"secret").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("folder")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("x"), root.path().join("file")).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        assert_eq!(folder.look("folder"), Ok(Some(Entry::Link)));
        assert_eq!(folder.look("gone"), Ok(None));
        assert_eq!(folder.child("folder").unwrap_err().kind(), ErrorKind::SymbolicLink);
        assert_eq!(folder.file("file").unwrap_err().kind(), ErrorKind::SymbolicLink);
        // A link on the way to the folder itself is the user's own.
        assert_eq!(Folder::open(&root.path().join("folder")).unwrap().names(), Ok(vec!["x".into()]));
    }
}
