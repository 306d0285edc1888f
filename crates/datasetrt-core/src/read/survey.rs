//! Everything wrong with a folder, whether it can be opened or not.
//!
//! A cache that opens is verified as it is. Where it does not, but the manifest is sound, its files are compared with
//! the manifest one by one. Without a manifest they are left to themselves, see [`Alone`].

use std::path::{Path, PathBuf};

use super::alone::Alone;
use super::cache::{Cache, ReadOptions};
use super::files::{prefixed, read_manifest, take_rules};
use super::verify::{Files, Problems, Progress};
use crate::error::{Class, Error, ErrorKind, Result};
use crate::format::checksum::Digest;
use crate::format::manifest::Manifest;
use crate::format::names;
use crate::format::record::Rules;

/// A folder that is to be verified.
pub struct Survey {
    folder: PathBuf,
    found: Found,
    /// The digest of the manifest's bytes, where there were any.
    manifest: Option<Digest>,
}

/// How much of a cache could be made out.
enum Found {
    Whole(Box<Cache>),
    /// A sound manifest; opening failed for `why`.
    Described {
        manifest: Box<Manifest>,
        checksum: Digest,
        rules: Result<Rules>,
        why: Error,
    },
    /// No manifest that can be believed, for `why`.
    Alone {
        files: Alone,
        why: Error,
    },
}

impl Survey {
    /// Looks at what there is to be verified.
    ///
    /// # Errors
    ///
    /// Where there is nothing to verify: `not-found`, `not-a-cache`, `unsupported-version`, or a manifest that the
    /// system does not let us read; memory that the system refuses.
    pub fn of(folder: &Path) -> Result<Self> {
        let why = match Cache::open(folder, ReadOptions::default()) {
            Ok(cache) => {
                let folder = cache.folder().to_owned();
                return Ok(Survey { folder, found: Found::Whole(Box::new(cache)), manifest: None });
            }
            Err(error) if error.is_no_memory() => return Err(error),
            Err(error) => error,
        };
        let folder = std::path::absolute(folder).map_err(|e| Error::io("resolve", folder, &e))?;
        let bytes = read_manifest(&folder);
        let manifest = bytes.as_ref().ok().map(|bytes| *blake3::hash(bytes).as_bytes());
        let decoded = bytes.and_then(|bytes| {
            Manifest::decode(&bytes).map_err(|e| prefixed(&e, &folder, &folder.join(names::MANIFEST)))
        });
        let found = match decoded {
            Ok((mut manifest, checksum)) => {
                let rules = take_rules(&mut manifest);
                Found::Described { manifest: Box::new(manifest), checksum, rules, why }
            }
            Err(error) => {
                let files = Alone::of(&folder);
                if !is_damage(&error, &files) {
                    return Err(error);
                }
                Found::Alone { files, why: error }
            }
        };
        Ok(Survey { folder, found, manifest })
    }

    /// The samples that the manifest states, if there is one.
    pub fn samples(&self) -> Option<u64> {
        match &self.found {
            Found::Whole(cache) => Some(cache.manifest().sample_count),
            Found::Described { manifest, .. } => Some(manifest.sample_count),
            Found::Alone { .. } => None,
        }
    }

    /// How many bytes of shards will be read.
    pub fn bytes(&self) -> u64 {
        match &self.found {
            Found::Whole(cache) => cache.manifest().stored_bytes(),
            Found::Described { manifest, .. } => manifest.stored_bytes(),
            Found::Alone { files, .. } => files.bytes(),
        }
    }

    /// Reads every byte and tells everything that is wrong, in the order of manifest, index, metadata and shards; of
    /// more than 10,000 problems the last one tells how many there are besides. `changed`, and nothing else, where
    /// another cache has taken the folder meanwhile.
    ///
    /// # Errors
    ///
    /// Only what `progress` answers, and memory that the system refuses.
    pub fn verify(&self, progress: &mut dyn Progress) -> Result<Vec<Error>> {
        let mut problems = Problems::of(&self.folder);
        match &self.found {
            Found::Whole(cache) => return cache.verify(progress),
            Found::Described { manifest, checksum, rules, why } => {
                let folder = &self.folder;
                let of_manifest = |e: &Error| prefixed(e, folder, &folder.join(names::MANIFEST));
                problems.extend(rules.as_ref().err().map(of_manifest));
                let files = Files { folder, manifest, checksum, rules: rules.as_ref().ok(), index: None };
                files.verify(progress, &mut problems)?;
                // It opened no more, so that something was wrong, even if it is gone by now.
                if problems.is_empty() {
                    problems.extend([why.clone()]);
                }
            }
            Found::Alone { files, why } => {
                problems.extend([why.clone()]);
                files.verify(progress, &mut problems)?;
            }
        }
        // Asked afterwards: it may have come meanwhile.
        let now = read_manifest(&self.folder).ok().map(|bytes| *blake3::hash(&bytes).as_bytes());
        if now.is_some() && now != self.manifest {
            let shown = self.folder.display();
            let message = format!("cache {shown} was rebuilt while it was checked; check it again");
            return Ok(vec![Error::new(ErrorKind::Changed, message).at_path(&self.folder)]);
        }
        problems.finish()
    }
}

/// Whether a manifest that cannot be read is damaged, rather than none of ours or out of reach.
fn is_damage(error: &Error, files: &Alone) -> bool {
    match error.kind() {
        ErrorKind::Unfinished | ErrorKind::BadManifest => true,
        // A bit may have been flipped in the very words that say whose it is.
        ErrorKind::NotACache | ErrorKind::UnsupportedVersion => files.are_ours(),
        _ => error.class() == Class::Corruption,
    }
}
