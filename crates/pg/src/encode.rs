//! Rows as JSON text, the way `to_jsonb` would show them, without looking anything up twice.
//!
//! Instants are written in UTC, so that an event does not depend on the writer's TimeZone; everything else as
//! `to_jsonb` has it. No cast, operator or function of a user is called, neither for a value nor for an element of an
//! array or a field of a row: a type that only a cast to json could show is written as its text. The one exception is
//! the output function of a base type, which only a superuser can create.
use std::ffi::CStr;
use std::io::Write;

use automation_core::value::{MAX_LEVELS, Number, levels};
use pgrx::pg_sys;

use super::raw::unguarded;
use super::{encode_nested, instant, numeric_text, server_text};

/// Most bytes of JSON that one row may become. Two images and the other columns of an event must fit into one
/// tuple, which Postgres limits to 1 GB.
pub const MAX_IMAGE_BYTES: usize = 128 << 20;

/// Why a value is not written. The part that was written until then is incomplete and must be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The value has more than `MAX_LEVELS` lists and objects inside each other.
    TooDeep,
    /// The value does not fit into `MAX_IMAGE_BYTES`.
    TooLarge,
}

/// How to write one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Json,
    Jsonb,
    Date,
    Timestamp,
    TimestampTz,
    Array,
    Row,
    /// Anything else through its output function.
    Output(pg_sys::Oid),
}

impl Encoding {
    pub fn of_type(type_oid: pg_sys::Oid) -> Self {
        // SAFETY: catalog look-ups by oid.
        unsafe {
            let base = pg_sys::getBaseType(type_oid);
            match base {
                pg_sys::BOOLOID => Self::Bool,
                pg_sys::INT2OID => Self::Int2,
                pg_sys::INT4OID => Self::Int4,
                pg_sys::INT8OID => Self::Int8,
                pg_sys::FLOAT4OID => Self::Float4,
                pg_sys::FLOAT8OID => Self::Float8,
                pg_sys::NUMERICOID => Self::Numeric,
                pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => Self::Text,
                pg_sys::JSONOID => Self::Json,
                pg_sys::JSONBOID => Self::Jsonb,
                pg_sys::DATEOID => Self::Date,
                pg_sys::TIMESTAMPOID => Self::Timestamp,
                pg_sys::TIMESTAMPTZOID => Self::TimestampTz,
                _ if pg_sys::get_element_type(base) != pg_sys::InvalidOid => Self::Array,
                _ if pg_sys::type_is_rowtype(base) => Self::Row,
                _ => {
                    let (mut function, mut varlena) = (pg_sys::InvalidOid, false);
                    pg_sys::getTypeOutputInfo(base, &mut function, &mut varlena);
                    Self::Output(function)
                }
            }
        }
    }

    /// Does the text depend on DateStyle, TimeZone and the like? Known not to for plain scalars.
    pub fn depends_on_settings(self) -> bool {
        matches!(self, Self::Array | Self::Row | Self::Output(_))
    }

    /// Can two values differ in their bytes and still be the same value?
    pub fn has_equal_spellings(self) -> bool {
        matches!(self, Self::Float4 | Self::Float8 | Self::Numeric | Self::Json | Self::Jsonb | Self::Array | Self::Row)
    }

    /// Writes `value` as JSON.
    pub fn write(self, value: pg_sys::Datum, out: &mut Vec<u8>) -> Result<(), LeftOut> {
        self.write_inside(0, value, out)
    }

    /// Writes `value` as JSON that stands inside so many lists and objects.
    pub(super) fn write_inside(self, around: usize, value: pg_sys::Datum, out: &mut Vec<u8>) -> Result<(), LeftOut> {
        let start = out.len();
        // SAFETY: `value` is a datum of the type this encoding was made for, not null.
        unsafe {
            match self {
                Self::Bool => out.extend_from_slice(if value.value() & 1 == 1 { b"true" } else { b"false" }),
                Self::Int2 => write_integer(out, value.value() as i16),
                Self::Int4 => write_integer(out, value.value() as i32),
                Self::Int8 => write_integer(out, value.value() as i64),
                Self::Float4 => write_float(out, f64::from(f32::from_bits(value.value() as u32)), true),
                Self::Float8 => write_float(out, f64::from_bits(value.value() as u64), false),
                Self::Numeric => {
                    let mut written = false;
                    with_varlena(value, |stored| written = numeric_text::write(out, stored));
                    if !written {
                        write_rare_numeric(out, value);
                    }
                }
                Self::Text => with_varlena(value, |text| write_string(out, text)),
                Self::Json => with_varlena(value, |text| write_json(out, text)),
                Self::Jsonb => {
                    let detoasted = pg_sys::pg_detoast_datum(value.cast_mut_ptr());
                    let root = (&raw mut (*detoasted.cast::<pg_sys::Jsonb>()).root).cast();
                    let text = pg_sys::JsonbToCString(std::ptr::null_mut(), root, 0);
                    out.extend_from_slice(CStr::from_ptr(text).to_bytes());
                    pg_sys::pfree(text.cast());
                    free_copy(value, detoasted.cast());
                }
                Self::Date => write_instant(out, value, pg_sys::DATEOID),
                Self::Timestamp => {
                    if !instant::write(out, value.value() as i64, b"") {
                        write_instant(out, value, pg_sys::TIMESTAMPOID);
                    }
                }
                Self::TimestampTz => {
                    if !instant::write(out, value.value() as i64, b"+00:00") {
                        write_instant(out, value, pg_sys::TIMESTAMPTZOID);
                    }
                }
                Self::Array => encode_nested::write_array(around, value, out)?,
                Self::Row => encode_nested::write_row(around, value, out)?,
                Self::Output(function) => {
                    let text = pg_sys::OidOutputFunctionCall(function, value);
                    write_string(out, CStr::from_ptr(text).to_bytes());
                    pg_sys::pfree(text.cast());
                }
            }
        }
        if out.len() > MAX_IMAGE_BYTES {
            return Err(LeftOut::TooLarge);
        }
        // Each level takes two bytes at least, so that most documents need not be looked at.
        let may_be_deep = matches!(self, Self::Json | Self::Jsonb) && (out.len() - start) / 2 + around > MAX_LEVELS;
        if may_be_deep && levels(&out[start..]) + around > MAX_LEVELS {
            return Err(LeftOut::TooDeep);
        }
        Ok(())
    }

    /// The value as plain text: how a key is written into an entity's id. Empty, as for null, if it cannot be written.
    pub fn plain(self, value: pg_sys::Datum) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            // SAFETY: a text datum, not null.
            Self::Text => unsafe { with_varlena(value, |text| out.extend_from_slice(text)) },
            Self::Output(function) => unsafe {
                // SAFETY: the output function of the value's own type.
                let text = pg_sys::OidOutputFunctionCall(function, value);
                out.extend_from_slice(CStr::from_ptr(text).to_bytes());
                pg_sys::pfree(text.cast());
            },
            _ => {
                if self.write(value, &mut out).is_err() {
                    out.clear();
                }
                if out.len() >= 2 && out[0] == b'"' {
                    out.pop();
                    out.remove(0);
                }
            }
        }
        out
    }
}

/// A numeric that is large, not a number or infinite.
unsafe fn write_rare_numeric(out: &mut Vec<u8>, value: pg_sys::Datum) {
    // SAFETY: a numeric, not null.
    unsafe {
        with_cstring(numeric_out(value), |text| {
            if matches!(text, b"NaN" | b"Infinity" | b"-Infinity") {
                write_string(out, text);
            } else {
                out.extend_from_slice(text);
            }
        });
    }
}

unsafe fn numeric_out(value: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: the output function of numeric and a numeric, with Postgres' own way to call it.
    unsafe { pg_sys::DirectFunctionCall1Coll(Some(unguarded::numeric_out), pg_sys::InvalidOid, value) }
}

unsafe fn with_cstring(datum: pg_sys::Datum, work: impl FnOnce(&[u8])) {
    // SAFETY: the datum is a palloc'd C string.
    unsafe {
        let text: *mut std::ffi::c_char = datum.cast_mut_ptr();
        work(CStr::from_ptr(text).to_bytes());
        pg_sys::pfree(text.cast());
    }
}

/// Calls `work` with the bytes of a varlena behind its header.
///
/// # Safety
/// `value` must be a varlena datum, not null.
pub unsafe fn with_varlena(value: pg_sys::Datum, work: impl FnOnce(&[u8])) {
    // SAFETY: a varlena datum; a detoasted copy is freed again.
    unsafe {
        let unpacked = match value.cast_mut_ptr() {
            plain if is_plain(plain) => plain,
            toasted => pg_sys::pg_detoast_datum_packed(toasted),
        };
        let length = pgrx::varsize_any_exhdr(unpacked);
        work(std::slice::from_raw_parts(pgrx::vardata_any(unpacked).cast(), length));
        free_copy(value, unpacked.cast());
    }
}

/// Does the varlena hold its bytes as they are, neither compressed nor stored elsewhere?
///
/// # Safety
/// `value` must be a varlena.
pub unsafe fn is_plain(value: *const pg_sys::varlena) -> bool {
    // SAFETY: as demanded of the caller.
    unsafe { pgrx::varatt_is_4b_u(value) || (pgrx::varatt_is_1b(value) && !pgrx::varatt_is_1b_e(value)) }
}

pub(super) unsafe fn free_copy(original: pg_sys::Datum, copy: *mut std::ffi::c_void) {
    if original.cast_mut_ptr::<std::ffi::c_void>() != copy {
        // SAFETY: detoasting made a copy of its own.
        unsafe { pg_sys::pfree(copy) }
    }
}

fn write_integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn write_display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{value}");
}

fn write_float(out: &mut Vec<u8>, value: f64, single: bool) {
    if !value.is_finite() {
        let text: &[u8] = if value.is_nan() {
            b"NaN"
        } else if value > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        };
        return write_string(out, text);
    }
    let plain = (1e-5..1e15).contains(&value.abs()) || value == 0.0;
    // The shortest digits that read back as the same float, as Postgres writes them.
    match (single, plain) {
        (true, true) => write_display(out, value as f32),
        (true, false) => write_display(out, format_args!("{:e}", value as f32)),
        (false, true) => write_display(out, value),
        (false, false) => write_display(out, format_args!("{value:e}")),
    }
}

fn write_instant(out: &mut Vec<u8>, value: pg_sys::Datum, type_oid: pg_sys::Oid) {
    let mut buffer = [0 as std::ffi::c_char; pg_sys::MAXDATELEN as usize + 1];
    let utc: std::ffi::c_int = 0;
    let zone = if type_oid == pg_sys::TIMESTAMPTZOID { &raw const utc } else { std::ptr::null() };
    // SAFETY: the buffer has the size that the function asks for.
    unsafe {
        pg_sys::JsonEncodeDateTime(buffer.as_mut_ptr(), value, type_oid, zone);
        write_string(out, CStr::from_ptr(buffer.as_ptr()).to_bytes());
    }
}

/// Writes `text` as a JSON string.
pub fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut clean = 0;
    for (i, &byte) in text.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[clean..i]);
        clean = i + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.extend_from_slice(&text[clean..]);
    out.push(b'"');
}

/// Writes JSON text that a `json` column accepted. That type accepts texts that jsonb cannot hold (`\u0000`, half a
/// surrogate pair, letters that the database's encoding lacks, numbers beyond numeric); those are replaced, so that
/// every event can be read back, as jsonb and by expressions.
fn write_json(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    out.extend_from_slice(text);
    let suspicious = text.len() > LONG_NUMBER
        || text.windows(2).any(|pair| pair == b"\\u")
        || text.iter().any(|b| matches!(b, b'e' | b'E'));
    if !suspicious {
        return;
    }
    if let Some(repaired) = repair_json(&server_text::read(text), server_text::lacks) {
        out.truncate(start);
        out.extend_from_slice(&server_text::write(&repaired));
    }
}

/// Numbers of so many characters may be beyond numeric.
const LONG_NUMBER: usize = 10_000;

/// None if nothing had to be replaced. `lacks` says which letters the database's encoding lacks.
fn repair_json(source: &str, lacks: fn(char) -> bool) -> Option<String> {
    let bytes = source.as_bytes();
    let (mut out, mut i, mut in_string, mut changed) = (String::with_capacity(source.len()), 0, false, false);
    let unit = |at: usize| -> Option<u16> {
        (bytes.get(at) == Some(&b'\\') && bytes.get(at + 1) == Some(&b'u'))
            .then(|| u16::from_str_radix(source.get(at + 2..at + 6)?, 16).ok())
            .flatten()
    };
    while i < bytes.len() {
        let byte = bytes[i];
        if in_string && byte == b'\\' {
            match unit(i) {
                Some(high @ 0xd800..=0xdbff) if matches!(unit(i + 6), Some(0xdc00..=0xdfff)) => {
                    let low = unit(i + 6).unwrap_or_default();
                    let letter = 0x10000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
                    changed |= write_escape(&mut out, letter, &source[i..i + 12], lacks);
                    i += 12;
                }
                Some(0 | 0xd800..=0xdfff) => {
                    out.push_str("\\ufffd");
                    changed = true;
                    i += 6;
                }
                Some(letter) => {
                    changed |= write_escape(&mut out, u32::from(letter), &source[i..i + 6], lacks);
                    i += 6;
                }
                None => {
                    let end = (i + 2).min(bytes.len());
                    out.push_str(source.get(i..end).unwrap_or("\\"));
                    i = end;
                }
            }
            continue;
        }
        if byte == b'"' {
            in_string = !in_string;
        }
        if !in_string && (byte == b'-' || byte.is_ascii_digit()) {
            let end = i + bytes[i..]
                .iter()
                .position(|b| !matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                .unwrap_or(bytes.len() - i);
            let number = &source[i..end];
            let exponent = number.split(['e', 'E']).nth(1).map(|text| text.parse::<i64>().ok());
            let is_long = number.len() > LONG_NUMBER || exponent.is_some();
            let is_absurd = exponent.is_some_and(|exponent| exponent.is_none_or(|e| e.abs() > 10_000));
            if is_absurd || (is_long && Number::parse(number).is_none()) {
                out.push('"');
                out.push_str(number);
                out.push('"');
                changed = true;
            } else {
                out.push_str(number);
            }
            i = end;
            continue;
        }
        let end = (i + 1..=bytes.len()).find(|&end| source.is_char_boundary(end)).unwrap_or(bytes.len());
        out.push_str(&source[i..end]);
        i = end;
    }
    changed.then_some(out)
}

/// Writes an escape as it stands, or the number of its letter if the database's encoding lacks that: jsonb could not
/// hold it. True if it was replaced.
fn write_escape(out: &mut String, letter: u32, escape: &str, lacks: fn(char) -> bool) -> bool {
    let replaced = char::from_u32(letter).is_some_and(lacks);
    if replaced {
        out.push_str(&server_text::number_of(letter));
    } else {
        out.push_str(escape);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::{repair_json, write_string};

    fn none(_letter: char) -> bool {
        false
    }

    #[test]
    fn an_escape_of_a_letter_that_the_encoding_lacks_becomes_its_number() {
        let lacks: fn(char) -> bool = |letter| letter as u32 > 0xff;
        let repaired = repair_json(r#"["\u20ac \u00fc \ud83d\ude00 \\u20ac"]"#, lacks);
        assert_eq!(repaired.as_deref(), Some(r#"["<U+20AC> \u00fc <U+1F600> \\u20ac"]"#));
        assert_eq!(repair_json(r#"["\u00fc"]"#, lacks), None);
    }

    #[test]
    fn json_that_jsonb_cannot_hold_is_replaced() {
        assert_eq!(repair_json(r#"{"a":"x\u0000y"}"#, none).as_deref(), Some(r#"{"a":"x\ufffdy"}"#));
        assert_eq!(repair_json(r#"["\ud800 "]"#, none).as_deref(), Some(r#"["\ufffd "]"#));
        assert_eq!(repair_json(r#"[1e999999, 1e5]"#, none).as_deref(), Some(r#"["1e999999", 1e5]"#));
        assert_eq!(repair_json(r#"["\ud83d\ude00", "\\u0000", "ü"]"#, none), None);
        // more digits behind the point than numeric has
        let tiny = format!("0.{}1", "0".repeat(20_000));
        assert_eq!(repair_json(&format!("[{tiny}, 1]"), none), Some(format!("[\"{tiny}\", 1]")));
        assert_eq!(repair_json(&format!("[1{}]", "0".repeat(20_000)), none), None);
    }

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        write_string(&mut out, "a\"b\\c\n\u{1}ü".as_bytes());
        assert_eq!(String::from_utf8_lossy(&out), "\"a\\\"b\\\\c\\n\\u0001ü\"");
    }
}
