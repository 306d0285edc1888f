//! Arrow IPC files as we write them: bytes to record batches, and nothing believed.
//!
//! The general reader of the Arrow crate handles every type and asserts some of its assumptions.
//! Ours handles the few that metadata has, so each length, offset and count can be checked before
//! it is used, and arrays are windows into the bytes that were passed in: nothing is copied, and
//! nothing is allocated that does not grow with the bytes that are really there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray, NullArray, RecordBatch,
    RecordBatchOptions,
};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc as ipc;

use super::types::{ColumnType, MAX_BATCH_ROWS, arrow_schema};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

pub(super) const MAGIC: &[u8] = b"ARROW1";
/// After the footer: its length (i32) and the magic again.
pub(super) const TRAILER_BYTES: usize = 4 + MAGIC.len();
/// Before each message: a marker and the length of the message (i32).
const PREFIX_BYTES: usize = 8;
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Every buffer starts at a multiple of this, in the file and in memory.
const VALUE_ALIGNMENT: usize = 8;

/// What a file holds. A column without a type is all null.
pub(super) struct Decoded {
    pub(super) columns: Vec<(String, Option<ColumnType>)>,
    pub(super) batches: Vec<RecordBatch>,
}

/// Any breach of the rules of the file.
pub(super) fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::BadMetadata,
        format!(
            "metadata is damaged: {what}; restore the file, or rebuild the cache with on_stale='rebuild'"
        ),
    )
}

/// Decodes a whole file. The arrays share `bytes`.
pub(super) fn decode(bytes: Buffer) -> Result<Decoded> {
    let bytes = aligned(bytes)?;
    guarded(|| decode_file(&bytes))
}

/// The second line of defence. Whoever forges a file recomputes its checksum as well, so these
/// bytes can be anything. Every check we know of is below; should a panic of a dependency slip
/// through, it must not take the user's process with it.
pub(super) fn guarded<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    // Nothing outlives a panic that it could have left half done: decoding only makes new values.
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(damaged("decoding it failed unexpectedly")))
}

/// The same bytes at an aligned address; a copy only where they lie at an odd one.
pub(super) fn aligned(bytes: Buffer) -> Result<Buffer> {
    if bytes.as_ptr().align_offset(VALUE_ALIGNMENT) == 0 {
        return Ok(bytes);
    }
    memory::ask("metadata", bytes.len())?;
    let mut copy = MutableBuffer::new(bytes.len());
    copy.extend_from_slice(bytes.as_slice());
    Ok(copy.into())
}

pub(super) fn decode_file(bytes: &Buffer) -> Result<Decoded> {
    let footer_range = footer_range(bytes)?;
    let body_end = footer_range.start;
    let footer = bytes.get(footer_range).ok_or_else(|| damaged("the footer is cut off"))?;
    let Layout { columns, frames } = layout(footer, body_end)?;
    let batches = frames.iter().map(|frame| record_batch(bytes, frame, &columns)).collect::<Result<_>>()?;
    Ok(Decoded { columns, batches })
}

/// What the footer says: the columns, and where the record batches lie.
pub(super) struct Layout {
    pub(super) columns: Vec<(String, Option<ColumnType>)>,
    pub(super) frames: Vec<Frame>,
}

/// Decodes a footer that begins at byte `body_end`.
pub(super) fn layout(footer: &[u8], body_end: usize) -> Result<Layout> {
    let footer = ipc::root_as_footer(footer).map_err(|e| damaged(format!("footer: {e}")))?;
    if footer.version() != ipc::MetadataVersion::V5 {
        return Err(damaged(format!("version {:?} of the Arrow format", footer.version())));
    }
    if footer.dictionaries().is_some_and(|d| !d.is_empty()) {
        return Err(damaged("dictionaries, which metadata never has"));
    }
    let columns = columns(footer.schema().ok_or_else(|| damaged("no schema"))?)?;
    let mut frames: Vec<Frame> = Vec::new();
    for block in footer.recordBatches().into_iter().flatten() {
        // In order and apart: one stretch of bytes named a million times must not become a
        // million batches.
        let end = frames.last().map_or(MAGIC.len(), |frame| frame.body_end);
        frames.push(Frame::locate(block, end, body_end)?);
    }
    Ok(Layout { columns, frames })
}

/// The record batch of a frame. The arrays share `bytes`.
pub(super) fn record_batch(
    bytes: &Buffer,
    frame: &Frame,
    columns: &[(String, Option<ColumnType>)],
) -> Result<RecordBatch> {
    let schema = arrow_schema(columns.iter().map(|(name, ty)| (name.as_str(), *ty)));
    let arrays = read_batch(bytes, frame, columns)?;
    let options = RecordBatchOptions::new().with_row_count(Some(arrays.rows));
    RecordBatch::try_new_with_options(schema, arrays.columns, &options).map_err(damaged)
}

/// Where the footer lies.
fn footer_range(bytes: &[u8]) -> Result<std::ops::Range<usize>> {
    let cut = || damaged(format!("{} bytes are no Arrow file", bytes.len()));
    let trailer = bytes.last_chunk::<TRAILER_BYTES>().ok_or_else(cut)?;
    footer_place(bytes.get(..MAGIC.len()).unwrap_or_default(), trailer, bytes.len())
}

/// The same from a file's first bytes, its last ones and its length.
pub(super) fn footer_place(
    head: &[u8],
    trailer: &[u8; TRAILER_BYTES],
    length: usize,
) -> Result<std::ops::Range<usize>> {
    let cut = || damaged(format!("{length} bytes are no Arrow file"));
    let (footer_bytes, magic) = trailer.split_first_chunk::<4>().ok_or_else(cut)?;
    if head != MAGIC || magic != MAGIC {
        return Err(cut());
    }
    let end = length.checked_sub(TRAILER_BYTES).ok_or_else(cut)?;
    let footer_bytes = usize::try_from(i32::from_le_bytes(*footer_bytes)).map_err(|_| cut())?;
    let start = end.checked_sub(footer_bytes).filter(|start| *start >= MAGIC.len());
    Ok(start.ok_or_else(cut)?..end)
}

/// The columns of a schema, which must be of the types that metadata has.
fn columns(schema: ipc::Schema<'_>) -> Result<Vec<(String, Option<ColumnType>)>> {
    if schema.endianness() != ipc::Endianness::Little {
        return Err(damaged("big-endian values"));
    }
    schema.fields().into_iter().flatten().map(column).collect()
}

fn column(field: ipc::Field<'_>) -> Result<(String, Option<ColumnType>)> {
    let name = field.name().unwrap_or_default().to_owned();
    let ty = match field.type_type() {
        ipc::Type::Null => Some(None),
        ipc::Type::Bool => Some(Some(ColumnType::Bool)),
        ipc::Type::LargeUtf8 => Some(Some(ColumnType::String)),
        ipc::Type::Int => field
            .type_as_int()
            .filter(|int| int.is_signed() && int.bitWidth() == 64)
            .map(|_| Some(ColumnType::Int64)),
        ipc::Type::FloatingPoint => field
            .type_as_floating_point()
            .filter(|float| float.precision() == ipc::Precision::DOUBLE)
            .map(|_| Some(ColumnType::Float64)),
        _ => None,
    };
    let nested = field.children().is_some_and(|c| !c.is_empty()) || field.dictionary().is_some();
    match ty {
        Some(ty) if !nested => Ok((name, ty)),
        _ => Err(damaged(format!("column '{name}' has a type that metadata never has"))),
    }
}

/// Where one record batch lies: a message, then the body with its buffers.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    message: std::ops::Range<usize>,
    body_start: usize,
    body_end: usize,
}

impl Frame {
    fn locate(block: &ipc::Block, earliest: usize, latest: usize) -> Result<Self> {
        let outside = || damaged("a record batch lies outside the file or over another one");
        let start = usize::try_from(block.offset()).map_err(|_| outside())?;
        let metadata = usize::try_from(block.metaDataLength()).map_err(|_| outside())?;
        let body = usize::try_from(block.bodyLength()).map_err(|_| outside())?;
        let message_start = start.checked_add(PREFIX_BYTES).ok_or_else(outside)?;
        let body_start = start.checked_add(metadata).ok_or_else(outside)?;
        let body_end = body_start.checked_add(body).ok_or_else(outside)?;
        let in_order = earliest <= start && message_start <= body_start && body_end <= latest;
        if !in_order || body_start % VALUE_ALIGNMENT != 0 {
            return Err(outside());
        }
        Ok(Frame { message: message_start..body_start, body_start, body_end })
    }

    /// The bytes of the file that the frame takes, the prefix included.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.message.start.saturating_sub(PREFIX_BYTES)..self.body_end
    }

    /// The bytes before the body.
    pub(super) fn head(&self) -> std::ops::Range<usize> {
        self.message.start.saturating_sub(PREFIX_BYTES)..self.body_start
    }

    /// The same frame in a copy of its own bytes, or of those before its body.
    pub(super) fn alone(&self) -> Frame {
        let start = self.range().start;
        Frame {
            message: self.message.start - start..self.message.end - start,
            body_start: self.body_start - start,
            body_end: self.body_end - start,
        }
    }

    /// Rows of the batch, and nulls of each column, as the message has them.
    pub(super) fn counts(&self, bytes: &[u8]) -> Result<(usize, Vec<u64>)> {
        let message =
            ipc::root_as_message(self.message(bytes)?).map_err(|e| damaged(format!("record batch: {e}")))?;
        let batch =
            message.header_as_record_batch().ok_or_else(|| damaged("a message is no record batch"))?;
        let rows = rows_of(&batch)?;
        let nulls = batch.nodes().into_iter().flatten().map(|node| u64::try_from(node.null_count()));
        let nulls = nulls.collect::<std::result::Result<_, _>>();
        Ok((rows, nulls.map_err(|_| damaged("a negative null count"))?))
    }

    /// The message, whose prefix must agree with the footer.
    fn message<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let wrong = || damaged("a record batch does not start where the footer says");
        let prefix = bytes.get(..self.message.start).and_then(<[u8]>::last_chunk::<PREFIX_BYTES>);
        let (marker, length) = prefix.and_then(|p| p.split_first_chunk::<4>()).ok_or_else(wrong)?;
        let length = length.first_chunk::<4>().copied().map(i32::from_le_bytes);
        let length = length.and_then(|l| usize::try_from(l).ok()).ok_or_else(wrong)?;
        if marker != &CONTINUATION || length != self.message.len() {
            return Err(wrong());
        }
        bytes.get(self.message.clone()).ok_or_else(wrong)
    }
}

struct Arrays {
    columns: Vec<ArrayRef>,
    rows: usize,
}

fn read_batch(bytes: &Buffer, frame: &Frame, columns: &[(String, Option<ColumnType>)]) -> Result<Arrays> {
    let message =
        ipc::root_as_message(frame.message(bytes)?).map_err(|e| damaged(format!("record batch: {e}")))?;
    let body_length = frame.body_end.saturating_sub(frame.body_start);
    if usize::try_from(message.bodyLength()) != Ok(body_length) {
        return Err(damaged("a record batch and the footer disagree about its length"));
    }
    let batch = message.header_as_record_batch().ok_or_else(|| damaged("a message is no record batch"))?;
    if batch.compression().is_some() {
        return Err(damaged("compressed record batches"));
    }
    let rows = rows_of(&batch)?;
    let mut cursor = Cursor {
        body: bytes.slice_with_length(frame.body_start, body_length),
        nodes: batch.nodes().into_iter().flatten().collect::<Vec<_>>().into_iter(),
        buffers: batch.buffers().into_iter().flatten().collect::<Vec<_>>().into_iter(),
        rows,
    };
    let columns = columns
        .iter()
        .map(|(name, ty)| cursor.array(*ty).map_err(|what| damaged(format!("column '{name}': {what}"))))
        .collect::<Result<_>>()?;
    if cursor.nodes.next().is_some() || cursor.buffers.next().is_some() {
        return Err(damaged("a record batch has more buffers than columns"));
    }
    Ok(Arrays { columns, rows })
}

fn rows_of(batch: &ipc::RecordBatch<'_>) -> Result<usize> {
    let rows = usize::try_from(batch.length()).ok().filter(|rows| *rows <= MAX_BATCH_ROWS);
    rows.ok_or_else(|| damaged(format!("a batch of {} rows", batch.length())))
}

/// Takes the buffers of a batch one after the other.
struct Cursor<'a> {
    body: Buffer,
    nodes: std::vec::IntoIter<&'a ipc::FieldNode>,
    buffers: std::vec::IntoIter<&'a ipc::Buffer>,
    rows: usize,
}

/// What is wrong with a column; its name is added by the caller.
type Columnar<T> = std::result::Result<T, String>;

impl Cursor<'_> {
    fn array(&mut self, ty: Option<ColumnType>) -> Columnar<ArrayRef> {
        let node = self.nodes.next().ok_or("no description")?;
        let nulls = usize::try_from(node.null_count()).map_err(|_| "a negative null count")?;
        if usize::try_from(node.length()) != Ok(self.rows) || nulls > self.rows {
            return Err(format!("{} rows with {nulls} nulls in a batch of {}", node.length(), self.rows));
        }
        let Some(ty) = ty else {
            return Ok(Arc::new(NullArray::new(self.rows)));
        };
        let nulls = self.validity(nulls)?;
        Ok(match ty {
            ColumnType::Bool => Arc::new(BooleanArray::new(self.bits()?, nulls)),
            ColumnType::Int64 => Arc::new(Int64Array::new(self.words(self.rows)?, nulls)),
            ColumnType::Float64 => Arc::new(Float64Array::new(self.words(self.rows)?, nulls)),
            ColumnType::String => Arc::new(self.strings(nulls)?),
        })
    }

    /// The next buffer, inside the body and aligned.
    fn buffer(&mut self) -> Columnar<Buffer> {
        let place = self.buffers.next().ok_or("a missing buffer")?;
        let outside = || format!("a buffer of {} bytes at {}", place.length(), place.offset());
        let start = usize::try_from(place.offset()).map_err(|_| outside())?;
        let length = usize::try_from(place.length()).map_err(|_| outside())?;
        let end = start.checked_add(length).ok_or_else(outside)?;
        if end > self.body.len() || start % VALUE_ALIGNMENT != 0 {
            return Err(outside());
        }
        Ok(self.body.slice_with_length(start, length))
    }

    /// One bit a row.
    fn bits(&mut self) -> Columnar<BooleanBuffer> {
        let buffer = self.buffer()?;
        if buffer.len() < self.rows.div_ceil(8) {
            return Err(format!("{} bytes for {} bits", buffer.len(), self.rows));
        }
        Ok(BooleanBuffer::new(buffer, 0, self.rows))
    }

    fn validity(&mut self, nulls: usize) -> Columnar<Option<NullBuffer>> {
        if nulls == 0 {
            // The format leaves the content open when nothing is null.
            return self.buffer().map(|_| None);
        }
        let validity = NullBuffer::new(self.bits()?);
        if validity.null_count() != nulls {
            return Err(format!("{} nulls, {nulls} expected", validity.null_count()));
        }
        Ok(Some(validity))
    }

    /// `count` values of 64 bits.
    fn words<T: arrow_buffer::ArrowNativeType>(&mut self, count: usize) -> Columnar<ScalarBuffer<T>> {
        let buffer = self.buffer()?;
        // No overflow: a batch has at most 65,536 rows.
        if buffer.len() < count * size_of::<T>() {
            return Err(format!("{} bytes for {count} values", buffer.len()));
        }
        Ok(ScalarBuffer::new(buffer, 0, count))
    }

    fn strings(&mut self, nulls: Option<NullBuffer>) -> Columnar<LargeStringArray> {
        let offsets: ScalarBuffer<i64> = self.words(self.rows + 1)?;
        let values = self.buffer()?;
        // Checked here because `OffsetBuffer` panics on what breaks its rules.
        let rises = offsets.is_sorted() && offsets.first() == Some(&0);
        let last = offsets.last().and_then(|last| usize::try_from(*last).ok());
        if !rises || last != Some(values.len()) {
            return Err(format!("text offsets do not fit {} bytes", values.len()));
        }
        let strings = LargeStringArray::try_new(OffsetBuffer::new(offsets), values, nulls);
        strings.map_err(|e| e.to_string())
    }
}
