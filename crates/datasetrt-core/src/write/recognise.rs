//! What a writer made, recognised by names, kinds and beginnings of files. No link is followed.

use std::ffi::{OsStr, OsString};

use super::segment;
use super::staging::{IDENTITY, SEGMENT_SUFFIX};
use crate::error::Result;
use crate::format::{index, names, shard};
use crate::store::file::ReadFile;
use crate::store::folder::{Entry, Folder};

/// What a hidden folder turned out to be.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The files that are ours.
    pub(super) files: Vec<(Place, OsString)>,
    pub(super) bytes: u64,
    /// Why it is not ours: a name or a kind of file that no writer makes.
    pub(super) foreign: Option<String>,
    /// A file with a name of ours that does not begin as ours: damaged, or somebody else's.
    pub(super) unlike: Option<String>,
    /// Whether a file begins as only ours do, so that the others are ours, too.
    pub(super) proven: bool,
}

/// Where a file lies: in the part itself or in its folder of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Top,
    Shards,
}

/// How a file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// As only ours do.
    Ours,
    /// It ended before it said so, or a loss of power left zeros: a writer may die at any byte.
    Torn,
    Other,
}

/// Looks at the journal of an unfinished write.
pub(super) fn journal(folder: &Folder) -> Result<Seen> {
    let mut seen = Seen::default();
    seen.add_all(folder, Place::Top, None, |name| match name {
        IDENTITY => Some(b"{\n  \"version\": "),
        _ => names::ordinal(name, SEGMENT_SUFFIX).map(|_| &segment::FAMILY[..]),
    })?;
    Ok(seen)
}

/// Looks at the folder of a cache, whole or not.
pub(super) fn cache(folder: &Folder) -> Result<Seen> {
    let mut seen = Seen::default();
    seen.add_all(folder, Place::Top, Some(names::SHARDS), |name| match name {
        names::MANIFEST => Some(manifest_head()),
        names::METADATA => Some(b"ARROW1"),
        names::INDEX => Some(index::MAGIC),
        _ => None,
    })?;
    if folder.look(names::SHARDS)? == Some(Entry::Folder) {
        let shard = |name: &str| names::ordinal(name, names::SHARD_SUFFIX).map(|_| &shard::HEADER_MAGIC[..]);
        seen.add_all(&folder.child(names::SHARDS)?, Place::Shards, None, shard)?;
    }
    Ok(seen)
}

/// Whether `name` in `root` is a folder with a manifest.
pub(super) fn is_published(root: &Folder, name: impl AsRef<OsStr>) -> bool {
    let cache = root.child(name);
    cache.is_ok_and(|cache| {
        head_of(&cache, names::MANIFEST.as_ref(), manifest_head()).is_ok_and(|head| head != Head::Other)
    })
}

/// The first entry of a cache folder that datasetrt did not write. A link with a name of ours may stand for a file:
/// whoever removes it removes the link alone.
pub(super) fn stranger(folder: &Folder) -> Result<Option<String>> {
    let is_ours = |name: &OsStr, entry| match name.to_str() {
        Some(names::SHARDS) => matches!(entry, Entry::Folder | Entry::Link),
        Some(names::MANIFEST | names::METADATA | names::INDEX) => is_plain(entry),
        _ => false,
    };
    if let Some(name) = first_other(folder, is_ours)? {
        return Ok(Some(name));
    }
    if folder.look(names::SHARDS)? != Some(Entry::Folder) {
        return Ok(None);
    }
    let is_shard = |name: &OsStr, entry| {
        name.to_str().is_some_and(|name| names::ordinal(name, names::SHARD_SUFFIX).is_some())
            && is_plain(entry)
    };
    let found = first_other(&folder.child(names::SHARDS)?, is_shard)?;
    Ok(found.map(|name| format!("{}/{name}", names::SHARDS)))
}

fn is_plain(entry: Entry) -> bool {
    matches!(entry, Entry::File(_) | Entry::Link)
}

fn first_other(folder: &Folder, ours: impl Fn(&OsStr, Entry) -> bool) -> Result<Option<String>> {
    for name in folder.names()? {
        if folder.look(&name)?.is_some_and(|entry| !ours(&name, entry)) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// How every manifest begins; the document of the format does not promise the spaces, our writer does.
pub(super) fn manifest_head() -> &'static [u8] {
    b"{\n  \"format\": \"datasetrt-cache\""
}

impl Seen {
    /// Why it is not ours. What is unlike ours is damaged where something else shows who made it.
    pub(super) fn not_ours(self, vouched: bool) -> Option<String> {
        let unlike = if vouched || self.proven { None } else { self.unlike };
        self.foreign.or(unlike)
    }

    /// As a stranger to this write sees it: what is damaged may be somebody else's.
    pub(super) fn strict(mut self) -> Self {
        self.foreign = self.foreign.or_else(|| self.unlike.take());
        self
    }

    /// Adds the files of a folder, which may have one folder called `inner` in it. `head` says how a file of
    /// that name begins, if it is one of ours.
    fn add_all(
        &mut self,
        folder: &Folder,
        place: Place,
        inner: Option<&str>,
        head: impl Fn(&str) -> Option<&'static [u8]>,
    ) -> Result<()> {
        for name in folder.names()? {
            let entry = folder.look(&name)?;
            if entry == Some(Entry::Folder) && Some(name.as_os_str()) == inner.map(OsStr::new) {
                continue;
            }
            match (name.to_str().and_then(&head), entry) {
                (Some(head), Some(Entry::File(bytes))) => self.add(folder, place, name, bytes, head)?,
                // Gone since the folder was listed.
                (_, None) => {}
                _ => {
                    self.foreign.get_or_insert_with(|| not_made(folder, &name));
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, folder: &Folder, place: Place, name: OsString, bytes: u64, head: &[u8]) -> Result<()> {
        match head_of(folder, &name, head)? {
            Head::Other => {
                self.unlike.get_or_insert_with(|| not_made(folder, &name));
                return Ok(());
            }
            // Other programs write Arrow files, too.
            Head::Ours => self.proven |= name != names::METADATA,
            Head::Torn => {}
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.files.push((place, name));
        Ok(())
    }
}

fn not_made(folder: &Folder, name: &OsStr) -> String {
    format!("datasetrt did not make {}", folder.path().join(name).display())
}

fn head_of(folder: &Folder, name: &OsStr, head: &[u8]) -> Result<Head> {
    let file = folder.file(name)?;
    let mut found = vec![0; head.len().min(usize::try_from(file.bytes()).unwrap_or(usize::MAX))];
    file.read_exact_at(&mut found, 0)?;
    Ok(if found == head {
        Head::Ours
    } else if head.starts_with(&found) || begins_empty(&file)? {
        Head::Torn
    } else {
        Head::Other
    })
}

/// Whether the file's first sector was never written, as a loss of power may leave it. Another program's file may begin
/// with a few zeros.
fn begins_empty(file: &ReadFile) -> Result<bool> {
    const SECTOR_BYTES: u64 = 512;
    let mut sector = vec![0; usize::try_from(file.bytes().min(SECTOR_BYTES)).unwrap_or(0)];
    file.read_exact_at(&mut sector, 0)?;
    Ok(sector.iter().all(|byte| *byte == 0))
}
