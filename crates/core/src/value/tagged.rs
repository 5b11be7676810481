//! Values kept as JSON and read back with their types: an instant stays an instant. For the state of suspended runs;
//! users see plain JSON.

use super::{Date, Duration, Number, Timestamp, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Marks an object that stands for another value.
const TAG: &str = "$";

/// The value as JSON that [`decode`] reads.
pub fn encode(value: &Value) -> Json {
    let tagged =
        |word: &str, inner: Json| Json::Object(Map::from_iter([(TAG.to_owned(), word.into()), ("v".into(), inner)]));
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Number(_) => serde_json::from_str(&value.to_json()).unwrap_or_default(),
        Value::Text(text) => Json::String(text.to_string()),
        Value::Time(at) => tagged("time", at.0.into()),
        Value::Date(day) => tagged("date", day.0.into()),
        Value::Duration(d) => tagged("duration", serde_json::json!([d.months, d.days, d.micros])),
        Value::List(items) => Json::Array(items.iter().map(encode).collect()),
        Value::Object(object) => {
            // JSON objects forget the order of their keys, and an object of the user's may look like a tagged value
            if object.get(TAG).is_some() || !object.iter().is_sorted_by(|(a, _), (b, _)| a < b) {
                let fields = object.iter().flat_map(|(k, v)| [Json::String(k.to_string()), encode(v)]);
                tagged("object", fields.collect())
            } else {
                Json::Object(object.iter().map(|(k, v)| (k.to_string(), encode(v))).collect())
            }
        }
    }
}

/// The value that [`encode`] was given.
pub fn decode(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => {
            let digits = n.to_string();
            Number::parse(&digits).map_or_else(|| Value::text(digits), Value::Number)
        }
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::list(items.iter().map(decode).collect()),
        Json::Object(fields) => match (fields.get(TAG).and_then(Json::as_str), fields.get("v")) {
            (Some("time"), Some(v)) => Value::Time(Timestamp(v.as_i64().unwrap_or_default())),
            (Some("date"), Some(v)) => Value::Date(Date(v.as_i64().unwrap_or_default() as i32)),
            (Some("duration"), Some(v)) => {
                let part = |i: usize| v.get(i).and_then(Json::as_i64).unwrap_or_default();
                Value::Duration(Duration { months: part(0) as i32, days: part(1) as i32, micros: part(2) })
            }
            (Some("object"), Some(Json::Array(inner))) => {
                let fields = inner
                    .chunks_exact(2)
                    .map(|pair| (Arc::from(pair[0].as_str().unwrap_or_default()), decode(&pair[1])));
                Value::object(fields.collect())
            }
            _ => object(fields),
        },
    }
}

fn object(fields: &Map<String, Json>) -> Value {
    Value::object(fields.iter().map(|(k, v)| (Arc::from(k.as_str()), decode(v))).collect())
}

/// For `#[serde(with = "tagged")]`.
pub fn serialize<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    encode(value).serialize(serializer)
}

/// For `#[serde(with = "tagged")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Json::deserialize(deserializer).map(|json| decode(&json))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use crate::value::{Date, Duration, Number, Timestamp, Value};

    #[test]
    fn every_kind_of_value_comes_back() {
        let user = Value::object(vec![("$".into(), Value::text("time")), ("v".into(), Value::int(1))]);
        let unsorted = Value::object(vec![("b".into(), Value::int(1)), ("a".into(), user.clone())]);
        let values = Value::list(vec![
            Value::Null,
            Value::Bool(true),
            Value::Number(Number::parse("12345678901234567890.123").expect("a number")),
            Value::text("2026-01-01"),
            Value::Time(Timestamp(123_456)),
            Value::Date(Date(20_000)),
            Value::Duration(Duration::parse("1 month 3 days 4 hours").expect("a duration")),
            user,
            unsorted,
        ]);
        let text = encode(&values).to_string();
        let back = decode(&serde_json::from_str(&text).expect("JSON"));
        assert_eq!(format!("{back:?}"), format!("{values:?}"));
    }
}
