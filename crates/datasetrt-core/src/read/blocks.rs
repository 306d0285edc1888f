//! A file whose bytes are compared again at every read, block by block.

use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::{BlockHasher, xxh3_64};
use crate::memory;
use crate::metadata::ReadAt;
use crate::store::file::ReadFile;

/// Small enough that a single cell costs little more than the system call, large enough that the hashes take a
/// hundredth of the file.
const BLOCK_BYTES: usize = 1024;

/// Hashes of the blocks of a file, taken while its checksum was compared.
#[derive(Debug, Default)]
pub(super) struct BlockHashes {
    hashes: Vec<u64>,
    hasher: BlockHasher,
    /// The bytes since the last whole block.
    rest: Vec<u8>,
}

impl BlockHashes {
    /// Of a file of so many bytes.
    pub(super) fn of(bytes: u64) -> Result<Self> {
        let blocks = usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        Ok(BlockHashes {
            hashes: memory::list("hashes of metadata", blocks.saturating_add(1))?,
            ..Self::default()
        })
    }

    /// Adds the next bytes of the file.
    pub(super) fn update(&mut self, piece: &[u8]) {
        let missing = if self.rest.is_empty() { 0 } else { BLOCK_BYTES - self.rest.len() };
        let (first, later) = piece.split_at(piece.len().min(missing));
        self.rest.extend_from_slice(first);
        if self.rest.len() == BLOCK_BYTES {
            self.close();
        }
        let (whole, last) = later.as_chunks::<BLOCK_BYTES>();
        self.hashes.extend(whole.iter().map(|block| self.hasher.hash(block)));
        self.rest.extend_from_slice(last);
    }

    /// Ends the last block.
    pub(super) fn finish(mut self) -> Self {
        self.close();
        self
    }

    fn close(&mut self) {
        self.hashes.push(xxh3_64(&self.rest));
        self.rest.clear();
    }
}

/// Reads of a file that are compared with the hashes of its blocks.
pub(super) struct CheckedFile<'a> {
    pub(super) file: &'a ReadFile,
    pub(super) hashes: &'a BlockHashes,
}

impl ReadAt for CheckedFile<'_> {
    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let within = usize::try_from(offset % BLOCK_BYTES as u64).unwrap_or_default();
        let before = if within == 0 { 0 } else { (BLOCK_BYTES - within).min(out.len()) };
        let (first, rest) = out.split_at_mut(before);
        let whole_bytes = rest.len() / BLOCK_BYTES * BLOCK_BYTES;
        let (whole, last) = rest.split_at_mut(whole_bytes);
        self.read_within_block(first, offset)?;
        // Whole blocks come with one system call, to where they belong.
        let start = offset + before as u64;
        if !whole.is_empty() {
            self.file.read_exact_at(whole, start)?;
        }
        for (block, number) in whole.as_chunks::<BLOCK_BYTES>().0.iter().zip(start / BLOCK_BYTES as u64..) {
            self.compare(block, number)?;
        }
        self.read_within_block(last, start + whole_bytes as u64)
    }
}

impl CheckedFile<'_> {
    /// Reads bytes of one block; all of it is compared.
    fn read_within_block(&self, out: &mut [u8], offset: u64) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let number = offset / BLOCK_BYTES as u64;
        let start = number * BLOCK_BYTES as u64;
        let bytes = usize::try_from(self.bytes().saturating_sub(start)).unwrap_or(BLOCK_BYTES);
        let mut block = [0; BLOCK_BYTES];
        let block = block.get_mut(..bytes.min(BLOCK_BYTES)).unwrap_or_default();
        self.file.read_exact_at(block, start)?;
        self.compare(block, number)?;
        let from = usize::try_from(offset - start).unwrap_or(BLOCK_BYTES);
        let found = block.get(from..).and_then(|found| found.get(..out.len()));
        out.copy_from_slice(found.ok_or_else(|| self.changed(start))?);
        Ok(())
    }

    fn compare(&self, block: &[u8], number: u64) -> Result<()> {
        let known = usize::try_from(number).ok().and_then(|at| self.hashes.hashes.get(at));
        let found = match block.try_into() {
            Ok(block) => self.hashes.hasher.hash(block),
            Err(_) => xxh3_64(block),
        };
        if known == Some(&found) { Ok(()) } else { Err(self.changed(number * BLOCK_BYTES as u64)) }
    }

    fn changed(&self, offset: u64) -> Error {
        let path = self.file.path();
        let message = format!(
            "{} changed at bytes {offset} and following since the dataset was opened; restore it and open it again, or rebuild the cache with on_stale='rebuild'",
            path.display()
        );
        Error::new(ErrorKind::MetadataChecksum, message).at_path(path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hashes(bytes: &[u8], piece: usize) -> BlockHashes {
        let mut hashes = BlockHashes::default();
        bytes.chunks(piece).for_each(|piece| hashes.update(piece));
        hashes.finish()
    }

    proptest! {
        #[test]
        fn reads_are_those_of_the_file_and_a_flip_in_their_blocks_is_found(
            length in 1usize..20_000, piece in 1usize..9000, ends in any::<(prop::sample::Index, prop::sample::Index)>(),
            flip in any::<prop::sample::Index>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            let mut bytes: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let hashes = hashes(&bytes, piece);
            let (a, b) = (ends.0.index(length), ends.1.index(length));
            let (start, end) = (a.min(b), a.max(b) + 1);
            let file = ReadFile::open(&path).unwrap();
            let checked = CheckedFile { file: &file, hashes: &hashes };
            let mut found = vec![0; end - start];
            checked.read_exact_at(&mut found, start as u64).unwrap();
            prop_assert_eq!(&found, &bytes[start..end]);
            let flip = flip.index(length);
            bytes[flip] ^= 4;
            std::fs::write(&path, &bytes).unwrap();
            let touched = start / BLOCK_BYTES <= flip / BLOCK_BYTES && flip / BLOCK_BYTES <= (end - 1) / BLOCK_BYTES;
            let again = checked.read_exact_at(&mut found, start as u64);
            prop_assert_eq!(again.err().map(|e| e.kind()), touched.then_some(ErrorKind::MetadataChecksum));
            prop_assert!(checked.read_exact_at(&mut [0; 2], length as u64 - 1).is_err());
        }
    }
}
