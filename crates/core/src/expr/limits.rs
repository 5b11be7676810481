//! Limits a text must respect before the parser sees it, and its unclosed quotes.
//!
//! The generated parser calls itself once per nesting level, so nesting is counted first, without recursion.

use super::error::{ExprError, ExprErrorKind};
use crate::value::Number;

/// Longest text of one expression, in bytes.
pub const MAX_TEXT: usize = 64 * 1024;
/// Most words, numbers, texts and signs in one expression; parsing takes about 2 microseconds each.
pub const MAX_TOKENS: usize = 5_000;
/// Deepest nesting of brackets and of `? :`.
pub const MAX_NESTING: usize = 32;

/// Most that the numbers of one expression may take to be read, in nanoseconds or so: `1e100000` is short to write.
const MAX_NUMBER_WORK: usize = 256 * 1024 * 1024;

/// Refuses texts that are too long or too deep, and quotes or comments without an end.
pub fn check(text: &str) -> Result<(), ExprError> {
    if text.len() > MAX_TEXT {
        return Err(too_complex(0, format!("It has {} bytes; the limit is {MAX_TEXT}.", text.len())));
    }
    let bytes = text.as_bytes();
    // the question marks that are open at each level of brackets
    let mut levels = vec![0_usize];
    let (mut at, mut nesting, mut tokens, mut numbers) = (0, 0_usize, 0_usize, 0_usize);
    while at < bytes.len() {
        let in_word = at > 0 && is_word(bytes[at]) && is_word(bytes[at - 1]);
        tokens += usize::from(!in_word && !bytes[at].is_ascii_whitespace());
        if !in_word && bytes[at].is_ascii_digit() {
            numbers = numbers.saturating_add(Number::work_to_parse(number_at(text, at)));
            if numbers > MAX_NUMBER_WORK {
                return Err(too_complex(at, "Its numbers have too many digits.".to_owned()));
            }
        }
        match bytes[at] {
            quote @ (b'\'' | b'"') => at = end_of_quote(text, at, quote)?,
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = text[at..].find('\n').map_or(bytes.len(), |i| at + i);
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => match text[at + 2..].find("*/") {
                Some(length) => at += length + 4,
                None => return Err(ExprError::new(ExprErrorKind::Syntax, at..at + 2, "unterminated /* comment")),
            },
            b'(' | b'[' | b'{' => {
                levels.push(0);
                nesting += 1;
                at += 1;
            }
            closing @ (b')' | b']' | b'}' | b',') => {
                // the levels that question marks opened end with the brackets or the list element around them
                nesting -= levels.last().copied().unwrap_or_default();
                if closing != b',' && levels.len() > 1 {
                    levels.pop();
                    nesting -= 1;
                } else if let Some(questions) = levels.last_mut() {
                    *questions = 0;
                }
                at += 1;
            }
            b'?' => {
                if let Some(questions) = levels.last_mut() {
                    *questions += 1;
                }
                nesting += 1;
                at += 1;
            }
            _ => at += 1,
        }
        if tokens > MAX_TOKENS {
            return Err(too_complex(
                at.min(bytes.len()) - 1,
                format!("It has more than {MAX_TOKENS} words and signs."),
            ));
        }
        if nesting > MAX_NESTING {
            return Err(too_complex(at.min(bytes.len()) - 1, format!("It nests more than {MAX_NESTING} levels.")));
        }
    }
    Ok(())
}

/// The number that begins at an offset, with its exponent.
fn number_at(text: &str, start: usize) -> &str {
    let bytes = text.as_bytes();
    let mut end = start;
    while let Some(b) = bytes.get(end) {
        let sign = end > start && matches!(b, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
        if !(b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E') || sign) {
            break;
        }
        end += 1;
    }
    &text[start..end]
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

fn too_complex(at: usize, detail: String) -> ExprError {
    ExprError::new(ExprErrorKind::TooComplex, at..at, "expression is too complex").with_detail(detail)
}

/// The offset after the closing quote of the string that opens at `start`.
pub fn end_of_quote(text: &str, start: usize, quote: u8) -> Result<usize, ExprError> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b if b == quote && quote == b'\'' && bytes.get(at + 1) == Some(&quote) => at += 2,
            b if b == quote => return Ok(at + 1),
            b'\\' if quote == b'"' => at += 2,
            _ => at += 1,
        }
    }
    Err(ExprError::new(ExprErrorKind::Syntax, start..text.len(), "unterminated quoted string"))
}
