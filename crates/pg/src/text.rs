//! Text arguments and results of SQL functions. pgrx's own assume UTF-8, regardless of the database's encoding.
use std::ops::Deref;

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::{Datum, UnboxDatum};
use pgrx::nullable::Nullable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{FromDatum, IntoDatum, pg_sys};

use super::append::text_varlena;
use super::encode::with_varlena;
use super::server_text;

/// A text as Rust has it; converted when it comes from the database and when it goes there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub String);

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.to_owned())
    }
}

/// The elements of an array as Rust has them.
pub fn strings(texts: Vec<Option<Text>>) -> Vec<Option<String>> {
    texts.into_iter().map(|text| text.map(|text| text.0)).collect()
}

impl FromDatum for Text {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _type: pg_sys::Oid) -> Option<Self> {
        if is_null {
            return None;
        }
        let mut read = String::new();
        // SAFETY: a text datum, not null.
        unsafe { with_varlena(datum, |bytes| read = server_text::read(bytes).into_owned()) };
        Some(Text(read))
    }
}

impl IntoDatum for Text {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        Some(text_varlena(&self.0))
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TEXTOID
    }
}

// SAFETY: an element of a text[] is a text datum.
unsafe impl UnboxDatum for Text {
    type As<'src> = Text;

    unsafe fn unbox<'src>(datum: Datum<'src>) -> Text
    where
        Self: 'src,
    {
        // SAFETY: a text datum, not null.
        unsafe { Text::from_datum(datum.sans_lifetime(), false) }.unwrap_or_default()
    }
}

// SAFETY: a text datum is all that the SQL below lets in.
unsafe impl<'fcx> ArgAbi<'fcx> for Text {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the argument is of the type that FromDatum reads; functions that take it are strict.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or_default()
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: as above.
        unsafe { arg.unbox_arg_using_from_datum() }.into()
    }
}

// SAFETY: returns a text datum, as the SQL below says.
unsafe impl BoxRet for Text {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        match self.into_datum() {
            // SAFETY: a datum of the type that the function returns.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

// SAFETY: names the type that FromDatum reads and IntoDatum writes.
unsafe impl SqlTranslatable for Text {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Text);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("TEXT"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("TEXT")));
}
