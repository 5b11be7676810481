//! The name under which an entity stands in the wake-index.
//!
//! Equal keys may be spelled in several ways by the events of their rows: `1.5` and `1.50` of a numeric key, `ab` and
//! `ab   ` of a char(5). Waits and events both go through [`wake_key`], so spellings of equal keys meet. Different keys
//! may meet as well (the texts `1.5` and `1.50`): such a wake looks at the wait's condition once in vain, and is
//! harmless.
use std::borrow::Cow;

/// The name of an entity in the wake-index: its id without trailing blanks and without the zeros that end a fraction;
/// of a composite key each part of its JSON list.
pub fn wake_key(id: &str) -> Cow<'_, str> {
    // Most ids are integers, uuids and short texts, which have neither a point nor a blank, and are not minus zero.
    if !id.contains(['.', ' ']) && !id.contains("-0") {
        return Cow::Borrowed(id);
    }
    let id = id.trim_end_matches(' ');
    if id.starts_with('[') && id.ends_with(']') { Cow::Owned(list(id)) } else { shortest_number(id) }
}

/// A number without the zeros that end its fraction; any other text as it is.
fn shortest_number(text: &str) -> Cow<'_, str> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let shortest = match unsigned.split_once('.') {
        Some((whole, fraction)) if digits(whole) && digits(fraction) => {
            text.trim_end_matches('0').trim_end_matches('.')
        }
        _ => text,
    };
    Cow::Borrowed(if shortest == "-0" { "0" } else { shortest })
}

/// The parts of a JSON list, each shortened; a text among them loses only its trailing blanks.
fn list(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    let mut rest = id;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => text_length(rest),
            '-' | '0'..='9' => {
                let is_number = |c: char| matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9');
                rest.find(|c| !is_number(c)).unwrap_or(rest.len())
            }
            other => other.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        match part.strip_prefix('"').and_then(|inside| inside.strip_suffix('"')) {
            Some(inside) => {
                out.push('"');
                out.push_str(inside.trim_end_matches(' '));
                out.push('"');
            }
            None => out.push_str(&shortest_number(part)),
        }
        rest = after;
    }
    out
}

/// Bytes of the JSON text at the beginning of `text`, its quotes included; all of it if its end is missing.
fn text_length(text: &str) -> usize {
    let mut escaped = false;
    for (i, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return i + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::wake_key;
    use proptest::prelude::*;

    #[test]
    fn spellings_of_equal_keys_meet() {
        for (one, other) in [
            ("1.5", "1.50"),
            ("1", "1.000"),
            ("0", "-0"),
            ("-2.5", "-2.500"),
            ("ab", "ab   "),
            ("", "   "),
            ("[1.5,\"x\"]", "[1.50,\"x   \"]"),
            ("[0,true,null]", "[0.0,true,null]"),
            ("[-0,\"a\\\" \",1]", "[0,\"a\\\"\",1.0]"),
        ] {
            assert_eq!(wake_key(one), wake_key(other), "{one} and {other}");
        }
    }

    #[test]
    fn keys_that_differ_stay_apart() {
        for (one, other) in [
            ("1.5", "1.05"),
            ("10", "1"),
            ("100", "1.00"),
            ("1.2.30", "1.2.3"),
            ("10.0.0.10", "10.0.0.1"),
            (" ab", "ab"),
            ("[1,\"10\"]", "[1,\"1\"]"),
            ("[10,1]", "[1,1]"),
            ("[1,\"1.50\"]", "[1,\"1.5\"]"),
            ("2024-01-01T00:00:00.5+00:00", "2024-01-01T00:00:00.05+00:00"),
        ] {
            assert_ne!(wake_key(one), wake_key(other), "{one} and {other}");
        }
    }

    #[test]
    fn what_is_no_list_of_json_is_taken_as_it_stands() {
        for id in ["[", "[]", "[\"]", "[\"a\\]", "[a b]", "[1.5", "[é ü]"] {
            assert!(wake_key(id).len() <= id.len(), "{id}");
        }
    }

    proptest! {
        #[test]
        fn a_name_in_the_index_names_itself(id in "\\PC{0,24}") {
            let key = wake_key(&id).into_owned();
            prop_assert_eq!(wake_key(&key).into_owned(), key.clone());
        }

        #[test]
        fn numbers_meet_whatever_their_scale(whole in any::<i64>(), fraction in "[0-9]{0,6}", zeros in 0usize..6) {
            let one = if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") };
            let other = match (fraction.is_empty(), zeros) {
                (_, 0) => one.clone(),
                (true, _) => format!("{one}.{}", "0".repeat(zeros)),
                (false, _) => format!("{one}{}", "0".repeat(zeros)),
            };
            prop_assert_eq!(wake_key(&one), wake_key(&other));
            let (in_list, in_other) = (format!("[{one},\"a\"]"), format!("[{other},\"a \"]"));
            prop_assert_eq!(wake_key(&in_list).into_owned(), wake_key(&in_other).into_owned());
        }
    }
}
