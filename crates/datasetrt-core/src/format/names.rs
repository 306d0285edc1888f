//! File and folder names of a cache, and the rule for its own name.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Written last: its presence is the publication.
pub const MANIFEST: &str = "manifest.json";
/// One row a sample.
pub const METADATA: &str = "metadata.arrow";
/// Where each record ends.
pub const INDEX: &str = "index.bin";
/// The folder of the shards.
pub const SHARDS: &str = "shards";

/// Longest name in bytes; leaves room for the hidden names beside it on file systems with 255.
pub const MAX_NAME_BYTES: usize = 200;

/// How the name of a shard ends.
pub const SHARD_SUFFIX: &str = ".bin";

/// The file name of a shard.
pub fn shard_file(ordinal: u64) -> String {
    format!("{ordinal:06}{SHARD_SUFFIX}")
}

/// The path of a shard inside a cache folder.
pub fn shard_path(cache: &Path, ordinal: u64) -> PathBuf {
    cache.join(SHARDS).join(shard_file(ordinal))
}

/// The number in a file name of ours, such as `000007.bin`.
pub fn ordinal(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let plain = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// Refuses a source name that is not one plain path segment.
pub fn check_name(name: &str) -> Result<()> {
    let problem = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > MAX_NAME_BYTES {
        format!("it has {} bytes in UTF-8, and {MAX_NAME_BYTES} are the most", name.len())
    } else if name.starts_with('.') {
        "it begins with a full stop, which marks unfinished writes".to_owned()
    } else if name.chars().any(|c| matches!(c, '/' | '\\') || c.is_control()) {
        "it contains a path separator or a control character".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(80).collect();
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "source name {shown:?} cannot be used: {problem}; choose one plain folder name such as 'train'"
        ),
    ))
}

/// Most bytes of a text that describes the data: a fingerprint, the name of a codec, the name of a column.
pub const MAX_LABEL_BYTES: usize = 4096;

/// Refuses a fingerprint or the name of a codec that is too long, or that C programs would cut.
pub fn check_label(what: &str, text: &str) -> Result<()> {
    let problem = if text.len() > MAX_LABEL_BYTES {
        format!("has {} bytes in UTF-8, and {MAX_LABEL_BYTES} are the most; give a digest of it", text.len())
    } else if text.contains('\0') {
        "has a NUL character; leave it out".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = text.chars().take(80).collect();
    Err(Error::new(ErrorKind::InvalidArgument, format!("{what} {shown:?} {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_text() {
        for text in ["", "v3", "a\nb", &"f".repeat(4096)] {
            assert!(check_label("fingerprint", text).is_ok());
        }
        for text in ["a\0b", &"f".repeat(4097), &"é".repeat(2049)] {
            assert!(check_label("fingerprint", text).is_err());
        }
    }

    #[test]
    fn plain_names_pass_and_others_do_not() {
        for name in ["train", "a b", "é", "x.y", &"n".repeat(200)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0b", "a\nb", &"n".repeat(201)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn ordinals_have_at_least_six_digits() {
        assert_eq!(shard_file(7), "000007.bin");
        assert_eq!(shard_file(1_234_567), "1234567.bin");
    }
}
