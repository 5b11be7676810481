//! Arrays and rows as JSON, walked here element by element.
//!
//! Postgres' own `array_to_json` and `row_to_json` look for casts to json of the element and column types and call
//! them. Such a cast is a function of the role that created it, and would run with the rights of the role that writes
//! the table.
use std::ffi::CStr;

use automation_core::value::MAX_LEVELS;
use pgrx::pg_sys;

use super::encode::{Encoding, LeftOut, MAX_IMAGE_BYTES, free_copy, write_string};
use super::raw;

/// Writes an array that stands inside so many lists and objects. An array of several dimensions is a list of lists.
///
/// # Safety
/// `value` must be an array, not null.
pub unsafe fn write_array(around: usize, value: pg_sys::Datum, out: &mut Vec<u8>) -> Result<(), LeftOut> {
    // SAFETY: a detoasted array has its header in one piece, and behind it as many bounds as dimensions. The result
    // of deconstruct_array has `count` entries and points into the array, which is kept until all are written.
    unsafe {
        let array: *mut pg_sys::ArrayType = pg_sys::pg_detoast_datum(value.cast_mut_ptr()).cast();
        let dimensions = (*array).ndim as usize;
        let bounds = array.cast::<u8>().add(size_of::<pg_sys::ArrayType>()).cast::<i32>();
        let bounds: Vec<usize> = (0..dimensions).map(|i| *bounds.add(i) as usize).collect();
        let (element, mut length, mut by_value, mut align) = ((*array).elemtype, 0i16, false, 0);
        pg_sys::get_typlenbyvalalign(element, &mut length, &mut by_value, &mut align);
        let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        pg_sys::deconstruct_array(
            array,
            element,
            i32::from(length),
            by_value,
            align,
            &mut values,
            &mut nulls,
            &mut count,
        );
        let list = List { values, nulls, encoding: Encoding::of_type(element) };
        let written = match count {
            0 => {
                out.extend_from_slice(b"[]");
                Ok(())
            }
            _ if around + dimensions > MAX_LEVELS => Err(LeftOut::TooDeep),
            _ => list.write(around + dimensions, &bounds, &mut 0, out),
        };
        for memory in [values.cast::<std::ffi::c_void>(), nulls.cast()] {
            pg_sys::pfree(memory);
        }
        free_copy(value, array.cast());
        written
    }
}

/// The elements of an array, taken apart.
struct List {
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    encoding: Encoding,
}

impl List {
    /// Writes the elements from `next` on that belong to these dimensions. Each of them stands inside `around` lists
    /// and objects.
    ///
    /// # Safety
    /// There must be as many elements behind `next` as the bounds say.
    unsafe fn write(
        &self,
        around: usize,
        bounds: &[usize],
        next: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut> {
        let Some((&bound, inner)) = bounds.split_first() else { return Ok(()) };
        out.push(b'[');
        for i in 0..bound {
            if i > 0 {
                out.push(b',');
            }
            // SAFETY: `next` counts the elements, of which there are as many as the product of all bounds.
            unsafe {
                if !inner.is_empty() {
                    self.write(around, inner, next, out)?;
                    continue;
                }
                match *self.nulls.add(*next) {
                    true => write_null(out)?,
                    false => self.encoding.write_inside(around, *self.values.add(*next), out)?,
                }
            }
            *next += 1;
        }
        out.push(b']');
        Ok(())
    }
}

/// Writes a row that stands inside so many lists and objects, as an object with a member for each column.
///
/// # Safety
/// `value` must be a row, not null.
pub unsafe fn write_row(around: usize, value: pg_sys::Datum, out: &mut Vec<u8>) -> Result<(), LeftOut> {
    if around + 1 > MAX_LEVELS {
        return Err(LeftOut::TooDeep);
    }
    // SAFETY: a detoasted row says itself of which type it is. Its descriptor is reference-counted and released again;
    // after an error that unwinds, the end of the (sub)transaction does that.
    unsafe {
        let header: pg_sys::HeapTupleHeader = pg_sys::pg_detoast_datum(value.cast_mut_ptr()).cast();
        let datum = &(*header).t_choice.t_datum;
        let descriptor = pg_sys::lookup_rowtype_tupdesc(datum.datum_typeid, datum.datum_typmod);
        let mut tuple = pg_sys::HeapTupleData {
            t_len: pgrx::varsize_any(header.cast()) as u32,
            t_data: header,
            ..std::mem::zeroed()
        };
        let width = (*descriptor).natts as usize;
        let mut values = vec![pg_sys::Datum::from(0usize); width];
        let mut nulls = vec![true; width];
        raw::unguarded::heap_deform_tuple(&mut tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        let written = write_members(around + 1, descriptor, &values, &nulls, out);
        if (*descriptor).tdrefcount >= 0 {
            pg_sys::DecrTupleDescRefCount(descriptor);
        }
        free_copy(value, header.cast());
        written
    }
}

/// # Safety
/// Values and nulls must be those of a row of the descriptor.
unsafe fn write_members(
    around: usize,
    descriptor: pg_sys::TupleDesc,
    values: &[pg_sys::Datum],
    nulls: &[bool],
    out: &mut Vec<u8>,
) -> Result<(), LeftOut> {
    out.push(b'{');
    let start = out.len();
    for (i, (&value, &null)) in values.iter().zip(nulls).enumerate() {
        // SAFETY: as demanded of the caller.
        let attribute = unsafe { &*raw::attribute(descriptor, i) };
        if attribute.attisdropped {
            continue;
        }
        if out.len() > start {
            out.push(b',');
        }
        // SAFETY: a name is a C string.
        write_string(out, unsafe { CStr::from_ptr(attribute.attname.data.as_ptr()) }.to_bytes());
        out.push(b':');
        match null {
            true => write_null(out)?,
            false => Encoding::of_type(attribute.atttypid).write_inside(around, value, out)?,
        }
    }
    out.push(b'}');
    Ok(())
}

/// A null takes a bit of an array and four bytes here, so the limit is asked for nulls as well.
fn write_null(out: &mut Vec<u8>) -> Result<(), LeftOut> {
    out.extend_from_slice(b"null");
    if out.len() > MAX_IMAGE_BYTES { Err(LeftOut::TooLarge) } else { Ok(()) }
}
