//! Keys as texts: how events spell a value that was given in another spelling.
use std::ffi::CStr;

use pgrx::pg_sys;

use super::catch::PgError;
use super::encode::Encoding;
use super::server_text;
use super::settings::Pinned;
use super::statement::input;

/// The type of a column of a key.
pub struct KeyType {
    /// The base type, if the column's is a domain: a comparison casts to it.
    base: pg_sys::Oid,
    encoding: Encoding,
    /// Equal values have the same text, apart from the scale of a numeric, the blanks behind a char(n) and the sign of
    /// a zero, which the core's `wake_key` leaves out.
    pub has_one_spelling: bool,
    /// Equal values have the same text, apart from the sign of a float's zero.
    pub has_one_text: bool,
}

impl KeyType {
    /// None if the table has no such column.
    pub fn of_column(relation: pg_sys::Oid, name: &str) -> Option<Self> {
        let name = server_text::c_string(name).ok()?;
        // SAFETY: catalog look-ups by oid and by a NUL-terminated name; the three results are written by the call.
        unsafe {
            let number = pg_sys::get_attnum(relation, name.as_ptr());
            if i32::from(number) == pg_sys::InvalidAttrNumber as i32 {
                return None;
            }
            let (mut type_oid, mut modifier, mut collation) = (pg_sys::InvalidOid, -1, pg_sys::InvalidOid);
            pg_sys::get_atttypetypmodcoll(relation, number, &mut type_oid, &mut modifier, &mut collation);
            let base = pg_sys::getBaseType(type_oid);
            let ignores_something =
                collation != pg_sys::InvalidOid && !pg_sys::get_collation_isdeterministic(collation);
            let has_one_spelling = !ignores_something && (is_spelled_once(base) || pg_sys::type_is_enum(base));
            let has_one_text = has_one_spelling && !matches!(base, pg_sys::NUMERICOID | pg_sys::BPCHAROID);
            Some(KeyType { base, encoding: Encoding::of_type(base), has_one_spelling, has_one_text })
        }
    }

    /// The text as an event's id has it if this is the only column of the key.
    pub fn plain(&self, text: &CStr) -> Result<String, PgError> {
        let value = input(self.base, text)?;
        let _settings = self.settings();
        Ok(server_text::read(&self.encoding.plain(value)).into_owned())
    }

    /// The text as an event's id has it as one of several columns.
    pub fn json(&self, text: &CStr) -> Result<String, PgError> {
        let value = input(self.base, text)?;
        let _settings = self.settings();
        let mut out = Vec::new();
        // A value that cannot be written stands in the id as null.
        Ok(match self.encoding.write(value, &mut out) {
            Ok(()) => server_text::read(&out).into_owned(),
            Err(_) => "null".to_owned(),
        })
    }

    /// The settings under which capture writes values. Texts are read under those of the session, as its comparisons
    /// do.
    fn settings(&self) -> Option<Pinned> {
        self.encoding.depends_on_settings().then(Pinned::canonical_output).flatten()
    }
}

/// Types of Postgres whose equal values have one text. Not among them: interval (a day equals 24 hours), jsonb, arrays,
/// ranges, rows, money, and all that extensions bring along.
fn is_spelled_once(base: pg_sys::Oid) -> bool {
    matches!(
        base,
        pg_sys::BOOLOID
            | pg_sys::INT2OID
            | pg_sys::INT4OID
            | pg_sys::INT8OID
            | pg_sys::OIDOID
            | pg_sys::FLOAT4OID
            | pg_sys::FLOAT8OID
            | pg_sys::NUMERICOID
            | pg_sys::TEXTOID
            | pg_sys::VARCHAROID
            | pg_sys::BPCHAROID
            | pg_sys::NAMEOID
            | pg_sys::CHAROID
            | pg_sys::BYTEAOID
            | pg_sys::DATEOID
            | pg_sys::TIMEOID
            | pg_sys::TIMETZOID
            | pg_sys::TIMESTAMPOID
            | pg_sys::TIMESTAMPTZOID
            | pg_sys::UUIDOID
            | pg_sys::INETOID
            | pg_sys::CIDROID
            | pg_sys::MACADDROID
            | pg_sys::MACADDR8OID
            | pg_sys::BITOID
            | pg_sys::VARBITOID
    )
}
