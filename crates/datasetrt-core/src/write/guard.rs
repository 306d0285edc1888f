//! Before a writer touches anything: are the names that it will use free, or its own?

use std::path::Path;

use super::options::WriteOptions;
use super::publish;
use super::recognise::{self, Seen};
use super::staging::{IDENTITY, Part, Paths};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::store::Storage;
use crate::store::folder::{Entry, Folder};

/// Refuses a name that is taken, unless a rebuild may take it.
///
/// # Errors
///
/// `already-exists` for a cache, `name-occupied` for anything else.
pub(super) fn check_target(storage: &dyn Storage, paths: &Paths, options: &WriteOptions) -> Result<()> {
    if options.replace {
        return check_replaceable(storage, paths, options);
    }
    if Folder::open(&paths.root)?.look(&options.name)?.is_none() {
        return Ok(());
    }
    if !storage.exists(&paths.target.join(names::MANIFEST))? {
        return Err(no_cache(paths));
    }
    // A write that was killed right after its publication may have left its journal. One of a rebuild that was
    // interrupted stays: it is still to be resumed.
    if publish::is_journal_of(storage, paths, &paths.target)? {
        publish::clean_up(storage, paths)?;
    }
    let shown = paths.target.display();
    let message = format!(
        "cache {shown} exists already; open it with open_dataset, reuse it with cache, or choose another name"
    );
    Err(Error::new(ErrorKind::AlreadyExists, message).at_path(&paths.target))
}

/// Whether a rebuild may take the name: it is free, a cache or what is left of one, or a link to a cache. A rebuild
/// takes the place of the link and does not touch what it leads to.
///
/// # Errors
///
/// `name-occupied` for anything else, and for a cache with files that datasetrt did not write.
pub(super) fn check_replaceable(storage: &dyn Storage, paths: &Paths, options: &WriteOptions) -> Result<()> {
    let root = Folder::open(&paths.root)?;
    let complete = storage.exists(&paths.target.join(names::MANIFEST))?;
    match root.look(&options.name)? {
        None => Ok(()),
        Some(Entry::Folder) => {
            let folder = root.child(&options.name)?;
            match recognise::stranger(&folder)? {
                None if recognise::cache(&folder)?.proven => Ok(()),
                Some(name) if complete => Err(with_stranger(paths, &name)),
                _ => Err(no_cache(paths)),
            }
        }
        Some(Entry::Link) if complete => Ok(()),
        Some(_) => Err(no_cache(paths)),
    }
}

fn no_cache(paths: &Paths) -> Error {
    let shown = paths.target.display();
    let message = format!("{shown} exists and is not a cache; choose another name or root, or move it away");
    Error::new(ErrorKind::NameOccupied, message).at_path(&paths.target)
}

fn with_stranger(paths: &Paths, name: &str) -> Error {
    let shown = paths.target.display();
    let message =
        format!("{shown} contains '{name}', which datasetrt did not write; move it away before rebuilding");
    Error::new(ErrorKind::NameOccupied, message).at_path(&paths.target)
}

/// Refuses a root that is a cache itself: what is written into it would be taken for somebody else's.
///
/// # Errors
///
/// `name-occupied`.
pub(super) fn check_root(paths: &Paths) -> Result<()> {
    let Some((above, name)) = paths.root.parent().zip(paths.root.file_name()) else { return Ok(()) };
    if !Folder::open(above).is_ok_and(|above| recognise::is_published(&above, name)) {
        return Ok(());
    }
    let shown = paths.root.display();
    let message = format!(
        "{shown} is a cache, which holds no other caches; choose another root, such as the folder it is in"
    );
    Err(Error::new(ErrorKind::NameOccupied, message).at_path(&paths.root))
}

/// Refuses hidden names beside a cache that no writer made. The lock looks at its own file.
///
/// # Errors
///
/// `name-occupied`, naming what is there.
pub(super) fn check_hidden_names(storage: &dyn Storage, paths: &Paths, name: &str) -> Result<()> {
    let root = Folder::open(&paths.root)?;
    let journal = look(&root, name, Part::Journal)?;
    let vouched = journal.as_ref().is_some_and(|seen| {
        seen.foreign.is_none() && seen.proven && seen.files.iter().any(|(_, file)| file == IDENTITY)
    });
    for part in [Part::Journal, Part::Partial, Part::Replaced] {
        let is_link = root.look(part.file_name(name))? == Some(Entry::Link);
        if is_link && vouched && is_replaced_link(storage, paths, &root, name, part)? {
            continue;
        }
        let Some(seen) = look(&root, name, part)? else { continue };
        // Nothing to bring back: an empty folder is not what a rebuild moved away.
        let bare = part == Part::Replaced && seen.files.is_empty() && !vouched && root.look(name)?.is_none();
        let why = seen.not_ours(vouched).or_else(|| bare.then(|| "it is an empty folder".to_owned()));
        if let Some(why) = why {
            return Err(occupied(paths, part, name, &why));
        }
    }
    Ok(())
}

/// A rebuild moves a link that had the cache's name to a hidden name. One that died right then leaves it there, with
/// its journal and the whole new cache: that link, and it alone, is its to move back or to unlink.
fn is_replaced_link(
    storage: &dyn Storage,
    paths: &Paths,
    root: &Folder,
    name: &str,
    part: Part,
) -> Result<bool> {
    let is_new = |name: &str, folder: &Path| {
        Ok(recognise::is_published(root, name) && publish::is_journal_of(storage, paths, folder)?)
    };
    match part {
        Part::Partial => is_new(name, &paths.target),
        Part::Replaced => {
            let staged = Part::Partial.file_name(name);
            Ok(is_new(name, &paths.target)?
                || (root.look(name)?.is_none() && is_new(&staged, &paths.partial)?))
        }
        Part::Journal | Part::Lock => Ok(false),
    }
}

fn look(root: &Folder, name: &str, part: Part) -> Result<Option<Seen>> {
    let file_name = part.file_name(name);
    match (root.look(&file_name)?, part) {
        (None, _) => Ok(None),
        (Some(Entry::Folder), Part::Journal) => recognise::journal(&root.child(&file_name)?).map(Some),
        (Some(Entry::Folder), _) => recognise::cache(&root.child(&file_name)?).map(Some),
        (Some(found), _) => {
            Ok(Some(Seen { foreign: Some(format!("it is {}", found.describe())), ..Seen::default() }))
        }
    }
}

fn occupied(paths: &Paths, part: Part, name: &str, why: &str) -> Error {
    let path = paths.root.join(part.file_name(name));
    let message = format!(
        "{} is in the way of writing '{name}': {why}; look at it, move it away, and run it again",
        path.display()
    );
    Error::new(ErrorKind::NameOccupied, message).at_path(path)
}
