//! What a user reads when a sample's metadata is refused: one line with the sample, the field,
//! the value and the cure.

use super::types::{ColumnType, RESERVED, Value};
use crate::error::{Error, ErrorKind};
use crate::format::names::MAX_LABEL_BYTES;

/// Longest text of a value in a message, in characters.
const SHOWN_CHARS: usize = 80;

/// The text, cut so that a message stays readable.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// Text in quotes, cut. Escapes what would break a line or hide in it, and leaves letters of all
/// scripts alone.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from("'");
    for c in shorten(text).chars() {
        match c {
            '\'' => out.push_str("\\'"),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// A value as Python would print it.
pub(super) fn show(value: &Value<'_>) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(v) => v.to_string(),
        Value::Float(v) if v.is_nan() => "nan".to_owned(),
        Value::Float(v) => format!("{v:?}"),
        Value::Str(v) => quote(v),
    }
}

/// A value with the name of its type: `float 0.5`.
pub(super) fn describe(value: &Value<'_>) -> String {
    match value.column_type() {
        None => show(value),
        Some(ColumnType::String) => format!("string {}", show(value)),
        Some(ty) => format!("{} {}", ty.python(), show(value)),
    }
}

fn refuse(sample: u64, message: &str) -> Error {
    Error::new(ErrorKind::InvalidMetadata, format!("sample {sample}: {message}")).at_sample(sample)
}

/// A message that has no sample yet (a name that was declared, say), now with it.
pub(super) fn in_sample(sample: u64, error: &Error) -> Error {
    refuse(sample, error.message())
}

pub(super) fn bad_name(name: &str) -> Error {
    Error::new(
        ErrorKind::InvalidMetadata,
        format!("field {} cannot name a column; use text that is not empty and has no NUL", quote(name)),
    )
}

pub(super) fn long_name(name: &str) -> Error {
    Error::new(
        ErrorKind::InvalidMetadata,
        format!(
            "field {} has a name of {} bytes in UTF-8, and {MAX_LABEL_BYTES} are the most; give it a shorter one",
            quote(name),
            name.len()
        ),
    )
}

pub(super) fn reserved_name(name: &str) -> Error {
    let [a, b, c] = RESERVED;
    Error::new(
        ErrorKind::InvalidMetadata,
        format!("field '{name}' is reserved ({a}, {b} and {c} are columns of the dataset); rename it"),
    )
}

pub(super) fn repeated_name(name: &str) -> Error {
    let name = quote(name);
    Error::new(ErrorKind::InvalidMetadata, format!("field {name} is given twice; give it once"))
}

pub(super) fn missing_field(sample: u64, field: &str) -> Error {
    let field = quote(field);
    refuse(sample, &format!("field {field} is missing; give None where there is no value"))
}

pub(super) fn unknown_field(sample: u64, field: &str, value: &Value<'_>, columns: &str) -> Error {
    refuse(
        sample,
        &format!(
            "field {} ({}) is not among the columns ({columns}); give every sample the same \
             fields, None where there is no value",
            quote(field),
            show(value),
        ),
    )
}

pub(super) fn wrong_type(sample: u64, field: &str, ty: ColumnType, value: &Value<'_>) -> Error {
    let wanted = value.column_type().map_or("str", ColumnType::python);
    let field = quote(field);
    // Ints become floats; no other values of a column become those of another one.
    let cure = match (ty, value) {
        (ColumnType::Int64, Value::Float(_)) => {
            format!("declare schema={{{field}: float}} or convert the value")
        }
        _ => format!(
            "convert the value, or declare schema={{{field}: {wanted}}} if all samples have such values"
        ),
    };
    refuse(sample, &format!("field {field} is {} but got {}; {cure}", ty.name(), describe(value)))
}

pub(super) fn inexact_float(sample: u64, field: &str, value: i64) -> Error {
    let field = quote(field);
    refuse(
        sample,
        &format!(
            "field {field} is float64, which cannot hold int {value} exactly; \
             declare schema={{{field}: int}} or round the value"
        ),
    )
}

/// An integer that does not fit in 64 bits. `value_text` is its decimal text.
pub fn int_overflow(sample: u64, field: &str, value_text: &str) -> Error {
    refuse(
        sample,
        &format!(
            "field {} got int {}, which does not fit in int64; store it as a string",
            quote(field),
            shorten(value_text),
        ),
    )
}

/// A value that is no bool, int, float, string or None. `value_repr` is its `repr()`.
pub fn unsupported_value(sample: u64, field: &str, type_name: &str, value_repr: &str) -> Error {
    refuse(
        sample,
        &format!(
            "field {} got {type_name} {}; metadata holds bool, int, float, str and None: \
             put it into the payload or split it into several fields",
            quote(field),
            shorten(value_repr),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_lines_stay_whole() {
        let long = "é".repeat(500);
        assert_eq!(shorten(&long).chars().count(), SHOWN_CHARS + 1);
        assert_eq!(quote("a'b\n\0"), "'a\\'b\\n\\u{0}'");
        assert_eq!(quote("日本"), "'日本'");
    }

    #[test]
    fn a_wrong_type_names_sample_field_value_and_cure() {
        let e = wrong_type(2, "label", ColumnType::Int64, &Value::Float(0.5));
        assert_eq!(
            e.message(),
            "sample 2: field 'label' is int64 but got float 0.5; \
             declare schema={'label': float} or convert the value"
        );
        assert_eq!(e.sample_id(), Some(2));
    }

    #[test]
    fn python_only_values() {
        let e = unsupported_value(7, "label", "list", "[1, 2]");
        assert!(e.message().starts_with("sample 7: field 'label' got list [1, 2]; "), "{e}");
        let e = int_overflow(7, "label", "9223372036854775808");
        assert!(e.message().contains("int 9223372036854775808, which"), "{e}");
        assert_eq!(e.kind(), ErrorKind::InvalidMetadata);
    }
}
