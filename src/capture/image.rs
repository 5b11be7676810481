//! Images of rows as JSON, and what differs between two of them.
#![allow(unsafe_code)]
use automation_core::value::Value;
use pgrx::pg_sys;

use super::plan::{Column, Plan};
use crate::pg::encode::{Encoding, is_plain};
use crate::pg::raw;

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
        write_value(*encoding, row.get(*index), &mut out);
    }
    out.push(b']');
    out
}

pub fn tenant(plan: &Plan, row: &Fields) -> Option<Vec<u8>> {
    let (index, encoding) = plan.tenant?;
    row.get(index).map(|value| encoding.plain(value))
}

fn write_value(encoding: Encoding, value: Option<pg_sys::Datum>, out: &mut Vec<u8>) {
    match value {
        Some(value) => encoding.write(value, out),
        None => out.extend_from_slice(b"null"),
    }
}

/// Writes the columns that `wanted` picks and that may be shown as one JSON object. Returns true if a value was left out for
/// its size.
pub fn write_image(
    plan: &Plan,
    row: &Fields,
    limit: usize,
    mut wanted: impl FnMut(usize, &Column) -> bool,
    out: &mut Vec<u8>,
) -> bool {
    write_object(plan, row, limit, |i, column| wanted(i, column) && (!plan.key_only || column.is_key), out)
}

/// Writes all columns, whatever their size and whoever may see them: to compare, not to keep.
pub fn write_whole(plan: &Plan, row: &Fields, out: &mut Vec<u8>) {
    write_object(plan, row, usize::MAX, |_, _| true, out);
}

fn write_object(
    plan: &Plan,
    row: &Fields,
    limit: usize,
    mut wanted: impl FnMut(usize, &Column) -> bool,
    out: &mut Vec<u8>,
) -> bool {
    let mut truncated = false;
    out.push(b'{');
    let start = out.len();
    for (i, column) in plan.columns.iter().enumerate() {
        if !wanted(i, column) {
            continue;
        }
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(&column.label);
        let value = row.get(column.index);
        if !column.is_key && value.is_some_and(|value| is_larger_than(column, value, limit)) {
            out.extend_from_slice(b"null");
            truncated = true;
        } else {
            write_value(column.encoding, value, out);
        }
    }
    out.push(b'}');
    truncated
}

/// Without reading a toasted value: its size stands in its pointer.
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
    encoding.write(old, &mut left);
    encoding.write(new, &mut right);
    if left == right {
        return false;
    }
    let parse = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| Value::from_json(text).ok());
    match (parse(&left), parse(&right)) {
        (Some(left), Some(right)) => left != right,
        _ => true,
    }
}
