//! Values as parameters of a statement: the text form that the parameter's type reads.
#![allow(unsafe_code)]
use automation_core::value::Value;
use pgrx::pg_sys;

use crate::pg::catch::PgError;
use crate::pg::parameter_types::OwnType;
use crate::pg::server_text;
use crate::pg::statement::Parameter;

/// The types of `value` where its position in a statement requires none. A whole number and a number with a fraction
/// choose the same operator; otherwise a division would depend on which of them the value happens to be. Null fits any
/// position.
pub fn own_type(value: &Value) -> OwnType {
    use pg_sys::{
        BOOLOID, DATEOID, FLOAT8OID, INT4OID, INT8OID, INTERVALOID, JSONBOID, NUMERICOID, TEXTOID, TIMESTAMPTZOID,
    };
    let own = |plain: pg_sys::Oid, choices: &[pg_sys::Oid]| OwnType { plain, choices: choices.to_vec() };
    match value {
        Value::Null => own(
            TEXTOID,
            &[
                NUMERICOID,
                TIMESTAMPTZOID,
                TEXTOID,
                JSONBOID,
                BOOLOID,
                INT8OID,
                INT4OID,
                FLOAT8OID,
                DATEOID,
                INTERVALOID,
            ],
        ),
        Value::Bool(_) => own(BOOLOID, &[BOOLOID]),
        // 1.00 is whole, but no integer type reads it.
        Value::Number(number) => match number.to_string().parse::<i64>().ok() {
            Some(whole) if i32::try_from(whole).is_ok() => own(INT8OID, &[NUMERICOID, INT8OID, INT4OID, FLOAT8OID]),
            Some(_) => own(INT8OID, &[NUMERICOID, INT8OID, FLOAT8OID]),
            None => own(NUMERICOID, &[NUMERICOID, FLOAT8OID]),
        },
        Value::Text(_) => own(TEXTOID, &[TEXTOID]),
        Value::Time(_) => own(TIMESTAMPTZOID, &[TIMESTAMPTZOID]),
        Value::Date(_) => own(DATEOID, &[DATEOID]),
        Value::Duration(_) => own(INTERVALOID, &[INTERVALOID]),
        Value::List(_) | Value::Object(_) => own(JSONBOID, &[JSONBOID]),
    }
}

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
    server_text::c_string(&text).map(Some)
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
    use super::own_type;
    use automation_core::value::{Number, Value};
    use pgrx::pg_sys;

    #[test]
    fn numbers_are_integers_only_if_an_integer_type_reads_their_text() {
        let number = |text: &str| own_type(&Value::Number(Number::parse(text).unwrap_or_else(|| panic!("{text}"))));
        assert_eq!(number("1").plain, pg_sys::INT8OID);
        assert_eq!(number("-9223372036854775808").plain, pg_sys::INT8OID);
        assert_eq!(number("9223372036854775808").plain, pg_sys::NUMERICOID);
        assert_eq!(number("1.00").plain, pg_sys::NUMERICOID);
        assert_eq!(number("1.5").choices[0], number("1").choices[0], "a division must not depend on the value");
        assert!(!number("3000000000").choices.contains(&pg_sys::INT4OID));
    }

    #[test]
    fn array_elements_are_quoted() {
        let items = [Value::text("a\"b\\c"), Value::Null, Value::int(3), Value::list(vec![Value::text("x")])];
        assert_eq!(array_literal(&items), r#"{"a\"b\\c",NULL,"3",{"x"}}"#);
    }
}
