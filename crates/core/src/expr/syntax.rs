//! Messages for a text that does not parse.

use super::error::{ExprError, ExprErrorKind};
use super::{functions, names};
use crate::suggest::nearest;
use crate::value::unescape_json;
use std::ops::Range;

/// Words that can stand where an operator is expected.
const OPERATOR_WORDS: [&str; 10] = ["and", "or", "not", "in", "like", "ilike", "between", "is", "becomes", "changed"];

/// `syntax error at or near "..."` at an offset, with a hint where one is likely to help.
pub fn unexpected(text: &str, at: usize) -> ExprError {
    let start = skip_space(text, at);
    let token = token_at(text, start);
    if token.is_empty() {
        let message = if text.trim().is_empty() { "empty expression" } else { "syntax error at end of input" };
        return ExprError::new(ExprErrorKind::Syntax, text.len()..text.len(), message);
    }
    let error = ExprError::new(
        ExprErrorKind::Syntax,
        start..start + token.len(),
        format!("syntax error at or near \"{}\"", visible(token)),
    );
    match hint(text, start, token) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn hint(text: &str, start: usize, token: &str) -> Option<String> {
    let before = text[..start].trim_end();
    let is_word = token.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    if is_word && !before.is_empty() {
        if let Some(word) = nearest(token, OPERATOR_WORDS) {
            return Some(format!("Did you mean \"{word}\"?"));
        }
        // "in 5 minuts": a misspelt unit follows a number
        if before.ends_with(|c: char| c.is_ascii_digit()) {
            let units = ["seconds", "minutes", "hours", "days", "weeks", "months", "years"];
            return nearest(token, units).map(|unit| format!("Did you mean \"{unit}\"?"));
        }
    }
    if !token.is_ascii() && token.chars().any(is_invisible) {
        return Some("Remove the invisible character; it was probably pasted in.".to_owned());
    }
    match token {
        "\u{2018}" | "\u{2019}" | "\u{201c}" | "\u{201d}" => Some("Use plain quotes: ' or \".".to_owned()),
        "=>" => Some("Did you mean \">=\"?".to_owned()),
        ":" if text[start..].starts_with("::") => {
            Some("There are no casts here; use number(x), text(x), time(x) or date(x).".to_owned())
        }
        "=" if before.ends_with('=') => Some("Did you mean \"=\"?".to_owned()),
        "=" | "<" | ">" | "!" | "+" if after_pipe(before) => {
            Some("A pipe applies to everything on its left; put it in parentheses: (x | f) = y.".to_owned())
        }
        _ if is_word => {
            // a misspelt operator may also have been taken for a name: "new.a adn new.b"
            let previous = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
            (names::is_root(previous) || functions::find(previous).is_some())
                .then(|| format!("Put an operator between \"{previous}\" and \"{token}\"."))
        }
        _ => None,
    }
}

/// Whether a pipe comes before, outside quotes; a rough look that only decides on a hint.
fn after_pipe(before: &str) -> bool {
    before.match_indices('|').any(|(at, _)| {
        let bytes = before.as_bytes();
        bytes.get(at + 1) != Some(&b'|') && (at == 0 || bytes[at - 1] != b'|')
    })
}

fn skip_space(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + (rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len())
}

/// The word, quoted text, number or sign at an offset; empty at the end.
fn token_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    let Some(first) = rest.chars().next() else { return "" };
    let length = if first.is_alphanumeric() || first == '_' {
        rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
    } else if first == '\'' || first == '"' {
        rest[1..].find(first).map_or(rest.len(), |i| i + 2)
    } else if rest.starts_with("=>") {
        2
    } else {
        first.len_utf8()
    };
    let mut length = length.min(60);
    while !rest.is_char_boundary(length) {
        length -= 1;
    }
    &rest[..length]
}

pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The token with invisible characters spelled out, so that a message never hides or reorders text.
pub fn visible(token: &str) -> String {
    token.chars().fold(String::new(), |mut out, c| {
        if is_invisible(c) {
            out.push_str(&format!("U+{:04X}", u32::from(c)));
        } else {
            out.push(c);
        }
        out
    })
}

/// Decodes a JSON string literal that starts at `at` in the whole text.
pub fn unquote_json(literal: &str, at: usize) -> Result<String, ExprError> {
    let inner = &literal[1..literal.len() - 1];
    refuse_nul(inner, at..at + literal.len())?;
    let mut out = String::with_capacity(inner.len());
    let mut from = 0;
    while let Some(offset) = inner[from..].find('\\') {
        out.push_str(&inner[from..from + offset]);
        let place = from + offset;
        match unescape_json(&inner[place..]) {
            Ok((c, length)) => {
                out.push(c);
                from = place + length;
            }
            Err(message) => {
                let start = at + 1 + place;
                return Err(ExprError::new(
                    ExprErrorKind::Syntax,
                    start..start + 2,
                    format!("invalid escape in a quoted string: {message}"),
                )
                .with_hint("Write \\\\ for a backslash, or use single quotes."));
            }
        }
    }
    out.push_str(&inner[from..]);
    Ok(out)
}

/// Postgres text cannot hold a NUL.
pub fn refuse_nul(text: &str, span: Range<usize>) -> Result<(), ExprError> {
    if text.contains('\0') {
        return Err(ExprError::new(ExprErrorKind::Syntax, span, "a text cannot hold the character NUL"));
    }
    Ok(())
}
