//! Removes what interrupted writes left in a folder of caches, and nothing that we did not make.
//!
//! A leftover is recognised by its name, by what lies in it and by how each file in it begins, all seen
//! through open folders, so that no link is followed. It is removed only under the lock that its
//! writer would hold.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::recognise::{self, Place, Seen};
use super::staging::{IDENTITY, Part, Paths};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::store::folder::{Entry, Folder};
use crate::store::lock::{WriterLock, is_held};

/// Something that an interrupted write may have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// A folder or a lock file.
    pub path: PathBuf,
    /// Files in it.
    pub files: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a leftover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was removed; in a dry run, it would be.
    Removed,
    /// It stays, for this reason.
    Kept(String),
    /// The system refused.
    Failed(Error),
}

/// Removes the leftovers of all interrupted writes in `root`, or only tells them in a dry run.
///
/// An unfinished write that could be resumed is a leftover too. What a running writer uses stays, and so does
/// anything with a leftover's name that a writer would not have made.
///
/// # Errors
///
/// The folder cannot be listed. What concerns one leftover is in its outcome.
pub fn clean(root: &Path, dry_run: bool) -> Result<Vec<Leftover>> {
    let root = &std::path::absolute(root).map_err(|e| Error::io("resolve", root, &e))?;
    let folder = Folder::open(root).map_err(|e| match e.kind() {
        ErrorKind::MissingFile => no_root(root),
        _ => e,
    })?;
    let mut caches: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for file_name in folder.names()? {
        // Our names are Unicode; others are not ours.
        if let Some((name, part)) = file_name.to_str().and_then(Part::parse) {
            caches.entry(name.to_owned()).or_default().push(part);
        }
    }
    let mut leftovers = Vec::new();
    for (name, mut parts) in caches {
        parts.sort_unstable();
        leftovers
            .extend(Cache { folder: &folder, paths: Paths::new(root, &name), name }.clean(&parts, dry_run));
    }
    Ok(leftovers)
}

/// The cache whose leftovers are looked at.
struct Cache<'a> {
    folder: &'a Folder,
    paths: Paths,
    name: String,
}

impl Cache<'_> {
    fn clean(&self, parts: &[Part], dry_run: bool) -> Vec<Leftover> {
        let first = self.look_at_all(parts);
        if !first.iter().any(|(_, seen)| seen.as_ref().is_ok_and(|seen| seen.foreign.is_none())) {
            // Nothing to remove: not even the lock is touched.
            return self.told(first, |_, _| Outcome::Removed);
        }
        if let Some((_, Ok(Seen { foreign: Some(_), .. }))) =
            first.iter().find(|(part, _)| *part == Part::Lock)
        {
            let why = || Outcome::Kept("its lock file is not one of datasetrt".into());
            return self.told(first, |_, _| why());
        }
        if dry_run {
            return match is_held(&self.paths.lock) {
                Ok(false) => self.told(first, |_, _| Outcome::Removed),
                Ok(true) => self.told(first, |_, _| in_use()),
                Err(e) => self.told(first, |_, _| Outcome::Failed(e.clone())),
            };
        }
        let lock = match WriterLock::acquire(&self.paths.lock, &self.name) {
            Ok(lock) => lock,
            Err(e) if e.kind() == ErrorKind::BeingWritten => return self.told(first, |_, _| in_use()),
            Err(e) => return self.told(first, |_, _| Outcome::Failed(e.clone())),
        };
        // Again, now that no writer can change anything.
        let seen = self.look_at_all(parts);
        let told = self.told(seen, |part, seen| match self.remove(part, seen) {
            Ok(()) => Outcome::Removed,
            Err(e) => Outcome::Failed(e),
        });
        // The lock file goes last, and with it the lock.
        drop(lock);
        told
    }

    fn told(
        &self,
        seen: Vec<(Part, Result<Seen>)>,
        mut ours: impl FnMut(Part, &Seen) -> Outcome,
    ) -> Vec<Leftover> {
        let leftover = |(part, seen): (Part, Result<Seen>)| {
            let path = self.paths.root.join(part.file_name(&self.name));
            match seen {
                Ok(seen) => {
                    let outcome = seen.foreign.clone().map_or_else(|| ours(part, &seen), Outcome::Kept);
                    Leftover { path, files: seen.files.len() as u64, bytes: seen.bytes, outcome }
                }
                Err(e) => Leftover { path, files: 0, bytes: 0, outcome: Outcome::Failed(e) },
            }
        };
        seen.into_iter().map(leftover).collect()
    }

    /// Every part that is there. What only its name speaks for is ours if another part, or the cache, is.
    fn look_at_all(&self, parts: &[Part]) -> Vec<(Part, Result<Seen>)> {
        let mut all: Vec<_> = parts.iter().map(|part| (*part, self.look(*part))).collect();
        let known = |(part, seen): &(Part, Result<Seen>)| {
            seen.as_ref().is_ok_and(|seen| {
                seen.foreign.is_none() && (seen.bytes > 0 || (*part != Part::Lock && !seen.files.is_empty()))
            })
        };
        let vouched = all.iter().any(known) || self.is_published();
        for (_, seen) in &mut all {
            if let Ok(seen) = seen {
                let bare = seen.foreign.is_none() && seen.bytes == 0;
                if bare && !vouched {
                    seen.foreign =
                        Some("it is empty, and nothing else here shows that datasetrt made it".into());
                }
            }
        }
        all
    }

    /// Whether a cache has the name, so that hidden names beside it are its writers'.
    fn is_published(&self) -> bool {
        recognise::is_published(self.folder, &self.name)
    }

    fn look(&self, part: Part) -> Result<Seen> {
        let file_name = part.file_name(&self.name);
        match (self.folder.look(&file_name)?, part) {
            (Some(Entry::Folder), Part::Journal) => {
                Ok(recognise::journal(&self.folder.child(&file_name)?)?.strict())
            }
            (Some(Entry::Folder), Part::Partial) => {
                Ok(recognise::cache(&self.folder.child(&file_name)?)?.strict())
            }
            (Some(Entry::Folder), Part::Replaced) => {
                let mut seen = recognise::cache(&self.folder.child(&file_name)?)?.strict();
                let holds_it = seen.foreign.is_none() && !seen.files.is_empty();
                if holds_it && self.folder.look(&self.name)?.is_none() {
                    let why = "it is the cache itself, which a rebuild was about to replace when it ended";
                    seen.foreign = Some(format!("{why}; write '{}' again to bring it back", self.name));
                }
                Ok(seen)
            }
            (Some(Entry::File(bytes)), Part::Lock) => {
                let ours = crate::store::lock::is_ours(&self.folder.file(&file_name)?)?;
                let foreign = (!ours).then(|| "it has content that datasetrt does not write".into());
                Ok(Seen { files: vec![(Place::Top, file_name.into())], bytes, foreign, ..Seen::default() })
            }
            (Some(found), _) => {
                Ok(Seen { foreign: Some(format!("it is {}", found.describe())), ..Seen::default() })
            }
            // Gone since the folder was listed: another clean, or its writer.
            (None, _) => Ok(Seen { foreign: Some("it went away meanwhile".into()), ..Seen::default() }),
        }
    }

    fn remove(&self, part: Part, seen: &Seen) -> Result<()> {
        if part == Part::Lock {
            return Ok(());
        }
        let file_name = part.file_name(&self.name);
        let folder = self.folder.child(&file_name)?;
        // The identity first: what is left without it is not resumed.
        let is_identity = |file: &&(Place, OsString)| file.1 == IDENTITY;
        let rest = seen.files.iter().filter(|file| !is_identity(file));
        for (place, name) in seen.files.iter().filter(is_identity).chain(rest) {
            match place {
                Place::Top => folder.remove_file(name)?,
                Place::Shards => folder.child(names::SHARDS)?.remove_file(name)?,
            }
        }
        if folder.look(names::SHARDS)?.is_some() {
            folder.remove_folder(names::SHARDS)?;
        }
        self.folder.remove_folder(&file_name)
    }
}

fn no_root(root: &Path) -> Error {
    let message = format!("{} is no folder; give the one that caches are written to", root.display());
    Error::new(ErrorKind::NotFound, message).at_path(root)
}

fn in_use() -> Outcome {
    Outcome::Kept("a writer is using it right now".into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::recognise::manifest_head;
    use super::*;
    use crate::store::lock::LOCK_TEXT;

    /// What a killed writer of `x` leaves: a lock, a journal, a shard.
    fn interrupted(root: &Path) {
        let partial = root.join(".x.partial");
        fs::create_dir_all(partial.join("shards")).unwrap();
        fs::create_dir_all(root.join(".x.journal")).unwrap();
        fs::write(partial.join("shards/000000.bin"), b"DRTSHARD and records").unwrap();
        fs::write(root.join(".x.journal/identity.json"), b"{\n  \"version\": 1").unwrap();
        fs::write(root.join(".x.journal/000000.segment"), b"DRTSEGM1").unwrap();
        fs::write(root.join(".x.lock"), LOCK_TEXT).unwrap();
    }

    fn names_in(root: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn outcomes(told: &[Leftover]) -> Vec<&Outcome> {
        told.iter().map(|leftover| &leftover.outcome).collect()
    }

    #[test]
    fn an_interrupted_write_is_removed_and_told() {
        let root = tempfile::tempdir().unwrap();
        interrupted(root.path());
        let before = clean(root.path(), true).unwrap();
        assert_eq!(names_in(root.path()).len(), 3);
        let told = clean(root.path(), false).unwrap();
        assert_eq!(told, before);
        assert_eq!(outcomes(&told), [&Outcome::Removed; 3]);
        assert_eq!(told.iter().map(|l| (l.files, l.bytes)).collect::<Vec<_>>(), [(2, 24), (1, 20), (1, 22)]);
        assert!(names_in(root.path()).is_empty());
        assert!(clean(root.path(), false).unwrap().is_empty());
    }

    #[test]
    fn nothing_of_a_running_writer_is_touched() {
        let root = tempfile::tempdir().unwrap();
        interrupted(root.path());
        let _held = WriterLock::acquire(&root.path().join(".x.lock"), "x").unwrap();
        for dry_run in [true, false] {
            let told = clean(root.path(), dry_run).unwrap();
            assert_eq!(outcomes(&told), [&in_use(), &in_use(), &in_use()]);
        }
        assert_eq!(names_in(root.path()).len(), 3);
    }

    #[test]
    fn what_a_writer_would_not_have_made_stays() {
        let spoil: [fn(&Path); 6] = [
            |root| fs::write(root.join(".x.partial/notes.txt"), b"mine").unwrap(),
            |root| fs::write(root.join(".x.partial/shards/000001.bin"), b"not a shard").unwrap(),
            |root| fs::create_dir(root.join(".x.partial/shards/000001.bin")).unwrap(),
            |root| std::os::unix::fs::symlink("/", root.join(".x.partial/shards/000001.bin")).unwrap(),
            |root| fs::write(root.join(".x.lock"), b"12345\n").unwrap(),
            |root| {
                fs::remove_file(root.join(".x.lock")).unwrap();
                std::os::unix::fs::symlink("elsewhere", root.join(".x.lock")).unwrap();
            },
        ];
        for (case, spoil) in spoil.iter().enumerate() {
            let root = tempfile::tempdir().unwrap();
            interrupted(root.path());
            spoil(root.path());
            for dry_run in [true, false] {
                let told = clean(root.path(), dry_run).unwrap();
                assert!(told.iter().any(|l| matches!(l.outcome, Outcome::Kept(_))), "case {case}: {told:?}");
            }
            assert!(root.path().join(".x.partial/shards/000000.bin").exists(), "case {case}");
        }
    }

    #[test]
    fn links_are_not_followed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        interrupted(outside.path());
        for part in ["partial", "journal", "lock"] {
            let name = format!(".x.{part}");
            std::os::unix::fs::symlink(outside.path().join(&name), root.path().join(&name)).unwrap();
        }
        let told = clean(root.path(), false).unwrap();
        assert!(told.iter().all(|l| matches!(l.outcome, Outcome::Kept(_))), "{told:?}");
        assert_eq!(names_in(outside.path()).len(), 3);
        assert_eq!(names_in(root.path()).len(), 3);
        // A linked folder of shards inside a leftover of ours.
        fs::remove_dir_all(outside.path().join(".x.partial/shards")).unwrap();
        fs::create_dir(outside.path().join("mine")).unwrap();
        fs::write(outside.path().join("mine/000000.bin"), b"DRTSHARD").unwrap();
        std::os::unix::fs::symlink("../mine", outside.path().join(".x.partial/shards")).unwrap();
        clean(outside.path(), false).unwrap();
        assert!(outside.path().join("mine/000000.bin").exists());
        assert!(outside.path().join(".x.partial/shards").is_symlink());
    }

    #[test]
    fn what_only_its_name_speaks_for_stays_unless_the_cache_is_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(".x.partial")).unwrap();
        fs::write(root.path().join(".x.lock"), b"").unwrap();
        let told = clean(root.path(), false).unwrap();
        assert!(told.iter().all(|l| matches!(l.outcome, Outcome::Kept(_))), "{told:?}");
        fs::create_dir(root.path().join("x")).unwrap();
        fs::write(root.path().join("x/manifest.json"), manifest_head()).unwrap();
        let told = clean(root.path(), false).unwrap();
        assert_eq!(outcomes(&told), [&Outcome::Removed; 2]);
        assert_eq!(names_in(root.path()), ["x"]);
    }

    #[test]
    fn a_replaced_cache_goes_only_if_the_new_one_is_there() {
        let root = tempfile::tempdir().unwrap();
        let replaced = root.path().join(".x.replaced");
        fs::create_dir_all(replaced.join("shards")).unwrap();
        fs::write(replaced.join("manifest.json"), manifest_head()).unwrap();
        fs::create_dir(root.path().join(".y.replaced")).unwrap();
        let told = clean(root.path(), false).unwrap();
        assert!(matches!(told[0].outcome, Outcome::Kept(_)), "{told:?}");
        assert!(matches!(&told[1].outcome, Outcome::Kept(why) if why.contains("it is empty")), "{told:?}");
        assert!(replaced.join("manifest.json").exists());
        fs::create_dir(root.path().join("x")).unwrap();
        let told = clean(root.path(), false).unwrap();
        assert_eq!(told[0].outcome, Outcome::Removed);
        assert!(!replaced.exists());
    }

    #[test]
    fn names_of_others_are_not_looked_at() {
        let root = tempfile::tempdir().unwrap();
        for name in ["x.partial", ".partial", "..partial", ".x.partial.old", ".x.Partial", ".a\\b.partial"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        assert!(clean(root.path(), false).unwrap().is_empty());
        assert_eq!(names_in(root.path()).len(), 6);
    }
}
