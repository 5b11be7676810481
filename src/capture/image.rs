//! Images of rows as JSON, and the differences between two of them.
#![allow(unsafe_code)]
use automation_core::value::Value;
use pgrx::pg_sys;

use super::plan::{Column, Plan};
use crate::pg::encode::{Encoding, LeftOut, MAX_IMAGE_BYTES, is_plain, with_varlena};
use crate::pg::raw;
use crate::pg::server_text;

/// A row taken apart.
pub struct Fields {
    few: ([pg_sys::Datum; FEW], [bool; FEW]),
    /// Instead, for wider tables.
    many: (Vec<pg_sys::Datum>, Vec<bool>),
}

/// Columns that fit without asking for memory.
const FEW: usize = 24;

impl Fields {
    /// Takes a tuple apart. The fields point into it.
    pub fn of(tuple: pg_sys::HeapTuple, descriptor: pg_sys::TupleDesc, width: usize) -> Self {
        let mut fields =
            Fields { few: ([pg_sys::Datum::from(0usize); FEW], [true; FEW]), many: (Vec::new(), Vec::new()) };
        let (values, nulls) = if width <= FEW {
            (fields.few.0.as_mut_ptr(), fields.few.1.as_mut_ptr())
        } else {
            fields.many = (vec![pg_sys::Datum::from(0usize); width], vec![true; width]);
            (fields.many.0.as_mut_ptr(), fields.many.1.as_mut_ptr())
        };
        // SAFETY: the tuple belongs to the descriptor, the arrays are as wide as it. Raises nothing.
        unsafe { raw::unguarded::heap_deform_tuple(tuple, descriptor, values, nulls) };
        fields
    }

    fn get(&self, index: usize) -> Option<pg_sys::Datum> {
        let (values, nulls): (&[pg_sys::Datum], &[bool]) =
            if self.many.0.is_empty() { (&self.few.0, &self.few.1) } else { (&self.many.0, &self.many.1) };
        (!nulls[index]).then(|| values[index])
    }
}

/// The entity's id: the key's text, or a JSON list of a composite key's values.
pub fn entity_id(plan: &Plan, row: &Fields) -> Vec<u8> {
    if let [(index, encoding)] = plan.key[..] {
        return row.get(index).map(|value| encoding.plain(value)).unwrap_or_default();
    }
    let mut out = vec![b'['];
    for (i, (index, encoding)) in plan.key.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        // A key that cannot be written is known as null is.
        let start = out.len();
        if write_value(*encoding, row.get(*index), &mut out).is_err() {
            out.truncate(start);
            out.extend_from_slice(b"null");
        }
    }
    out.push(b']');
    out
}

pub fn tenant(plan: &Plan, row: &Fields) -> Option<Vec<u8>> {
    let (index, encoding) = plan.tenant?;
    row.get(index).map(|value| encoding.plain(value))
}

fn write_value(encoding: Encoding, value: Option<pg_sys::Datum>, out: &mut Vec<u8>) -> Result<(), LeftOut> {
    match value {
        Some(value) => encoding.write(value, out),
        None => {
            out.extend_from_slice(b"null");
            Ok(())
        }
    }
}

/// May the column's value be shown to roles that may read the event?
fn is_shown(plan: &Plan, column: &Column) -> bool {
    !plan.key_only || column.is_key
}

/// Writes the columns that `wanted` picks and that may be shown as one JSON object. A value that is larger than `limit`
/// or nested too deeply, or that does not fit into the image any more, is null; returns true if there was one.
pub fn write_image(
    plan: &Plan,
    row: &Fields,
    limit: usize,
    mut wanted: impl FnMut(usize, &Column) -> bool,
    out: &mut Vec<u8>,
) -> bool {
    let mut truncated = false;
    out.push(b'{');
    let opened = out.len();
    for (i, column) in plan.columns.iter().enumerate() {
        if !wanted(i, column) || !is_shown(plan, column) {
            continue;
        }
        write_label(column, opened, out);
        let start = out.len();
        if write_column(column, row.get(column.index), limit, out).is_err() {
            out.truncate(start);
            out.extend_from_slice(b"null");
            truncated = true;
        }
    }
    out.push(b'}');
    truncated
}

fn write_label(column: &Column, opened: usize, out: &mut Vec<u8>) {
    if out.len() > opened {
        out.push(b',');
    }
    out.extend_from_slice(&column.label);
}

fn write_column(column: &Column, value: Option<pg_sys::Datum>, limit: usize, out: &mut Vec<u8>) -> Result<(), LeftOut> {
    // A key is never left out for its size: the entity is known by it.
    if !column.is_key && value.is_some_and(|value| is_larger_than(column, value, limit)) {
        return Err(LeftOut::TooLarge);
    }
    write_value(column.encoding, value, out)
}

/// A column's value on its own, for a row whose image cannot be finished yet.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    Json(Vec<u8>),
    /// The value is not shown because of its size or depth. A number made of its bytes tells whether another value is
    /// the same.
    LeftOut(u64),
}

/// The columns of a row, each on its own, in the order of `plan.columns`.
pub fn write_columns(plan: &Plan, row: &Fields, limit: usize) -> Vec<Written> {
    let write = |column: &Column| {
        let (value, mut out) = (row.get(column.index), Vec::new());
        match write_column(column, value, limit, &mut out) {
            Ok(()) => Written::Json(out),
            Err(LeftOut::TooDeep | LeftOut::TooLarge) => {
                Written::LeftOut(value.map_or(0, |value| fingerprint(column, value)))
            }
        }
    };
    plan.columns.iter().map(write).collect()
}

/// Puts an image together of columns that `write_columns` has made. Returns true if a value was left out.
pub fn join_columns(
    plan: &Plan,
    columns: &[Written],
    mut wanted: impl FnMut(&Column) -> bool,
    out: &mut Vec<u8>,
) -> bool {
    let mut truncated = false;
    out.push(b'{');
    let opened = out.len();
    for (column, written) in plan.columns.iter().zip(columns) {
        if !wanted(column) || !is_shown(plan, column) {
            continue;
        }
        write_label(column, opened, out);
        match written {
            Written::Json(json) if out.len() + json.len() <= MAX_IMAGE_BYTES => out.extend_from_slice(json),
            Written::Json(_) | Written::LeftOut(_) => {
                out.extend_from_slice(b"null");
                truncated = true;
            }
        }
    }
    out.push(b'}');
    truncated
}

/// Names of the columns in which two rows differ, and their places in the second plan. The two may be of partitions
/// that lay out their columns differently.
pub fn differing_columns(old: (&Plan, &[Written]), new: (&Plan, &[Written])) -> Vec<usize> {
    let before = |name: &str| old.0.columns.iter().position(|column| column.name == name).map(|i| &old.1[i]);
    let same = |column: &Column, written: &Written| match (before(&column.name), written) {
        (Some(Written::Json(old)), Written::Json(new)) => {
            old == new || (column.encoding.has_equal_spellings() && same_json(old, new))
        }
        (Some(old), new) => old == new,
        (None, _) => false,
    };
    let columns = new.0.columns.iter().zip(new.1).enumerate();
    columns.filter(|(_, (column, written))| !same(column, written)).map(|(i, _)| i).collect()
}

thread_local! {
    /// The keys of the fingerprints, drawn for each process: a writer cannot choose two values with the same.
    static FINGERPRINTS: std::hash::RandomState = std::hash::RandomState::new();
}

fn fingerprint(column: &Column, value: pg_sys::Datum) -> u64 {
    use std::hash::BuildHasher;
    let mut fingerprint = 0;
    if column.length == -1 {
        // SAFETY: a varlena datum, not null.
        unsafe {
            with_varlena(value, |bytes| fingerprint = FINGERPRINTS.with(|keys| keys.hash_one(bytes)));
        }
    }
    fingerprint
}

/// Is the value larger than the limit? Told without reading a toasted value: its size stands in its pointer.
fn is_larger_than(column: &Column, value: pg_sys::Datum, limit: usize) -> bool {
    // SAFETY: a varlena datum.
    column.length == -1
        && unsafe {
            let varlena = value.cast_mut_ptr();
            let size = if is_plain(varlena) { pgrx::varsize_any(varlena) } else { pg_sys::toast_raw_datum_size(value) };
            size > limit
        }
}

/// Which columns differ, as places in `plan.columns`.
pub fn differences(plan: &Plan, old: &Fields, new: &Fields) -> Vec<usize> {
    let differs = |column: &Column| match (old.get(column.index), new.get(column.index)) {
        (None, None) => false,
        (Some(old), Some(new)) => values_differ(column, old, new),
        _ => true,
    };
    plan.columns.iter().enumerate().filter(|(_, column)| differs(column)).map(|(i, _)| i).collect()
}

/// Do the keys differ? Then the row has become another entity.
pub fn keys_differ(plan: &Plan, old: &Fields, new: &Fields) -> bool {
    plan.columns.iter().filter(|column| column.is_key).any(|column| {
        match (old.get(column.index), new.get(column.index)) {
            (Some(old), Some(new)) => values_differ(column, old, new),
            (old, new) => old.is_some() != new.is_some(),
        }
    })
}

fn values_differ(column: &Column, old: pg_sys::Datum, new: pg_sys::Datum) -> bool {
    if column.by_value {
        return old.value() != new.value()
            && (!column.encoding.has_equal_spellings() || encodings_differ(column.encoding, old, new));
    }
    // SAFETY: two datums of the column's type; datum_image_eq reads toasted values only if their sizes agree.
    unsafe {
        if column.length == -1 && same_varlena(old, new) {
            return false;
        }
        if raw::datum_image_eq(old, new, false, i32::from(column.length)) {
            return false;
        }
    }
    !column.encoding.has_equal_spellings() || encodings_differ(column.encoding, old, new)
}

/// The same bytes, toast pointers included: the usual case for a column that an UPDATE did not touch.
unsafe fn same_varlena(old: pg_sys::Datum, new: pg_sys::Datum) -> bool {
    // SAFETY: two varlena datums.
    unsafe {
        let (old, new): (*const pg_sys::varlena, *const pg_sys::varlena) = (old.cast_mut_ptr(), new.cast_mut_ptr());
        let size = pgrx::varsize_any(old);
        size == pgrx::varsize_any(new)
            && std::slice::from_raw_parts(old.cast::<u8>(), size) == std::slice::from_raw_parts(new.cast::<u8>(), size)
    }
}

/// 1.0 and 1.00, or two spellings of one jsonb, are no difference.
fn encodings_differ(encoding: Encoding, old: pg_sys::Datum, new: pg_sys::Datum) -> bool {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    // Values that cannot be written have been found to differ in their bytes.
    match (encoding.write(old, &mut left), encoding.write(new, &mut right)) {
        (Ok(()), Ok(())) => left != right && !same_json(&left, &right),
        (Err(_), _) | (_, Err(_)) => true,
    }
}

/// Are two JSON texts the same value?
fn same_json(left: &[u8], right: &[u8]) -> bool {
    let parse = |bytes: &[u8]| Value::from_json(&server_text::read(bytes)).ok();
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => left == right,
        (None, _) | (_, None) => false,
    }
}
