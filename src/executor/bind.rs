//! Values as parameters of a statement: the text that the parameter's own type reads.
#![allow(unsafe_code)]
use std::ffi::CString;

use automation_core::value::Value;
use pgrx::pg_sys;

use crate::pg::catch::PgError;
use crate::pg::statement::Parameter;

/// The text form of `value` for a parameter of the given type.
pub fn parameter(value: &Value, type_oid: pg_sys::Oid) -> Result<Parameter, PgError> {
    let text = match (value, type_oid) {
        (Value::Null, _) => return Ok(None),
        (value, pg_sys::JSONOID | pg_sys::JSONBOID) => value.to_json(),
        (Value::List(items), type_oid) if is_array(type_oid) => array_literal(items),
        (value, _) => match value.to_text() {
            Some(text) => text,
            None => return Ok(None),
        },
    };
    CString::new(text).map(Some).map_err(|_| PgError::new("22021", "invalid byte sequence for encoding \"UTF8\": 0x00"))
}

fn is_array(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::get_element_type(pg_sys::getBaseType(type_oid)) != pg_sys::InvalidOid }
}

/// `{"a","b",NULL}`; lists inside become further dimensions.
fn array_literal(items: &[Value]) -> String {
    let mut out = String::from("{");
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        match item {
            Value::List(inner) => out.push_str(&array_literal(inner)),
            other => match other.to_text() {
                None => out.push_str("NULL"),
                Some(text) => {
                    out.push('"');
                    out.extend(
                        text.chars().flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c])),
                    );
                    out.push('"');
                }
            },
        }
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::array_literal;
    use automation_core::value::Value;

    #[test]
    fn array_elements_are_quoted() {
        let items = [Value::text("a\"b\\c"), Value::Null, Value::int(3), Value::list(vec![Value::text("x")])];
        assert_eq!(array_literal(&items), r#"{"a\"b\\c",NULL,"3",{"x"}}"#);
    }
}
