//! Keeps the values of secrets out of recorded answers. A receiver that echoes its request, as many do in errors and
//! in tests, would otherwise show them to every role that may see deliveries.
//!
//! The mask is no guard against the receiver, which knows the value and could send it back in any disguise; the mask
//! takes out the value as it was sent and in the spellings that programs make of a text: JSON, URLs, HTML, base64,
//! hexadecimal.
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The text that replaces a value.
pub const MASKED: &str = "***";

/// Values of fewer characters are not looked for: so short a text is found everywhere.
pub const SHORTEST: usize = 4;
/// A part of a value, or a spelling that has lost its ends, is only looked for if it has so many characters.
const SHORTEST_PART: usize = 8;
/// Most bytes that one character takes: a pair of surrogates with a few backslashes before each.
const WIDEST: usize = 24;

/// Most backslashes before one character: each time that a text is escaped doubles them.
const MOST_BACKSLASHES: usize = 8;
/// Most characters that are compared. A text that takes more was made to take long, and its rest is not shown.
const MOST_COMPARED: usize = 500_000;

/// The values that are not to be shown.
#[derive(Clone, Default)]
pub struct Mask {
    needles: Vec<Needle>,
}

#[derive(Clone, PartialEq, Eq)]
enum Needle {
    /// A text, in any spelling of its characters.
    Text(Vec<char>),
    /// Bytes that are no UTF-8, as they are.
    Bytes(Vec<u8>),
    /// Bytes as hexadecimal digits.
    Hex(Vec<u8>),
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask")
    }
}

impl Mask {
    /// Masks the values of these secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Mask {
        let mut mask = Mask::default();
        for secret in secrets {
            mask.add(secret);
        }
        mask
    }

    fn add(&mut self, secret: &[u8]) {
        self.value(secret, SHORTEST);
        let Ok(text) = std::str::from_utf8(secret) else { return };
        if let Some(key) = text.strip_prefix("whsec_") {
            self.value(key.as_bytes(), SHORTEST_PART);
            if let Ok(bytes) = STANDARD.decode(key).or_else(|_| STANDARD_NO_PAD.decode(key)) {
                self.value(&bytes, SHORTEST_PART);
            }
        }
        // A scheme and its credentials, as in "Bearer abc": a receiver may show the credentials alone.
        let mut words = text.split_whitespace();
        let scheme = words.next().unwrap_or_default();
        for word in words {
            self.value(word.as_bytes(), SHORTEST_PART);
            if scheme.eq_ignore_ascii_case("basic")
                && let Ok(pair) = STANDARD.decode(word).or_else(|_| STANDARD_NO_PAD.decode(word))
            {
                self.value(&pair, SHORTEST);
                let password = pair.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default();
                self.value(password, SHORTEST);
            }
        }
    }

    /// Adds a value, with its spellings in base64 and hexadecimal.
    fn value(&mut self, value: &[u8], shortest: usize) {
        match std::str::from_utf8(value) {
            // a run of backslashes is looked for as one, because each way of escaping doubles it
            Ok(text) if text.chars().count() >= shortest => {
                let mut chars: Vec<char> = text.chars().collect();
                chars.dedup_by(|one, other| *one == '\\' && *other == '\\');
                self.needle(Needle::Text(chars));
            }
            Ok(_) => return,
            Err(_) if value.len() >= shortest => self.needle(Needle::Bytes(value.to_vec())),
            Err(_) => return,
        }
        if value.len() * 2 >= SHORTEST_PART {
            self.needle(Needle::Hex(value.to_vec()));
        }
        // A text around the value may be encoded as a whole, so the value may begin at any of three places in a group
        // of base64. The characters at its ends, which depend on its neighbours as well, are left out.
        for before in 0..3 {
            let padded = [&[0; 3][..before], value].concat();
            let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let text = engine.encode(&padded);
                if let Some(part) = text.get(from..to).filter(|part| part.len() >= SHORTEST_PART) {
                    self.needle(Needle::Text(part.chars().collect()));
                }
            }
        }
    }

    fn needle(&mut self, needle: Needle) {
        if !self.needles.contains(&needle) {
            self.needles.push(needle);
        }
    }

    /// How many bytes beyond a cut must be known, so that no value is cut in two and not found.
    pub fn margin(&self) -> usize {
        let longest = self.needles.iter().map(|needle| match needle {
            Needle::Text(chars) => chars.len() * WIDEST,
            Needle::Bytes(bytes) => bytes.len(),
            Needle::Hex(bytes) => bytes.len() * 2,
        });
        longest.max().unwrap_or(0)
    }

    /// The text with every value taken out, also one that the end of the text cuts off.
    pub fn apply(&self, text: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(text.len());
        let (mut at, mut compared) = (0, 0);
        while at < text.len() {
            match self.needles.iter().filter_map(|needle| needle.end(text, at, &mut compared)).max() {
                _ if compared > MOST_COMPARED => {
                    shown.extend_from_slice(MASKED.as_bytes());
                    break;
                }
                Some(end) => {
                    shown.extend_from_slice(MASKED.as_bytes());
                    at = end;
                }
                None => {
                    shown.push(text[at]);
                    at += 1;
                }
            }
        }
        shown
    }

    /// The same for the message of an error.
    pub fn apply_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.apply(text.as_bytes())).into_owned()
    }
}

impl Needle {
    /// Where the needle ends, if it begins at `at`.
    fn end(&self, text: &[u8], at: usize, compared: &mut usize) -> Option<usize> {
        match self {
            Needle::Text(chars) => text_end(chars, text, at, compared),
            Needle::Bytes(bytes) => text[at..].starts_with(bytes).then(|| at + bytes.len()),
            Needle::Hex(bytes) => {
                let digits = text.get(at..at + bytes.len() * 2)?;
                let same = digits.chunks(2).zip(bytes).all(|(digits, byte)| hex(digits) == Some(u32::from(*byte)));
                same.then(|| at + digits.len())
            }
        }
    }
}

fn text_end(chars: &[char], text: &[u8], at: usize, compared: &mut usize) -> Option<usize> {
    let first = *chars.first()?;
    let begins = text[at] == first.encode_utf8(&mut [0; 4]).as_bytes()[0] || b"%\\&+".contains(&text[at]);
    if !begins {
        return None;
    }
    // A character can be spelled in more than one way at the same place ("%25" is "%" or itself): all are followed.
    let (mut ends, mut next) = (vec![at], Vec::new());
    for (matched, wanted) in chars.iter().enumerate() {
        *compared += ends.len();
        for end in &ends {
            spellings(text, *end, *wanted, &mut next);
        }
        // A run of backslashes is one character of the value, however each of them is spelled.
        let mut looked_at = 0;
        while *wanted == '\\' && looked_at < next.len().min(MOST_BACKSLASHES) {
            spellings(text, next[looked_at], *wanted, &mut next);
            looked_at += 1;
            let mut known = std::collections::HashSet::new();
            next.retain(|end| known.insert(*end));
        }
        next.sort_unstable();
        next.dedup();
        if next.is_empty() {
            // The text ends in the middle of the value.
            let cut = |end: &usize| {
                let rest = &text[*end..];
                rest.is_empty() || (rest.len() < WIDEST && b"%\\&".contains(&rest[0]) && !rest.contains(&b' '))
            };
            return (matched >= SHORTEST_PART && ends.iter().any(cut)).then_some(text.len());
        }
        std::mem::swap(&mut ends, &mut next);
        next.clear();
    }
    ends.last().copied()
}

/// Where the wanted character ends that begins at `at`, for each way in which it can be spelled.
fn spellings(text: &[u8], at: usize, wanted: char, ends: &mut Vec<usize>) {
    let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) else { return };
    let mut buffer = [0; 4];
    let bytes = wanted.encode_utf8(&mut buffer).as_bytes();
    if wanted == '\\' {
        // the last backslash of a run may belong to the escape that comes next
        let run = backslashes(rest);
        ends.extend((1..=run).map(|length| at + length));
    } else if rest.starts_with(bytes) {
        ends.push(at + bytes.len());
    }
    match rest[0] {
        b'+' if wanted == ' ' => ends.push(at + 1),
        b'%' => {
            let percents = rest.chunks(3).take(bytes.len());
            let spelled = |(percent, byte): (&[u8], &u8)| {
                percent.len() == 3 && percent[0] == b'%' && hex(&percent[1..]) == Some(u32::from(*byte))
            };
            if rest.len() >= bytes.len() * 3 && percents.zip(bytes).all(spelled) {
                ends.push(at + bytes.len() * 3);
            }
        }
        b'\\' => ends.extend(escaped(rest, wanted).map(|length| at + length)),
        b'&' => ends.extend(entity(rest, wanted).map(|length| at + length)),
        _ => {}
    }
}

fn backslashes(rest: &[u8]) -> usize {
    rest.iter().take(MOST_BACKSLASHES).take_while(|byte| **byte == b'\\').count()
}

/// The length of an escape as in JSON, whose backslashes may have been escaped again.
fn escaped(rest: &[u8], wanted: char) -> Option<usize> {
    let run = backslashes(rest);
    let unit = |at: usize| {
        let digits = rest.get(at..at + 5)?;
        (digits[0] == b'u').then(|| hex(&digits[1..])).flatten()
    };
    match *rest.get(run)? {
        b'u' => {
            let first = unit(run)?;
            if first == u32::from(wanted) {
                return Some(run + 5);
            }
            let second_run = backslashes(&rest[run + 5..]);
            let second = unit(run + 5 + second_run).filter(|_| second_run > 0)?;
            let units = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
            let pair = char::decode_utf16(units).next()?.ok()?;
            (pair == wanted).then_some(run + 5 + second_run + 5)
        }
        b'n' if wanted == '\n' => Some(run + 1),
        b't' if wanted == '\t' => Some(run + 1),
        b'r' if wanted == '\r' => Some(run + 1),
        byte @ (b'"' | b'/' | b'\'') if wanted == char::from(byte) => Some(run + 1),
        _ => None,
    }
}

/// The length of an entity of HTML.
fn entity(rest: &[u8], wanted: char) -> Option<usize> {
    let end = rest.iter().take(WIDEST).position(|byte| *byte == b';')?;
    let name = std::str::from_utf8(&rest[1..end]).ok()?;
    let meant = match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let hexadecimal = number.strip_prefix(['x', 'X']).map(|digits| u32::from_str_radix(digits, 16));
            char::from_u32(hexadecimal.unwrap_or_else(|| number.parse()).ok()?)
        }
    };
    (meant == Some(wanted)).then_some(end + 1)
}

fn hex(digits: &[u8]) -> Option<u32> {
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    all.then(|| std::str::from_utf8(digits).ok().and_then(|text| u32::from_str_radix(text, 16).ok())).flatten()
}
