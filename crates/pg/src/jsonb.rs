//! Jsonb arguments and results. pgrx's own panics on a document that is nested deeper than its reader goes, which
//! Postgres allows, and assumes UTF-8, regardless of the database's encoding.
use std::ffi::CStr;

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::nullable::Nullable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{FromDatum, IntoDatum, direct_function_call, pg_sys};

use super::catch::PgError;
use super::engine_sql::jsonb_datum;
use super::server_text;

/// A document that was read, or is returned.
pub struct Jsonb(pub serde_json::Value);

impl FromDatum for Jsonb {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _type: pg_sys::Oid) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: a jsonb datum; its output function returns a C string in the memory of the current call.
        let text = unsafe {
            let whole = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
            direct_function_call::<&CStr>(pg_sys::jsonb_out, &[Some(whole.into())])
        };
        let text = text.map(server_text::read_c).unwrap_or_default();
        match serde_json::from_str(&text) {
            Ok(value) => Some(Jsonb(value)),
            Err(_) => PgError {
                detail: Some("A document can have 127 levels.".to_owned()),
                ..PgError::new("54001", "JSON document is nested too deeply")
            }
            .raise(),
        }
    }
}

// SAFETY: a jsonb datum is all that the SQL below lets in.
unsafe impl<'fcx> ArgAbi<'fcx> for Jsonb {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the argument is of the type that FromDatum reads; functions that take it are strict.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or(Jsonb(serde_json::Value::Null))
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: as above.
        unsafe { arg.unbox_arg_using_from_datum() }.into()
    }
}

impl IntoDatum for Jsonb {
    /// Raises an error that names the letter if the document has one that the database's encoding lacks.
    fn into_datum(self) -> Option<pg_sys::Datum> {
        let text = server_text::c_string(&self.0.to_string()).unwrap_or_else(|error| error.raise());
        Some(jsonb_datum(&text))
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::JSONBOID
    }
}

// SAFETY: returns a jsonb datum, as the SQL below says.
unsafe impl BoxRet for Jsonb {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        match self.into_datum() {
            // SAFETY: a datum of the type that the function returns.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

// SAFETY: names the type that FromDatum reads and IntoDatum writes.
unsafe impl SqlTranslatable for Jsonb {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Jsonb);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("jsonb"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("jsonb")));
}
