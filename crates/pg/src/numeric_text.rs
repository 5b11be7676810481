//! Numbers of the usual size as text, straight from how Postgres stores them.
//!
//! A row that is captured has an amount more often than not, and for each numeric_out costs a call, a copy of the
//! digits and a string. Numerics that are large, not a number or infinite have a header of another kind and are left to
//! numeric_out.

const KIND: u16 = 0xc000;
const SHORT: u16 = 0x8000;
const NEGATIVE: u16 = 0x2000;
const SCALE: u16 = 0x1f80;
const SCALE_SHIFT: u16 = 7;
const WEIGHT_SIGN: u16 = 0x0040;
const WEIGHT: u16 = 0x003f;
/// Decimal digits in one of the number's own.
const DECIMALS: usize = 4;

/// Appends the text of a numeric, given the bytes behind its varlena header. False, with nothing written, if it is not
/// stored in the short form.
pub fn write(out: &mut Vec<u8>, stored: &[u8]) -> bool {
    let mut words = stored.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]]));
    let Some(header) = words.next().filter(|header| header & KIND == SHORT) else { return false };
    let weight = i32::from(header & WEIGHT) - if header & WEIGHT_SIGN != 0 { i32::from(WEIGHT) + 1 } else { 0 };
    let scale = usize::from((header & SCALE) >> SCALE_SHIFT);
    let digits = &stored[2..];
    // The digit that stands for so many powers of 10000 below the first.
    let digit = |place: i32| match usize::try_from(place).ok().and_then(|place| digits.get(2 * place..2 * place + 2)) {
        Some(pair) => u16::from_ne_bytes([pair[0], pair[1]]),
        None => 0,
    };
    if header & NEGATIVE != 0 {
        out.push(b'-');
    }
    if weight < 0 {
        out.push(b'0');
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(digit(0)).as_bytes());
        (1..=weight).for_each(|place| out.extend_from_slice(&decimals(digit(place))));
    }
    if scale > 0 {
        out.push(b'.');
        let end = out.len() + scale;
        for place in 0..scale.div_ceil(DECIMALS) {
            out.extend_from_slice(&decimals(digit(weight + 1 + place as i32)));
        }
        out.truncate(end);
    }
    true
}

/// Four decimal digits, zeros in front.
fn decimals(digit: u16) -> [u8; DECIMALS] {
    [1000, 100, 10, 1].map(|power| b'0' + (digit / power % 10) as u8)
}

#[cfg(test)]
mod tests {
    use super::write;

    fn text(words: &[u16]) -> Option<String> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut out = Vec::new();
        write(&mut out, &bytes).then(|| String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn short_numbers_are_written_as_postgres_writes_them() {
        // header: the short form, sign, scale << 7, weight
        assert_eq!(text(&[0x8000]).as_deref(), Some("0"));
        assert_eq!(text(&[0x8000 | 2 << 7]).as_deref(), Some("0.00"));
        assert_eq!(text(&[0x8000, 250]).as_deref(), Some("250"));
        assert_eq!(text(&[0x8000 | 2 << 7, 250, 2500]).as_deref(), Some("250.25"));
        assert_eq!(text(&[0xa000 | 1 << 7 | 1, 1, 3, 5000]).as_deref(), Some("-10003.5"));
        assert_eq!(text(&[0x8000 | 1, 1]).as_deref(), Some("10000"));
        assert_eq!(text(&[0x8000 | 4 << 7 | 0x7f, 1]).as_deref(), Some("0.0001"));
        assert_eq!(text(&[0x8000 | 6 << 7 | 0x7e, 100]).as_deref(), Some("0.000001"));
        for other in [0xc000, 0xd000, 0xf000, 0x0000, 0x4000] {
            assert_eq!(text(&[other, 0, 1]), None);
        }
        assert_eq!(text(&[]), None);
    }
}
