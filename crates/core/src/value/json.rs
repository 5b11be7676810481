//! Reading and writing JSON without losing a digit.
//!
//! Every captured row passes through here once, so the reader goes over bytes and allocates only the values that it
//! keeps.

use super::object::Shape;
use super::shapes::{self, Shapes};
use super::{Number, Object, Value};
use std::fmt::Write;
use std::sync::Arc;

/// Postgres itself allows more, but no application nests rows this deep and our stack is shared with the server.
const MAX_DEPTH: usize = 256;
/// Most that the numbers of a document may take to be read, in nanoseconds or so: some of the longest that `numeric`
/// holds, or very many of a thousand digits. `1e100000` is short to write and long to work with.
const MAX_NUMBER_WORK: usize = 256 * 1024 * 1024;

/// Most lists and objects inside each other in a value that an event carries. Well below `MAX_DEPTH` and the 127 levels
/// of serde_json, because events, results and the state of a run put values into further lists and objects, and all of
/// it must be readable.
pub const MAX_LEVELS: usize = 100;

/// How many lists and objects stand inside each other in a JSON text, without reading it: 0 for `1`, 2 for `[[1]]`.
pub fn levels(text: &[u8]) -> usize {
    let (mut at, mut level, mut most) = (0, 0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => match after_string(text, at) {
                Some(next) => {
                    at = next;
                    continue;
                }
                None => break,
            },
            b'{' | b'[' => {
                level += 1;
                most = most.max(level);
            }
            b'}' | b']' => level = level.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    most
}

/// Why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Byte offset of the mistake.
    pub at: usize,
    pub message: &'static str,
    /// The text may be JSON, but takes too much work to read.
    pub too_costly: bool,
}

pub fn parse(text: &str) -> Result<Value, JsonError> {
    shapes::with_recent(|shapes| {
        let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, work: 0, shapes };
        reader.skip_space();
        let value = reader.value(0)?;
        reader.skip_space();
        if reader.at < reader.bytes.len() {
            return reader.fail("text after the end of the document");
        }
        Ok(value)
    })
}

/// The result of looking for one member of an object.
pub enum Member {
    Found(Value),
    Missing,
    /// The text has to be read properly to know.
    Unclear,
}

/// Reads one member of the object that a text holds and walks over the members before it. The rest of the text is not
/// looked at, so a text that is no JSON may have members.
pub fn member(text: &str, name: &str) -> Member {
    let bytes = text.as_bytes();
    let mut at = after_space(bytes, 0);
    if bytes.get(at) != Some(&b'{') {
        return Member::Missing;
    }
    at = after_space(bytes, at + 1);
    while bytes.get(at) == Some(&b'"') {
        let Some(end) = after_string(bytes, at) else { return Member::Unclear };
        let key = &bytes[at + 1..end - 1];
        // a key with an escape in it could be the wanted one
        if key.contains(&b'\\') {
            return Member::Unclear;
        }
        at = after_space(bytes, end);
        if bytes.get(at) != Some(&b':') {
            return Member::Unclear;
        }
        at = after_space(bytes, at + 1);
        if key == name.as_bytes() {
            return shapes::with_recent(|shapes| {
                let mut reader = Reader { text, bytes, at, work: 0, shapes };
                reader.value(1).map_or(Member::Unclear, Member::Found)
            });
        }
        at = match after_value(bytes, at) {
            Some(next) if bytes.get(next) == Some(&b',') => after_space(bytes, next + 1),
            Some(next) if bytes.get(next) == Some(&b'}') => return Member::Missing,
            _ => return Member::Unclear,
        };
    }
    if bytes.get(at) == Some(&b'}') { Member::Missing } else { Member::Unclear }
}

#[inline]
fn after_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The offset behind the string that opens here.
#[inline]
fn after_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 1,
            _ => {}
        }
    }
}

/// The offset of the `,` or `}` behind the value that begins here.
fn after_value(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = after_string(bytes, at)?;
                continue;
            }
            b',' if depth == 0 => return Some(at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Some(at),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The work that its numbers have taken so far.
    work: usize,
    shapes: &'a mut Shapes,
}

impl Reader<'_> {
    fn fail<T>(&self, message: &'static str) -> Result<T, JsonError> {
        Err(JsonError { at: self.at, message, too_costly: false })
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        if depth > MAX_DEPTH {
            return self.fail("nested too deeply");
        }
        match self.bytes.get(self.at) {
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => self.fail("expected a value"),
            None => self.fail("unexpected end"),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            self.fail("expected a value")
        }
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        self.work = self.work.saturating_add(Number::work_to_parse(digits));
        if self.work > MAX_NUMBER_WORK {
            let message = "numbers have too many digits";
            return Err(JsonError { at: start, message, too_costly: true });
        }
        let unsigned = digits.strip_prefix('-').unwrap_or(digits).as_bytes();
        let starts_well = match unsigned {
            [b'0', b'0'..=b'9', ..] => false,
            [b'0'..=b'9', ..] => !digits.ends_with('.') && !digits.contains(".e") && !digits.contains(".E"),
            _ => false,
        };
        match Number::parse(digits) {
            Some(number) if starts_well => Ok(Value::Number(number)),
            _ => {
                self.at = start;
                self.fail(if starts_well { "number out of range" } else { "malformed number" })
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b']') {
            self.at += 1;
            return Ok(Value::list(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::list(items));
                }
                _ => return self.fail("expected , or ]"),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.at += 1;
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b'}') {
            self.at += 1;
            return Ok(Value::Object(Arc::new(Object::default())));
        }
        let mut values: Vec<Value> = Vec::new();
        // as long as the keys are those of a shape seen before, only values are made
        let mut shape: Option<Arc<Shape>> = None;
        let mut keys: Vec<Arc<str>> = Vec::new();
        loop {
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return self.fail("expected a key in double quotes");
            }
            self.next_key(values.len(), &mut shape, &mut keys)?;
            if values.is_empty() {
                values.reserve_exact(shape.as_ref().map_or(4, |shape| shape.keys().len()));
            }
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b':') {
                return self.fail("expected :");
            }
            self.at += 1;
            self.skip_space();
            values.push(self.value(depth + 1)?);
            self.skip_space();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(self.finished(shape, keys, values));
                }
                _ => return self.fail("expected , or }"),
            }
        }
    }

    /// Reads the key at a position: the shape goes on, another one fits, or the keys are collected from here on.
    #[inline]
    fn next_key(
        &mut self,
        position: usize,
        shape: &mut Option<Arc<Shape>>,
        keys: &mut Vec<Arc<str>>,
    ) -> Result<(), JsonError> {
        if let Some(expected) = shape.as_ref().and_then(|shape| shape.keys().get(position)) {
            let end = self.at + 1 + expected.len();
            if self.bytes.get(self.at + 1..end) == Some(expected.as_bytes()) && self.bytes.get(end) == Some(&b'"') {
                self.at = end + 1;
                return Ok(());
            }
        }
        let key = self.string()?;
        if position == 0 || shape.is_some() {
            let before = shape.as_ref().map_or(&[][..], |shape| &shape.keys()[..position]);
            if let Some(other) = self.shapes.predict(before, &key) {
                *shape = Some(other);
                return Ok(());
            }
            *keys = before.to_vec();
            *shape = None;
        }
        keys.push(key);
        Ok(())
    }

    fn finished(&mut self, shape: Option<Arc<Shape>>, mut keys: Vec<Arc<str>>, values: Vec<Value>) -> Value {
        match shape {
            Some(shape) if shape.keys().len() == values.len() => {
                return Value::Object(Arc::new(Object::with_shape(shape, values)));
            }
            // the document ends where the shape goes on
            Some(shape) => keys = shape.keys()[..values.len()].to_vec(),
            None => {}
        }
        let object = Object::new(keys.into_iter().zip(values).collect());
        self.shapes.keep(object.shape());
        Value::Object(Arc::new(object))
    }

    /// At an opening quote; leaves the closing one behind.
    fn string(&mut self) -> Result<Arc<str>, JsonError> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    let text = Arc::from(&self.text[start..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => break,
                Some(0..=0x1f) => return self.fail("control character in a string"),
                Some(_) => self.at += 1,
                None => return self.fail("string without an end"),
            }
        }
        let mut out = String::from(&self.text[start..self.at]);
        loop {
            let run = self.at;
            while !matches!(self.bytes.get(self.at), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            out.push_str(&self.text[run..self.at]);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Arc::from(out));
                }
                Some(b'\\') => match unescape(&self.text[self.at..]) {
                    Ok((c, length)) => {
                        out.push(c);
                        self.at += length;
                    }
                    Err(message) => return self.fail(message),
                },
                Some(_) => return self.fail("control character in a string"),
                None => return self.fail("string without an end"),
            }
        }
    }
}

/// Decodes one JSON escape at the start of `text`: the character and how many bytes it took.
pub fn unescape(text: &str) -> Result<(char, usize), &'static str> {
    let c = match text.as_bytes().get(1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let high = hex4(text, 2)?;
            if !(0xD800..0xE000).contains(&high) {
                let c = char::from_u32(high).ok_or("invalid escape")?;
                return if c == '\0' { Err("a text cannot hold \\u0000") } else { Ok((c, 6)) };
            }
            if text.get(6..8) != Some("\\u") || high >= 0xDC00 {
                return Err("lone surrogate");
            }
            let low = hex4(text, 8)?;
            if !(0xDC00..0xE000).contains(&low) {
                return Err("lone surrogate");
            }
            let c = char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)).ok_or("lone surrogate")?;
            return Ok((c, 12));
        }
        _ => return Err("invalid escape"),
    };
    Ok((c, 2))
}

fn hex4(text: &str, at: usize) -> Result<u32, &'static str> {
    let digits = text.get(at..at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())).ok_or("invalid escape")?;
    u32::from_str_radix(digits, 16).map_err(|_| "invalid escape")
}

pub fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        // a String never refuses a write
        Value::Number(n) => _ = write!(out, "{n}"),
        Value::Text(t) => write_string(t, out),
        Value::Time(t) => _ = write!(out, "\"{t}\""),
        Value::Date(d) => _ = write!(out, "\"{d}\""),
        Value::Duration(d) => _ = write!(out, "\"{d}\""),
        Value::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (i, (key, item)) in object.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_string(key, out);
                out.push_str(": ");
                write(item, out);
            }
            out.push('}');
        }
    }
}

/// Writes a JSON string literal.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut clean = 0;
    for (at, b) in text.bytes().enumerate() {
        let escape = match b {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => {
                out.push_str(&text[clean..at]);
                _ = write!(out, "\\u{b:04x}");
                clean = at + 1;
                continue;
            }
            _ => continue,
        };
        out.push_str(&text[clean..at]);
        out.push_str(escape);
        clean = at + 1;
    }
    out.push_str(&text[clean..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::{MAX_DEPTH, MAX_LEVELS, levels};

    #[test]
    fn levels_are_counted_outside_of_strings() {
        for (text, expected) in [
            ("1", 0),
            ("\"[[{\"", 0),
            ("[]", 1),
            ("[[1], [[2]]]", 3),
            (r#"{"a[": "\"[", "b": {"c\\": []}}"#, 3),
            ("", 0),
            ("\"unfinished [", 0),
        ] {
            assert_eq!(levels(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(levels(format!("{}{}", "[".repeat(300), "]".repeat(300)).as_bytes()), 300);
    }

    #[test]
    fn what_an_event_may_carry_can_be_read_with_much_around_it() {
        let deepest = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Value::from_json(&deepest(MAX_LEVELS + 100)).is_ok());
        assert!(Value::from_json(&deepest(MAX_DEPTH + 1)).is_ok());
        assert!(Value::from_json(&deepest(MAX_DEPTH + 2)).is_err());
    }

    #[test]
    fn a_key_seen_before_is_not_mistaken_for_the_beginning_of_another() {
        for text in
            [r#"{"x\\": 1, "b": 2}"#, r#"{"x\"y": 1, "b": 2}"#, r#"{"a": 1, "x\\": 1}"#, r#"{"a": 1, "x\"y": 1}"#]
        {
            assert_eq!(Value::from_json(text).map(|value| value.to_json()).ok().as_deref(), Some(text));
        }
    }
}
