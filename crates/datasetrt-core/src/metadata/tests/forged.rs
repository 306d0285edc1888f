//! Files that are sound but for one number: each rule of the decoder, broken alone.

use std::ops::Range;

use arrow_buffer::Buffer;
use arrow_ipc as ipc;

use super::*;
use crate::error::ErrorKind;
use crate::metadata::ipc::decode_file;

/// A sound file with places to break it at. Two batches of five rows.
struct Forge {
    bytes: Vec<u8>,
    footer: Range<usize>,
}

/// Where a part of a slice lies in it.
fn place<T>(bytes: &[u8], part: &T) -> usize {
    std::ptr::from_ref(part) as usize - bytes.as_ptr() as usize
}

impl Forge {
    fn new() -> Self {
        let row = |n: i64| {
            let number = if n == 2 { Cell::Null } else { Cell::Int(n) };
            vec![number, Cell::Str(format!("row {n}"))]
        };
        let columns = [("i", ColumnType::Int64), ("t", ColumnType::String)];
        let (bytes, _) = Model::of(&columns, (0..10).map(row).collect()).file(&[5]);
        let end = bytes.len() - 10;
        let length = i32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
        Forge { bytes, footer: end - length..end }
    }

    /// The footer's entry for a batch, its own place in the file, and the place of the message.
    fn block(&self, number: usize) -> (ipc::Block, usize, Range<usize>) {
        let footer = ipc::root_as_footer(&self.bytes[self.footer.clone()]).unwrap();
        let block = footer.recordBatches().unwrap().get(number);
        let start = block.offset() as usize;
        let message = start + 8..start + block.metaDataLength() as usize;
        (*block, place(&self.bytes, block), message)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Replaces a scalar of a table inside the flatbuffer that starts at `start`.
    fn put_scalar(&mut self, start: usize, table: usize, slot: u16, bytes: &[u8]) {
        let table = start + table;
        let vtable = self.vtable(table);
        let [low, high, ..] = self.word(vtable + slot as usize);
        let field = u16::from_le_bytes([low, high]) as usize;
        assert_ne!(field, 0, "the scalar is not in the file");
        self.put(table + field, bytes);
    }

    /// The list of slots of a table, which may lie on either side of it.
    fn vtable(&self, table: usize) -> usize {
        (table as i64 - i64::from(i32::from_le_bytes(self.word(table)))) as usize
    }

    fn word(&self, at: usize) -> [u8; 4] {
        self.bytes[at..at + 4].try_into().unwrap()
    }

    fn put_block(&mut self, number: usize, change: impl Fn(ipc::Block) -> ipc::Block) {
        let (block, at, _) = self.block(number);
        self.put(at, &change(block).0);
    }

    fn put_body_length(&mut self, number: usize, length: i64) {
        let message = self.block(number).2;
        let table = ipc::root_as_message(&self.bytes[message.clone()]).unwrap()._tab.loc();
        let slot = ipc::Message::VT_BODYLENGTH;
        self.put_scalar(message.start, table, slot, &length.to_le_bytes());
    }

    /// Changes the message of the first batch: gives the batch, takes a place and bytes.
    fn put_in_batch(&mut self, change: impl Fn(&ipc::RecordBatch<'_>, &[u8]) -> (usize, Vec<u8>)) {
        let message = self.block(0).2;
        let root = ipc::root_as_message(&self.bytes[message]).unwrap();
        let (at, bytes) = change(&root.header_as_record_batch().unwrap(), &self.bytes);
        self.put(at, &bytes);
    }

    fn error(&self) -> Option<String> {
        let error = decode_file(&Buffer::from(self.bytes.as_slice())).err()?;
        assert_eq!(error.kind(), ErrorKind::BadMetadata);
        Some(error.message().to_owned())
    }
}

#[track_caller]
fn refused(words: &str, forge: impl Fn(&mut Forge)) {
    let mut file = Forge::new();
    assert_eq!(file.error(), None);
    forge(&mut file);
    let message = file.error().expect("the file must be refused");
    assert!(message.contains(words), "{message}\nlacks {words}");
}

#[test]
fn the_frame_of_the_file() {
    refused("bytes are no Arrow file", |f| f.bytes[0] = b'B');
    refused("bytes are no Arrow file", |f| *f.bytes.last_mut().unwrap() = b'2');
    for length in [-1, i32::MAX, i32::MIN] {
        refused("bytes are no Arrow file", |f| f.put(f.footer.end, &length.to_le_bytes()));
    }
    refused("footer: ", |f| f.put(f.footer.start, &[0xff; 4]));
    refused("version V4 of the Arrow format", |f| {
        let table = ipc::root_as_footer(&f.bytes[f.footer.clone()]).unwrap()._tab.loc();
        f.put_scalar(f.footer.start, table, ipc::Footer::VT_VERSION, &3_i16.to_le_bytes());
    });
}

#[test]
fn big_endian_values() {
    refused("big-endian", |f| {
        let footer = ipc::root_as_footer(&f.bytes[f.footer.clone()]).unwrap();
        let table = f.footer.start + footer.schema().unwrap()._tab.loc();
        let vtable = f.vtable(table);
        // The default is not written, so the slot is made to point at another number: not zero.
        let fields = f.word(vtable + ipc::Schema::VT_FIELDS as usize);
        f.put(vtable + ipc::Schema::VT_ENDIANNESS as usize, &fields[..2]);
    });
}

#[test]
fn the_place_of_a_batch() {
    let outside = "lies outside the file or over another one";
    refused(outside, |f| {
        let (block, _, _) = f.block(1);
        let length = block.bodyLength() + 64;
        f.put_body_length(1, length);
        f.put_block(1, |b| ipc::Block::new(b.offset(), b.metaDataLength(), length));
    });
    refused(outside, |f| {
        f.put_block(0, |b| ipc::Block::new(-8, b.metaDataLength(), b.bodyLength()));
    });
    refused(outside, |f| f.put_block(0, |b| ipc::Block::new(b.offset(), 7, b.bodyLength())));
    refused(outside, |f| f.put_block(0, |_| ipc::Block::new(i64::MAX, i32::MAX, i64::MAX)));
    refused(outside, |f| {
        // Everything agrees, but the values would lie at odd addresses.
        let (block, _, message) = f.block(0);
        let (metadata, body) = (block.metaDataLength() + 4, block.bodyLength() - 4);
        f.put_body_length(0, body);
        f.put(message.start - 4, &(metadata - 8).to_le_bytes());
        f.put_block(0, |b| ipc::Block::new(b.offset(), metadata, body));
    });
    refused("does not start where the footer says", |f| {
        f.put(f.block(0).2.start - 8, &[0; 4]);
    });
    refused("does not start where the footer says", |f| {
        f.put(f.block(0).2.start - 4, &8_i32.to_le_bytes());
    });
    refused("disagree about its length", |f| {
        let length = f.block(0).0.bodyLength();
        f.put_body_length(0, length + 64);
    });
}

/// A forged description of the first column.
fn node(rows: i64, nulls: i64) -> impl Fn(&mut Forge) {
    move |f| {
        f.put_in_batch(|batch, bytes| {
            let at = place(bytes, batch.nodes().unwrap().get(0));
            (at, ipc::FieldNode::new(rows, nulls).0.to_vec())
        });
    }
}

/// A forged buffer: 0 validity and 1 values of the numbers, 2 validity, 3 offsets and 4 values
/// of the text.
fn buffer(number: usize, change: impl Fn(&ipc::Buffer) -> ipc::Buffer) -> impl Fn(&mut Forge) {
    move |f| {
        f.put_in_batch(|batch, bytes| {
            let buffer = batch.buffers().unwrap().get(number);
            (place(bytes, buffer), change(buffer).0.to_vec())
        });
    }
}

#[test]
fn the_numbers_of_a_batch() {
    refused("'i': 5 rows with 99 nulls in a batch of 5", node(5, 99));
    refused("'i': a negative null count", node(5, -1));
    refused("'i': 1 nulls, 2 expected", node(5, 2));
    refused("'i': 6 rows with 1 nulls in a batch of 5", node(6, 1));
    refused("a batch of 65537 rows", |f| {
        let message = f.block(0).2;
        let root = ipc::root_as_message(&f.bytes[message.clone()]).unwrap();
        let table = root.header_as_record_batch().unwrap()._tab.loc();
        let rows = 65_537_i64.to_le_bytes();
        f.put_scalar(message.start, table, ipc::RecordBatch::VT_LENGTH, &rows);
    });
}

#[test]
fn the_buffers_of_a_batch() {
    let shorter = |b: &ipc::Buffer| ipc::Buffer::new(b.offset(), b.length() - 1);
    refused("'i': 0 bytes for 5 bits", buffer(0, shorter));
    refused("'i': 39 bytes for 5 values", buffer(1, shorter));
    refused("'t': 47 bytes for 6 values", buffer(3, shorter));
    refused("'t': text offsets do not fit 24 bytes", buffer(4, shorter));
    let longer = |b: &ipc::Buffer| ipc::Buffer::new(b.offset(), b.length() + 1);
    refused("'t': text offsets do not fit 26 bytes", buffer(4, longer));
    refused("'i': a buffer of 40 bytes at", buffer(1, |b| ipc::Buffer::new(b.offset() + 4, 40)));
    refused("'i': a buffer of 40 bytes at 4", buffer(1, |_| ipc::Buffer::new(4096, 40)));
    refused("'i': a buffer of -1 bytes at 0", buffer(1, |_| ipc::Buffer::new(0, -1)));
    refused("'i': a buffer of 40 bytes at 92", buffer(1, |_| ipc::Buffer::new(i64::MAX, 40)));
}

/// Text offsets that are sorted but start late, or end right but fall in between.
#[test]
fn the_offsets_of_text() {
    for offsets in [[1_i64, 5, 10, 15, 20, 25], [0, 10, 5, 15, 20, 25], [0, 5, 10, 15, 20, -25]] {
        refused("'t': text offsets do not fit 25 bytes", |f| {
            let (block, _, message) = f.block(0);
            let root = ipc::root_as_message(&f.bytes[message]).unwrap();
            let buffer = root.header_as_record_batch().unwrap().buffers().unwrap().get(3);
            let body = (block.offset() + i64::from(block.metaDataLength())) as usize;
            let at = body + buffer.offset() as usize;
            f.put(at, &offsets.map(i64::to_le_bytes).concat());
        });
    }
}

#[test]
fn text_that_is_no_unicode() {
    refused("'t': ", |f| {
        let at = f.bytes.windows(5).position(|w| w == b"row 0").unwrap();
        f.bytes[at] = 0xff;
    });
}

#[test]
fn a_column_fewer_than_the_buffers() {
    refused("more buffers than columns", |f| {
        let footer = ipc::root_as_footer(&f.bytes[f.footer.clone()]).unwrap();
        let table = footer.schema().unwrap().fields().unwrap().get(1)._tab.loc();
        let null = [ipc::Type::Null.0];
        f.put_scalar(f.footer.start, table, ipc::Field::VT_TYPE_TYPE, &null);
    });
}

#[test]
fn compressed_values() {
    // Written by pyarrow: one int64 column of 200 rows, IpcWriteOptions(compression="lz4").
    let bytes = include_bytes!("compressed.arrow").as_slice();
    let error = decode_file(&Buffer::from(bytes)).err().unwrap();
    assert!(error.message().contains("compressed record batches"), "{error}");
}
