//! A regclass argument. pgrx's own opens the relation while the argument is read, and raises an internal error if an
//! oid belongs to none; a caller may have any oid, of a table that was dropped in between for one.
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::nullable::Nullable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{FromDatum, pg_sys};

/// The oid of a relation that may not exist.
pub struct Regclass(pub pg_sys::Oid);

impl FromDatum for Regclass {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, kind: pg_sys::Oid) -> Option<Self> {
        // SAFETY: a regclass datum is an oid.
        unsafe { pg_sys::Oid::from_polymorphic_datum(datum, is_null, kind) }.map(Regclass)
    }
}

// SAFETY: a regclass datum is all that the SQL below lets in.
unsafe impl<'fcx> ArgAbi<'fcx> for Regclass {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the argument is of the type that FromDatum reads; functions that take it are strict.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or(Regclass(pg_sys::InvalidOid))
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: as above.
        unsafe { arg.unbox_arg_using_from_datum() }.into()
    }
}

// SAFETY: names the type that FromDatum reads.
unsafe impl SqlTranslatable for Regclass {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Regclass);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("regclass"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("regclass")));
}
