//! One error type for the whole engine.
//!
//! A [`Class`] says what a caller can do about a failure; an [`ErrorKind`] says exactly what
//! happened and never changes its spelling; the message is one line with the values in it.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error. One Python exception class each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// There is no cache at the path.
    CacheNotFound,
    /// Something is there already, or is being written right now.
    CacheExists,
    /// The cache is sound, but not the one that was asked for.
    StaleCache,
    /// Not a cache, unfinished, or of a version this release cannot read.
    Format,
    /// Bytes on disk are not the bytes that were written.
    Corruption,
    /// An argument, a sample or a table breaks a rule.
    InvalidInput,
    /// An index is out of range.
    SampleIndex,
    /// A saved state does not belong to this loader.
    State,
    /// The operating system refused an operation.
    Storage,
    /// The engine broke one of its own rules, or was used after it failed.
    Internal,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal, $class:ident;)*) => {
        /// Exactly what happened. Codes are append-only: programs match on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $($(#[$doc])* $kind,)* }

        impl ErrorKind {
            /// Every kind, in the order of declaration.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$kind,)*];

            /// The stable spelling, such as `record-checksum`.
            pub fn code(self) -> &'static str {
                match self { $(ErrorKind::$kind => $code,)* }
            }

            /// The class this kind belongs to.
            pub fn class(self) -> Class {
                match self { $(ErrorKind::$kind => Class::$class,)* }
            }
        }
    };
}

kinds! {
    /// Nothing at the path.
    NotFound = "not-found", CacheNotFound;
    /// A complete cache is there already.
    AlreadyExists = "already-exists", CacheExists;
    /// Another writer holds the cache.
    BeingWritten = "being-written", CacheExists;
    /// Something that is not a cache occupies the name.
    NameOccupied = "name-occupied", CacheExists;
    /// The source's fingerprint, codec or schema differs from the cache's.
    Stale = "stale", StaleCache;
    /// The cache changed since the dataset was opened or pickled.
    Changed = "changed", StaleCache;
    /// The folder or file is not a datasetrt cache.
    NotACache = "not-a-cache", Format;
    /// Files are there, but the manifest was never written.
    Unfinished = "unfinished", Format;
    /// The format version is newer or older than this release reads.
    UnsupportedVersion = "unsupported-version", Format;
    /// A sound manifest states something that cannot be.
    BadManifest = "bad-manifest", Format;
    /// The manifest does not match its own checksum.
    ManifestChecksum = "manifest-checksum", Corruption;
    /// A file that the manifest names is missing.
    MissingFile = "missing-file", Corruption;
    /// A file has another size than the manifest states.
    FileSize = "file-size", Corruption;
    /// `index.bin` does not match its checksum or its own rules.
    IndexChecksum = "index-checksum", Corruption;
    /// `metadata.arrow` does not match its checksum.
    MetadataChecksum = "metadata-checksum", Corruption;
    /// `metadata.arrow` cannot be decoded as the manifest describes it.
    BadMetadata = "bad-metadata", Corruption;
    /// A shard's header or trailer is damaged or belongs to another shard.
    ShardMismatch = "shard-mismatch", Corruption;
    /// A shard's bytes do not have the digest that the manifest states.
    ShardDigest = "shard-digest", Corruption;
    /// A record does not match its checksum.
    RecordChecksum = "record-checksum", Corruption;
    /// A record's frame cannot be: lengths, tag or bounds.
    BadRecord = "bad-record", Corruption;
    /// A record passed its checksum but does not decompress to the stated length.
    Decompression = "decompression", Corruption;
    /// A file ended before the bytes that were promised.
    UnexpectedEnd = "unexpected-end", Corruption;
    /// A file or folder of a cache is a symbolic link, which is not followed.
    SymbolicLink = "symbolic-link", Corruption;
    /// An argument breaks a rule.
    InvalidArgument = "invalid-argument", InvalidInput;
    /// A sample's metadata breaks a rule.
    InvalidMetadata = "invalid-metadata", InvalidInput;
    /// A metadata table cannot become the active table.
    InvalidTable = "invalid-table", InvalidInput;
    /// A source gave no samples, or a table has no rows.
    Empty = "empty", InvalidInput;
    /// An index is out of range.
    IndexOutOfRange = "index-out-of-range", SampleIndex;
    /// A state is malformed or of an unknown version.
    BadState = "bad-state", State;
    /// A state belongs to other data or another sampler.
    StateMismatch = "state-mismatch", State;
    /// The operating system refused an operation.
    Io = "io", Storage;
    /// The device is full.
    NoSpace = "no-space", Storage;
    /// Permission was denied.
    PermissionDenied = "permission-denied", Storage;
    /// Called after `finish`, `abort` or a failure.
    Closed = "closed", Internal;
    /// A worker thread panicked or a rule of the engine was broken: a bug in datasetrt.
    Bug = "bug", Internal;
}

/// Where and why something failed. Cheap to clone, so that a background failure can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    shard: Option<u64>,
    offset: Option<u64>,
    sample_id: Option<u64>,
    os_error: Option<i32>,
}

impl Error {
    /// An error with its one-line message: what is wrong, the values, the cure.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Details {
            kind,
            message: on_one_line(message.into()),
            path: None,
            shard: None,
            offset: None,
            sample_id: None,
            os_error: None,
        }))
    }

    /// A failed system call. `action` completes "cannot …", such as `open`.
    pub fn io(action: &str, path: &Path, source: &std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::PermissionDenied
            }
            _ => ErrorKind::Io,
        };
        let cure = cure(source);
        let message = format!("cannot {action} {}: {source}; {cure}", path.display());
        let mut error = Error::new(kind, message).at_path(path);
        error.0.os_error = source.raw_os_error();
        error
    }

    /// Memory that the system refuses, asked for before it was taken. The number is that of a system call that says so.
    pub fn no_memory(message: impl Into<String>) -> Self {
        let mut error = Error::new(ErrorKind::Io, message);
        error.0.os_error = Some(Errno::NOMEM.raw_os_error());
        error
    }

    /// Whether the system refused memory, which says nothing of the cache.
    pub fn is_no_memory(&self) -> bool {
        self.0.os_error == Some(Errno::NOMEM.raw_os_error())
    }

    /// The same failure in other words, which are of no file yet.
    pub(crate) fn reworded(&self, message: impl Into<String>) -> Self {
        let mut error = Error::new(self.kind(), message);
        error.0.os_error = self.0.os_error;
        error
    }

    /// The same error with the file or folder it concerns.
    #[must_use]
    pub fn at_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path = Some(path.into());
        self
    }

    /// The same error with the shard's ordinal and the byte offset in it.
    #[must_use]
    pub fn at_shard(mut self, shard: u64, offset: u64) -> Self {
        self.0.shard = Some(shard);
        self.0.offset = Some(offset);
        self
    }

    /// The same error with the sample it concerns.
    #[must_use]
    pub fn at_sample(mut self, sample_id: u64) -> Self {
        self.0.sample_id = Some(sample_id);
        self
    }

    /// The same error with one more sentence of cure.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.0.message = format!("{}; {hint}", self.0.message);
        self
    }

    /// Exactly what happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What a caller can do about it.
    pub fn class(&self) -> Class {
        self.0.kind.class()
    }

    /// The one-line message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The file or folder, where known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The shard's ordinal, where known.
    pub fn shard(&self) -> Option<u64> {
        self.0.shard
    }

    /// The byte offset in the file, where known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The sample, where known.
    pub fn sample_id(&self) -> Option<u64> {
        self.0.sample_id
    }

    /// The operating system's error number, where there is one.
    pub fn os_error(&self) -> Option<i32> {
        self.0.os_error
    }
}

/// Without what would end the line, or steer a terminal: paths and forged files may have it. Sentences of libraries
/// have line breaks, which become blanks.
fn on_one_line(message: String) -> String {
    let harmful = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !message.contains(harmful) {
        return message;
    }
    let mut line = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            c if !harmful(c) => line.push(c),
            c if c < '\u{100}' => line.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => line.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    line
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

/// What a user can do about a failed system call. The last one is for what only the system's administrator knows.
fn cure(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind as Io;
    // The standard library has no kind for these three.
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => {
            return "raise the limit of open files (ulimit -n), or, while reading, lower max_open_shards";
        }
        Some(Errno::NFILE) => return "the system has too many open files; close some, or raise its limit",
        Some(Errno::LOOP) => return "a symbolic link on the path leads nowhere or in a circle; mend it",
        _ => {}
    }
    match error.kind() {
        Io::PermissionDenied => "give this user the right to it, or choose another root",
        Io::ReadOnlyFilesystem => "choose a root on a file system that can be written to",
        Io::StorageFull => "make room on the device, or choose another root, and run it again to resume",
        Io::QuotaExceeded => "raise the quota or remove files, and run it again to resume",
        Io::FileTooLarge => "lower max_shard_bytes, or choose a file system that has larger files",
        Io::NotFound => "check that the folder is there and is not removed meanwhile",
        Io::AlreadyExists => "move it away, or choose another root or name",
        Io::NotADirectory => "a part of the path is a file; give the path of a folder",
        Io::IsADirectory => "a folder stands where a file belongs; move it away",
        Io::DirectoryNotEmpty => "move away what is in the folder and was not written by datasetrt",
        Io::InvalidFilename => {
            "the path or a name in it is too long for the file system; choose shorter ones"
        }
        Io::CrossesDevices => "let the whole root be on one file system",
        Io::StaleNetworkFileHandle => "the network file system dropped the file; mount it again and retry",
        Io::TimedOut | Io::HostUnreachable | Io::NetworkUnreachable | Io::NetworkDown => {
            "check the network file system and retry"
        }
        Io::ResourceBusy | Io::ExecutableFileBusy => "end the program that uses it, and retry",
        Io::OutOfMemory => "free memory, or read and write less at once",
        Io::Unsupported => "choose a root on a file system that can do this",
        Io::InvalidInput => "check the path",
        _ => "look for the system's error number in its log, check the device, and retry",
    }
}

/// Shorthand for the most common refusal.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_plain() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|k| k.code()).collect();
        assert!(codes.iter().all(|c| c.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }

    #[test]
    fn failed_system_calls_name_action_path_reason_and_cure() {
        let path = Path::new("/data/train");
        for (number, cure) in [
            (13, "right"),
            (30, "can be written"),
            (28, "room"),
            (122, "quota"),
            (27, "max_shard_bytes"),
            (20, "is a file"),
            (21, "folder stands"),
            (36, "shorter"),
            (24, "ulimit -n"),
            (23, "open files"),
            (40, "link"),
            (5, "device"),
            (116, "mount"),
        ] {
            let error = Error::io("open", path, &std::io::Error::from_raw_os_error(number));
            let (what, told) = error.message().split_once("; ").unwrap();
            assert!(what.starts_with("cannot open /data/train: "), "{error}");
            assert!(told.contains(cure), "{number}: {error}");
            assert_eq!(error.os_error(), Some(number));
        }
    }

    #[test]
    fn messages_stay_on_one_line() {
        let message = Error::new(ErrorKind::Io, "a\nb\0c\u{85}d\u{2028}e\u{1b}f").to_string();
        assert_eq!(message, r"a b\x00c\x85d\u2028e\x1bf");
    }
}
