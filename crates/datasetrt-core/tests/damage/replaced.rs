//! Something that is no file in the place of a file, of a folder or of the cache itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use datasetrt_core::{Class, ErrorKind};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::caches::{Copy, remove};
use crate::expected::{Outcome, refused};
use crate::{CACHES, Tally};

type Thing = (&'static str, fn(&Path));

/// Devices themselves need a privilege to be made; links to them do not, and are always tried.
const THINGS: [Thing; 11] = [
    ("nothing", |_| ()),
    ("a folder", |path| fs::create_dir(path).unwrap()),
    ("a pipe", |path| mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap()),
    ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("a link to itself", |path| symlink(path.file_name().unwrap(), path).unwrap()),
    ("a link to nowhere", |path| symlink("nowhere", path).unwrap()),
    ("a link to /dev/zero", |path| symlink("/dev/zero", path).unwrap()),
    ("a link to /dev/full", |path| symlink("/dev/full", path).unwrap()),
    ("a link to /proc/self/mem", |path| symlink("/proc/self/mem", path).unwrap()),
    ("a link to a folder", |path| symlink("/", path).unwrap()),
    ("an endless device, where it may be made", |path| {
        // Elsewhere a pipe stands in: the same open, the same answer.
        if mknodat(CWD, path, FileType::CharacterDevice, Mode::RWXU, makedev(1, 5)).is_err() {
            mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
    }),
];

#[test]
fn replace_every_file() {
    let mut tally = Tally::default();
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        for file in sound.files.keys() {
            for (thing, make) in THINGS {
                let path = copy.path(file);
                remove(&path);
                make(&path);
                let case = || format!("{}/{file} is {thing}", sound.name);
                let outcome = tally.look(&copy, &case, true);
                let Outcome::Refused(error) = &outcome else { panic!("{}: {outcome:?}", case()) };
                let (path, kind) = match file.as_str() {
                    // A link is named as what it is: it leads to the cure.
                    _ if thing.starts_with("a link") => (path, ErrorKind::SymbolicLink),
                    "manifest.json" if thing == "nothing" => (copy.folder.clone(), ErrorKind::Unfinished),
                    _ => (path, ErrorKind::MissingFile),
                };
                let told = refused(error, &path, &[kind]);
                let told = told.unwrap_or_else(|why| panic!("{}: {why}: {error:?}", case()));
                tally.add(thing, told.code());
                copy.mend_file(file);
            }
            // A link to the very bytes is refused as well: it could lead out of the cache.
            let (path, elsewhere) = (copy.path(file), copy.root.path().join("elsewhere"));
            fs::rename(&path, &elsewhere).unwrap();
            symlink(&elsewhere, &path).unwrap();
            let case = || format!("{}/{file} is a link to its bytes", sound.name);
            let outcome = tally.look(&copy, &case, true);
            assert!(matches!(outcome, Outcome::Refused(_)), "{}", case());
            tally.add("a link to its bytes", outcome.first().map_or("none", |e| e.kind().code()));
            copy.mend_file(file);
        }
    }
    tally.report("replace files");
}

#[test]
fn replace_the_folders() {
    let mut tally = Tally::default();
    for sound in CACHES.iter() {
        let copy = Copy::new(sound);
        for folder in [copy.folder.clone(), copy.folder.join("shards")] {
            let things =
                THINGS.into_iter().chain([("a file", (|p: &Path| fs::write(p, "x").unwrap()) as fn(&Path))]);
            for (thing, make) in things {
                remove(&folder);
                make(&folder);
                let case = || format!("{} is {thing}", folder.display());
                let outcome = tally.look(&copy, &case, true);
                let Outcome::Refused(error) = &outcome else { panic!("{}: {outcome:?}", case()) };
                let classes = [Class::CacheNotFound, Class::Format, Class::Corruption, Class::Storage];
                assert!(classes.contains(&error.class()), "{}: {error:?}", case());
                tally.add(thing, error.kind().code());
                remove(&folder);
                copy.mend();
            }
        }
    }
    tally.report("replace folders");
}
