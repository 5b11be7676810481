//! Texts between Rust, where they are UTF-8, and the database, whose encoding may be another one.
//!
//! In a UTF8 database nothing is converted, and in any other no text that is ASCII: every encoding that a database can
//! have writes ASCII alike. A letter that the database's encoding lacks is an error where a user's value is about to be
//! stored (`exact`), and written as `<U+20AC>` where an engine's own record must not fail because of it (`write`).
//! Bytes of the database that are no letter in UTF-8 become letters of a private range, and the same bytes again on the
//! way back.
use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, CString};

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::catch::PgError;
use super::raw::unguarded;

/// Bytes handed to a conversion at once.
const PIECE: usize = 64 * 1024;
/// How many bytes a conversion may make of one: MAX_CONVERSION_GROWTH of Postgres.
const GROWTH: usize = 4;
/// The letter for a byte of the database that has no equivalent in Unicode is this one plus the byte, in a range that
/// Unicode leaves to private use.
const BYTES: u32 = 0x10_FE00;

/// The conversions between UTF-8 and the encoding of the database that this process is connected to.
struct Conversions {
    encoding: i32,
    to_utf8: pg_sys::FmgrInfo,
    from_utf8: pg_sys::FmgrInfo,
}

thread_local!(static CONVERSIONS: Cell<Option<&'static Conversions>> = const { Cell::new(None) });

/// Are the texts of the database UTF-8, so that none needs a conversion? So it is in a process without a database.
pub fn is_utf8() -> bool {
    let encoding = encoding() as u32;
    encoding == pg_sys::pg_enc::PG_UTF8 || encoding == pg_sys::pg_enc::PG_SQL_ASCII
}

fn encoding() -> i32 {
    // SAFETY: reads a process global; raises nothing.
    unsafe { unguarded::GetDatabaseEncoding() }
}

/// Can Postgres convert between the encoding of this database and UTF-8?
pub fn is_convertible() -> bool {
    encoding() as u32 != pg_sys::pg_enc::PG_SQL_ASCII && (is_utf8() || procedures().is_some())
}

/// The functions that convert the database's encoding to UTF-8, and back.
fn procedures() -> Option<(pg_sys::Oid, pg_sys::Oid)> {
    let (encoding, utf8) = (encoding(), pg_sys::pg_enc::PG_UTF8 as i32);
    let catalog = pg_sys::Oid::from(pg_sys::PG_CATALOG_NAMESPACE);
    // SAFETY: catalog look-ups inside a transaction. Those of pg_catalog: a conversion in another schema may be a
    // user's. With pgrx's own guard, since that of the engine asks for the conversions itself.
    let found = unsafe {
        pg_guard_ffi_boundary(|| {
            let find = |from, to| unguarded::FindDefaultConversion(catalog, from, to);
            (find(encoding, utf8), find(utf8, encoding))
        })
    };
    (found.0 != pg_sys::InvalidOid && found.1 != pg_sys::InvalidOid).then_some(found)
}

/// Looks up the functions that a conversion needs, for a moment at which nothing can be looked up: between an error and
/// its rollback.
pub fn prepare() {
    if !is_utf8() && CONVERSIONS.get().is_none() {
        let _ = conversions();
    }
}

/// Looked up at the first use in a transaction, and kept for the life of the process: its database does not change.
fn conversions() -> Option<&'static Conversions> {
    if let Some(known) = CONVERSIONS.get() {
        return Some(known);
    }
    // SAFETY: reads the state of the transaction.
    if !unsafe { pg_sys::IsTransactionState() } {
        return None;
    }
    let (to_utf8, from_utf8) = procedures()?;
    let function = |oid| {
        let mut function = pg_sys::FmgrInfo::default();
        // SAFETY: the oid of an existing function; the memory that the entry points to lives as long as the process.
        unsafe { pg_sys::fmgr_info_cxt(oid, &mut function, pg_sys::TopMemoryContext) };
        function
    };
    let found: &'static Conversions = Box::leak(Box::new(Conversions {
        encoding: encoding(),
        to_utf8: function(to_utf8),
        from_utf8: function(from_utf8),
    }));
    CONVERSIONS.set(Some(found));
    Some(found)
}

/// Converts as much of `source` as can be, appends it to `out`, and says how many bytes of `source` that was.
fn convert(function: &pg_sys::FmgrInfo, from: i32, to: i32, source: &[u8], out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + source.len() * GROWTH + 1, 0);
    // SAFETY: the arguments that a conversion function takes, with as much room as Postgres itself gives it. It raises
    // nothing, as its last argument asks; it ends its output with a zero byte.
    unsafe {
        let function = (&raw const *function).cast_mut();
        let target = out.as_mut_ptr().add(start);
        let converted = pg_sys::FunctionCall6Coll(
            function,
            pg_sys::InvalidOid,
            pg_sys::Datum::from(from),
            pg_sys::Datum::from(to),
            pg_sys::Datum::from(source.as_ptr()),
            pg_sys::Datum::from(target),
            pg_sys::Datum::from(source.len() as i32),
            pg_sys::Datum::from(true),
        );
        let length = CStr::from_ptr(target.cast()).to_bytes().len();
        out.truncate(start + length);
        (converted.value() as i32).max(0) as usize
    }
}

/// A text of the database, as Rust has it.
pub fn read(bytes: &[u8]) -> Cow<'_, str> {
    if is_utf8() || bytes.is_ascii() {
        return String::from_utf8_lossy(bytes);
    }
    let (mut out, mut at) = (Vec::with_capacity(bytes.len() * 2), 0);
    let conversions = conversions();
    while at < bytes.len() {
        let piece = &bytes[at..bytes.len().min(at + PIECE)];
        let done = match conversions {
            Some(found) => convert(&found.to_utf8, found.encoding, pg_sys::pg_enc::PG_UTF8 as i32, piece, &mut out),
            None => 0,
        };
        at += done;
        if done == 0 {
            let length = letter_length(&bytes[at..]);
            for byte in &bytes[at..at + length] {
                let letter = match byte.is_ascii() {
                    true => char::from(*byte),
                    false => char::from_u32(BYTES + u32::from(*byte)).unwrap_or(char::REPLACEMENT_CHARACTER),
                };
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            at += length;
        }
    }
    Cow::Owned(String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The same for a name or a text that ends with a zero byte.
pub fn read_c(text: &CStr) -> String {
    read(text.to_bytes()).into_owned()
}

/// The bytes that Rust has for a text of the database.
pub fn as_utf8(bytes: &[u8]) -> Cow<'_, [u8]> {
    if is_utf8() || bytes.is_ascii() {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(read(bytes).into_owned().into_bytes())
}

/// How many bytes the first letter has.
fn letter_length(bytes: &[u8]) -> usize {
    let mut begin = [0u8; 8];
    let shown = bytes.len().min(begin.len() - 1);
    begin[..shown].copy_from_slice(&bytes[..shown]);
    // SAFETY: a NUL-terminated text with at least one byte; the function reads as far as the longest letter.
    let length = unsafe { pg_sys::pg_encoding_mblen(encoding(), begin.as_ptr().cast()) };
    (length.max(1) as usize).min(bytes.len())
}

/// Writes a replacement for a letter that the database's encoding lacks; false if it writes none.
type Instead = fn(char, &mut Vec<u8>) -> bool;

/// Converts `text`; `instead` writes the replacement of a letter that cannot be converted. The first for which it
/// writes nothing is returned.
fn written(text: &str, instead: Instead) -> Result<Cow<'_, [u8]>, char> {
    if is_utf8() || text.is_ascii() {
        return Ok(Cow::Borrowed(text.as_bytes()));
    }
    let conversions = conversions();
    let (mut out, mut at, mut bare) = (Vec::with_capacity(text.len()), 0, None);
    while at < text.len() {
        let mut end = text.len().min(at + PIECE);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let done = match conversions {
            Some(found) => {
                let utf8 = pg_sys::pg_enc::PG_UTF8 as i32;
                convert(&found.from_utf8, utf8, found.encoding, &text.as_bytes()[at..end], &mut out)
            }
            None => 0,
        };
        at += done;
        let Some(letter) = text[at..].chars().next().filter(|_| done == 0) else { continue };
        at += letter.len_utf8();
        match bare_byte(letter) {
            Some(byte) => {
                bare.get_or_insert(letter);
                out.push(byte);
            }
            None if letter.is_ascii() => out.push(letter as u8),
            None if instead(letter, &mut out) => {}
            None => return Err(letter),
        }
    }
    // Bytes that were letters of a text can have been parted since.
    match bare {
        Some(letter) if !is_valid(&out) => Err(letter),
        _ => Ok(Cow::Owned(out)),
    }
}

/// The byte that a private letter stands for.
fn bare_byte(letter: char) -> Option<u8> {
    let byte = (letter as u32).checked_sub(BYTES)?;
    u8::try_from(byte).ok().filter(|byte| !byte.is_ascii())
}

/// Is this a text in the database's encoding?
fn is_valid(bytes: &[u8]) -> bool {
    // SAFETY: reads so many bytes; raises nothing, as its last argument asks.
    unsafe { pg_sys::pg_verify_mbstr(encoding(), bytes.as_ptr().cast(), bytes.len() as i32, true) }
}

/// A text for the database. A letter that its encoding lacks is an error that names it.
pub fn exact(text: &str) -> Result<Cow<'_, [u8]>, PgError> {
    written(text, |_, _| false).map_err(lacking)
}

/// Can the database hold every letter of the text?
pub fn check(text: &str) -> Result<(), PgError> {
    exact(text).map(|_| ())
}

fn lacking(letter: char) -> PgError {
    let mut buffer = [0; 4];
    let bytes: Vec<String> = letter.encode_utf8(&mut buffer).bytes().map(|byte| format!("0x{byte:02x}")).collect();
    PgError {
        detail: Some(format!("The letter is U+{:04X}.", letter as u32)),
        ..PgError::new(
            "22P05",
            format!(
                "character with byte sequence {} in encoding \"UTF8\" has no equivalent in encoding \"{}\"",
                bytes.join(" "),
                super::names::database_encoding()
            ),
        )
    }
}

/// Has the database's encoding no such letter?
pub fn lacks(letter: char) -> bool {
    exact(letter.encode_utf8(&mut [0; 4])).is_err()
}

/// The replacement of a letter that the database's encoding lacks.
pub fn number_of(letter: u32) -> String {
    format!("<U+{letter:04X}>")
}

/// A text for the database that must be kept with any letters in it: a letter that its encoding lacks becomes
/// `<U+20AC>`.
pub fn write(text: &str) -> Cow<'_, [u8]> {
    let as_number: Instead = |letter, out| {
        out.extend_from_slice(number_of(letter as u32).as_bytes());
        true
    };
    match written(text, as_number) {
        Ok(bytes) => bytes,
        // Bytes of letters that were parted.
        Err(_) => {
            let shown = |letter: char| match bare_byte(letter) {
                Some(byte) => format!("<0x{byte:02X}>"),
                None => letter.to_string(),
            };
            let text: String = text.chars().map(shown).collect();
            Cow::Owned(written(&text, as_number).map(Cow::into_owned).unwrap_or_default())
        }
    }
}

/// JSON for the engine's own reading: a letter that the encoding lacks becomes an escape of JSON, and so comes back
/// whole. Not for JSON that users see as jsonb, which refuses such an escape.
pub fn write_json(text: &str) -> Cow<'_, [u8]> {
    let escaped: Instead = |letter, out| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
        }
        true
    };
    written(text, escaped).unwrap_or_else(|_| write(text))
}

/// The text for a C function of the server. An error if the encoding lacks a letter, or if there is a zero byte in it.
pub fn c_string(text: &str) -> Result<CString, PgError> {
    CString::new(exact(text)?).map_err(|_| {
        PgError::new(
            "22021",
            format!("invalid byte sequence for encoding \"{}\": 0x00", super::names::database_encoding()),
        )
    })
}
