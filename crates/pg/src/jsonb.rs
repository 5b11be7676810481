//! A jsonb argument. pgrx's own panics on a document that is nested deeper than its reader goes, which Postgres allows.
use std::ffi::CStr;

use pgrx::callconv::{Arg, ArgAbi};
use pgrx::nullable::Nullable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{FromDatum, direct_function_call, pg_sys};

use super::catch::PgError;

/// A document that was read.
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
        let text = text.map(CStr::to_string_lossy).unwrap_or_default();
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

// SAFETY: names the type that FromDatum reads.
unsafe impl SqlTranslatable for Jsonb {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Jsonb);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("jsonb"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("jsonb")));
}
