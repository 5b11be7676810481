//! The engine's own statements: prepared once per process, typed in, read by column number.
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};

use pgrx::{FromDatum, pg_sys};

use super::append::{kept_json, text_varlena, varlena};
use super::catch::guard;
use super::encode::is_plain;
use super::raw::unguarded;
use super::server_text;
use super::settings::PlannerSettings;
use super::text::Text;

/// A bound value with its type.
#[derive(Clone, Copy)]
pub struct Arg {
    type_oid: pg_sys::Oid,
    value: Option<pg_sys::Datum>,
}

impl Arg {
    fn new(type_oid: pg_sys::Oid, value: Option<pg_sys::Datum>) -> Self {
        Arg { type_oid, value }
    }

    pub fn timestamp(micros: i64) -> Self {
        Self::new(pg_sys::TIMESTAMPTZOID, Some(pg_sys::Datum::from(micros)))
    }

    pub fn no_timestamp() -> Self {
        Self::new(pg_sys::TIMESTAMPTZOID, None)
    }

    pub fn maybe_timestamp(micros: Option<i64>) -> Self {
        Self::new(pg_sys::TIMESTAMPTZOID, micros.map(pg_sys::Datum::from))
    }

    pub fn json(text: &str) -> Self {
        Self::new(pg_sys::JSONOID, Some(text_varlena(text)))
    }

    pub fn maybe_json(text: Option<&str>) -> Self {
        Self::new(pg_sys::JSONOID, text.map(text_varlena))
    }

    /// JSON that only the engine reads: letters that the database's encoding lacks are kept.
    pub fn kept_json(text: &str) -> Self {
        Self::new(pg_sys::JSONOID, Some(kept_json(text)))
    }

    pub fn bytes(bytes: &[u8]) -> Self {
        Self::new(pg_sys::BYTEAOID, Some(varlena(bytes)))
    }

    /// jsonb from JSON text; raises the type's own error if the text is not valid.
    pub fn jsonb(text: &str) -> Self {
        let source = CString::new(server_text::write(text)).unwrap_or_default();
        Self::new(pg_sys::JSONBOID, Some(jsonb_datum(&source)))
    }

    pub fn int8s(values: &[i64]) -> Self {
        Self::array(pg_sys::INT8ARRAYOID, pg_sys::INT8OID, 8, b'd', values.iter().map(|v| pg_sys::Datum::from(*v)))
    }

    pub fn timestamps(values: &[i64]) -> Self {
        let datums = values.iter().map(|v| pg_sys::Datum::from(*v));
        Self::array(pg_sys::TIMESTAMPTZARRAYOID, pg_sys::TIMESTAMPTZOID, 8, b'd', datums)
    }

    pub fn texts<S: AsRef<str>>(values: &[S]) -> Self {
        let datums = values.iter().map(|text| text_varlena(text.as_ref()));
        Self::array(pg_sys::TEXTARRAYOID, pg_sys::TEXTOID, -1, b'i', datums)
    }

    fn array(
        type_oid: pg_sys::Oid,
        element: pg_sys::Oid,
        length: i32,
        align: u8,
        values: impl Iterator<Item = pg_sys::Datum>,
    ) -> Self {
        let mut datums: Vec<pg_sys::Datum> = values.collect();
        // SAFETY: datums of the element type, with that type's length and alignment.
        let array = unsafe {
            pg_sys::construct_array(datums.as_mut_ptr(), datums.len() as i32, element, length, length > 0, align as i8)
        };
        Self::new(type_oid, Some(pg_sys::Datum::from(array)))
    }

    pub fn datum(&self) -> Option<pg_sys::Datum> {
        self.value
    }
}

macro_rules! arg_from {
    ($($rust:ty => $oid:ident),*) => {$(
        impl From<$rust> for Arg {
            fn from(value: $rust) -> Self {
                Arg::new(pg_sys::$oid, Some(pg_sys::Datum::from(value)))
            }
        }
        impl From<Option<$rust>> for Arg {
            fn from(value: Option<$rust>) -> Self {
                Arg::new(pg_sys::$oid, value.map(pg_sys::Datum::from))
            }
        }
    )*};
}
arg_from!(i64 => INT8OID, i32 => INT4OID, i16 => INT2OID, bool => BOOLOID, pg_sys::Oid => OIDOID);

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Arg::new(pg_sys::TEXTOID, Some(text_varlena(text)))
    }
}

impl From<Option<&str>> for Arg {
    fn from(text: Option<&str>) -> Self {
        Arg::new(pg_sys::TEXTOID, text.map(text_varlena))
    }
}

/// The jsonb that its input function reads from a JSON text in the database's encoding.
pub(super) fn jsonb_datum(source: &CStr) -> pg_sys::Datum {
    let text = pg_sys::Datum::from(source.as_ptr());
    // SAFETY: jsonb's input function with a C string that lives during the call.
    unsafe { guard(|| pg_sys::DirectFunctionCall1Coll(Some(unguarded::jsonb_in), pg_sys::InvalidOid, text)) }
}

/// One row of a result. Columns are counted from 1.
pub struct Row<'a> {
    values: [pg_sys::Datum; MOST_COLUMNS],
    nulls: [bool; MOST_COLUMNS],
    _tuple: std::marker::PhantomData<&'a ()>,
}

/// No statement or table of ours has more.
const MOST_COLUMNS: usize = 32;

impl Row<'_> {
    /// Takes a tuple apart, once for all its columns.
    ///
    /// # Safety
    /// The tuple belongs to the descriptor and stays valid as long as the row.
    pub unsafe fn of(tuple: pg_sys::HeapTuple, descriptor: pg_sys::TupleDesc) -> Self {
        let (mut values, mut nulls) = ([pg_sys::Datum::from(0usize); MOST_COLUMNS], [true; MOST_COLUMNS]);
        // SAFETY: as demanded of the caller; the arrays are wide enough.
        unsafe {
            if (*descriptor).natts as usize > MOST_COLUMNS {
                pgrx::error!("automation_engine bug: a row has {} columns", (*descriptor).natts);
            }
            unguarded::heap_deform_tuple(tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
        Row { values, nulls, _tuple: std::marker::PhantomData }
    }

    fn datum(&self, column: usize) -> Option<pg_sys::Datum> {
        (!self.nulls[column - 1]).then(|| self.values[column - 1])
    }

    pub fn is_null(&self, column: usize) -> bool {
        self.nulls[column - 1]
    }

    pub fn int8(&self, column: usize) -> Option<i64> {
        self.datum(column).map(|datum| datum.value() as i64)
    }
    pub fn int4(&self, column: usize) -> Option<i32> {
        self.datum(column).map(|datum| datum.value() as i32)
    }
    pub fn int2(&self, column: usize) -> Option<i16> {
        self.datum(column).map(|datum| datum.value() as i16)
    }
    pub fn char(&self, column: usize) -> Option<i8> {
        self.datum(column).map(|datum| datum.value() as i8)
    }
    pub fn bool(&self, column: usize) -> Option<bool> {
        self.datum(column).map(|datum| datum.value() & 1 == 1)
    }
    pub fn oid(&self, column: usize) -> Option<pg_sys::Oid> {
        self.datum(column).map(|datum| pg_sys::Oid::from(datum.value() as u32))
    }

    /// A text, name-as-text or json column.
    pub fn text(&self, column: usize) -> Option<String> {
        self.varlena(column).map(|bytes| server_text::read(bytes).into_owned())
    }

    /// A text column as the database has it, not copied.
    pub fn raw_text(&self, column: usize) -> Option<&[u8]> {
        self.varlena(column)
    }

    /// A bytea column.
    pub fn bytes(&self, column: usize) -> Option<Vec<u8>> {
        self.varlena(column).map(<[u8]>::to_vec)
    }

    fn varlena(&self, column: usize) -> Option<&[u8]> {
        self.datum(column).map(|datum| {
            // SAFETY: a varlena datum; detoasted in SPI's memory, which is freed as a whole after the row has been
            // read.
            unsafe {
                let unpacked = match datum.cast_mut_ptr() {
                    plain if is_plain(plain) => plain,
                    toasted => pg_sys::pg_detoast_datum_packed(toasted),
                };
                std::slice::from_raw_parts(pgrx::vardata_any(unpacked).cast::<u8>(), pgrx::varsize_any_exhdr(unpacked))
            }
        })
    }

    pub fn text_array(&self, column: usize) -> Vec<String> {
        let Some(datum) = self.datum(column) else { return Vec::new() };
        // SAFETY: a text[] datum.
        unsafe { Vec::<Option<Text>>::from_polymorphic_datum(datum, false, pg_sys::TEXTARRAYOID) }
            .map(|array| array.into_iter().flatten().map(|text| text.0).collect())
            .unwrap_or_default()
    }
}

thread_local! {
    static PLANS: RefCell<HashMap<(*const u8, usize), pg_sys::SPIPlanPtr>> = RefCell::new(HashMap::new());
}

/// Runs a statement of ours and maps its rows. `sql` is prepared at its first use in this process; must be called
/// inside `identity::as_engine` unless it reads only relations that every role may read.
pub fn query<T>(sql: &'static str, args: &[Arg], read: impl FnMut(&Row<'_>) -> T) -> Vec<T> {
    run(sql, args, read).0
}

/// The rows, and how many the statement processed.
fn run<T>(sql: &'static str, args: &[Arg], mut read: impl FnMut(&Row<'_>) -> T) -> (Vec<T>, u64) {
    // SAFETY: SPI is opened and closed around the statement; rows are read before it is closed. If an error unwinds,
    // the (sub)transaction's abort closes SPI.
    unsafe {
        pg_sys::SPI_connect();
        let plan = plan(sql, args);
        let mut values: Vec<pg_sys::Datum> =
            args.iter().map(|arg| arg.value.unwrap_or(pg_sys::Datum::from(0usize))).collect();
        let nulls: Vec<std::ffi::c_char> =
            args.iter().map(|arg| if arg.value.is_none() { b'n' } else { b' ' } as std::ffi::c_char).collect();
        let code = {
            let _planner = PlannerSettings::pin();
            let (values, nulls) = (values.as_mut_ptr(), nulls.as_ptr());
            guard(|| unguarded::SPI_execute_plan(plan, values, nulls, false, 0))
        };
        if code < 0 {
            pgrx::error!("automation_engine bug: statement failed with SPI code {code}: {sql}");
        }
        let table = pg_sys::SPI_tuptable;
        let mut rows = Vec::new();
        if !table.is_null() {
            let count = (*table).numvals as usize;
            rows.reserve(count);
            for i in 0..count {
                rows.push(read(&Row::of(*(*table).vals.add(i), (*table).tupdesc)));
            }
        }
        let processed = pg_sys::SPI_processed;
        pg_sys::SPI_finish();
        (rows, processed)
    }
}

/// Runs a statement of ours that returns nothing of interest; says how many rows it touched.
pub fn execute(sql: &'static str, args: &[Arg]) -> u64 {
    run(sql, args, |_| ()).1
}

/// The first row, if there is one.
pub fn query_one<T>(sql: &'static str, args: &[Arg], read: impl FnMut(&Row<'_>) -> T) -> Option<T> {
    query(sql, args, read).into_iter().next()
}

/// The statement's kept plan, made at its first use in this process.
unsafe fn plan(sql: &'static str, args: &[Arg]) -> pg_sys::SPIPlanPtr {
    let key = (sql.as_ptr(), sql.len());
    if let Some(plan) = PLANS.with(|plans| plans.borrow().get(&key).copied()) {
        return plan;
    }
    let source = CString::new(sql).unwrap_or_default();
    let mut types: Vec<pg_sys::Oid> = args.iter().map(|arg| arg.type_oid).collect();
    // SAFETY: SPI is open; the plan is kept for the life of the process.
    let plan = unsafe {
        let generic = pg_sys::CURSOR_OPT_GENERIC_PLAN as i32;
        let (text, count, types) = (source.as_ptr(), types.len() as i32, types.as_mut_ptr());
        let plan = guard(|| unguarded::SPI_prepare_cursor(text, count, types, generic));
        if plan.is_null() {
            pgrx::error!("automation_engine bug: statement does not prepare: {sql}");
        }
        pg_sys::SPI_keepplan(plan);
        plan
    };
    PLANS.with(|plans| plans.borrow_mut().insert(key, plan));
    plan
}

/// Runs an SQL text that was put together because it names objects (always quoted), with the rights of the current
/// user. Returns how many rows the statement touched or found.
pub fn run_ddl(sql: &str) -> u64 {
    let source = server_text::c_string(sql).unwrap_or_else(|error| error.raise());
    // SAFETY: SPI is opened and closed around the statement.
    unsafe {
        pg_sys::SPI_connect();
        let text = source.as_ptr();
        let code = guard(|| unguarded::SPI_execute(text, false, 0));
        if code < 0 {
            pgrx::error!("automation_engine bug: statement failed with SPI code {code}: {sql}");
        }
        let rows = pg_sys::SPI_processed;
        pg_sys::SPI_finish();
        rows
    }
}
