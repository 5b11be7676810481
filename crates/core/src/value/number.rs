//! Exact decimals with the range of Postgres `numeric`.
//!
//! Nearly every number in a row fits in 64 bits once its decimal point is set aside, so that case costs no
//! allocation; the rest is a big integer with a scale. Nothing here rounds except division, which keeps as many
//! digits as Postgres would.

use num_bigint::{BigInt, Sign};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Digits before the point that `numeric` can hold.
const MAX_WHOLE_DIGITS: i64 = 131_072;
/// Digits after the point that `numeric` can hold.
const MAX_SCALE: i64 = 16_383;
/// `10^18` is the largest power of ten that both fits `i64` and leaves room to align two scales in `i128`.
const SMALL_SCALE: u32 = 18;

/// The powers of ten up to `10^18`.
const POWERS: [i64; SMALL_SCALE as usize + 1] = {
    let mut powers = [1; SMALL_SCALE as usize + 1];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// An exact decimal number.
#[derive(Clone, Debug)]
pub struct Number(Form);

#[derive(Clone, Debug)]
enum Form {
    /// `mantissa / 10^scale`, scale at most 18.
    Small(i64, u32),
    Big(Arc<(BigInt, u32)>),
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number(Form::Small(value, 0))
    }
}

impl Number {
    /// Reads digits as JSON and Postgres write them (`12`, `-0.50`, `1e3`); `None` if it is no number or out of range.
    pub fn parse(text: &str) -> Option<Number> {
        let bytes = text.as_bytes();
        let (negative, mut at) = match bytes.first()? {
            b'-' => (true, 1),
            b'+' => (false, 1),
            _ => (false, 0),
        };
        let start = at;
        let (mut small, mut digits, mut scale) = (0_u64, 0_usize, 0_i64);
        let (mut point, mut fits) = (false, true);
        while let Some(&b) = bytes.get(at) {
            match b {
                b'0'..=b'9' => {
                    digits += 1;
                    scale += i64::from(point);
                    match small.checked_mul(10).and_then(|s| s.checked_add(u64::from(b - b'0'))) {
                        Some(next) => small = next,
                        None => fits = false,
                    }
                }
                b'.' if !point => point = true,
                _ => break,
            }
            at += 1;
        }
        if digits == 0 {
            return None;
        }
        let mantissa_end = at;
        let exponent = match bytes.get(at) {
            None => 0,
            Some(b'e' | b'E') => parse_exponent(&bytes[at + 1..])?,
            Some(_) => return None,
        };
        if exponent == 0 && fits && small <= i64::MAX as u64 && scale <= i64::from(SMALL_SCALE) {
            let value = small as i64;
            return Some(Number(Form::Small(if negative { -value } else { value }, scale as u32)));
        }
        // reading digits takes time that grows with their square, so texts out of range are refused first
        if scale > MAX_SCALE || digits as i64 > MAX_WHOLE_DIGITS + MAX_SCALE {
            return None;
        }
        let plain: Vec<u8> = bytes[start..mantissa_end].iter().copied().filter(|b| *b != b'.').collect();
        let magnitude = BigInt::parse_bytes(&plain, 10)?;
        Number::from_parts(if negative { -magnitude } else { magnitude }, scale - exponent, digits as i64)
    }

    /// Builds `mantissa / 10^scale`; a negative scale multiplies. `None` when out of `numeric`'s range.
    fn from_parts(mantissa: BigInt, scale: i64, digits: i64) -> Option<Number> {
        if mantissa.sign() == Sign::NoSign {
            return (scale <= MAX_SCALE).then(|| Number::from(0));
        }
        if scale > MAX_SCALE || digits - scale > MAX_WHOLE_DIGITS + MAX_SCALE {
            return None;
        }
        let (mantissa, scale) =
            if scale < 0 { (mantissa * pow10(scale.unsigned_abs() as u32), 0) } else { (mantissa, scale as u32) };
        Number::normal(mantissa, scale)
    }

    /// Picks the small form where it fits and refuses numbers that `numeric` could not hold.
    fn normal(mantissa: BigInt, scale: u32) -> Option<Number> {
        if scale <= SMALL_SCALE
            && let Ok(small) = i64::try_from(&mantissa)
        {
            return Some(Number(Form::Small(small, scale)));
        }
        if i64::from(scale) > MAX_SCALE || decimal_digits(&mantissa) - i64::from(scale) > MAX_WHOLE_DIGITS {
            return None;
        }
        Some(Number(Form::Big(Arc::new((mantissa, scale)))))
    }

    fn parts(&self) -> (BigInt, u32) {
        match &self.0 {
            Form::Small(mantissa, scale) => (BigInt::from(*mantissa), *scale),
            Form::Big(big) => (big.0.clone(), big.1),
        }
    }

    /// Both mantissas at the larger of the two scales.
    fn aligned(&self, other: &Number) -> (BigInt, BigInt, u32) {
        let ((a, sa), (b, sb)) = (self.parts(), other.parts());
        match sa.cmp(&sb) {
            Ordering::Less => (a * pow10(sb - sa), b, sb),
            Ordering::Greater => (a, b * pow10(sa - sb), sa),
            Ordering::Equal => (a, b, sa),
        }
    }

    /// Sum; `None` when out of range.
    pub fn add(&self, other: &Number) -> Option<Number> {
        if let (Form::Small(a, sa), Form::Small(b, sb)) = (&self.0, &other.0)
            && sa == sb
            && let Some(sum) = a.checked_add(*b)
        {
            return Some(Number(Form::Small(sum, *sa)));
        }
        let (a, b, scale) = self.aligned(other);
        Number::normal(a + b, scale)
    }

    /// Difference; `None` when out of range.
    pub fn sub(&self, other: &Number) -> Option<Number> {
        self.add(&other.neg())
    }

    /// Product; `None` when out of range.
    pub fn mul(&self, other: &Number) -> Option<Number> {
        if let (Form::Small(a, sa), Form::Small(b, sb)) = (&self.0, &other.0)
            && sa + sb <= SMALL_SCALE
            && let Some(product) = a.checked_mul(*b)
        {
            return Some(Number(Form::Small(product, sa + sb)));
        }
        let ((a, sa), (b, sb)) = (self.parts(), other.parts());
        let (product, scale) = (a * b, sa + sb);
        if i64::from(scale) > MAX_SCALE {
            return Number::normal(divide_rounded(&product, &pow10(scale - MAX_SCALE as u32)), MAX_SCALE as u32);
        }
        Number::normal(product, scale)
    }

    /// Quotient with the digits Postgres would keep, without trailing zeros; `None` on division by zero or overflow.
    pub fn div(&self, other: &Number) -> Option<Number> {
        if other.is_zero() {
            return None;
        }
        let ((a, sa), (b, sb)) = (self.parts(), other.parts());
        let scale = division_scale(&a, sa, &b, sb);
        // a/10^sa / (b/10^sb) = a*10^(sb - sa + scale) / b, all at `scale`
        let shift = i64::from(sb) - i64::from(sa) + i64::from(scale);
        let quotient = if shift >= 0 {
            divide_rounded(&(a * pow10(shift as u32)), &b)
        } else {
            divide_rounded(&a, &(b * pow10(shift.unsigned_abs() as u32)))
        };
        Some(Number::normal(quotient, scale)?.trimmed())
    }

    /// Remainder with the sign of the dividend; `None` on division by zero.
    pub fn rem(&self, other: &Number) -> Option<Number> {
        if other.is_zero() {
            return None;
        }
        if let (Form::Small(a, 0), Form::Small(b, 0)) = (&self.0, &other.0) {
            return Some(Number::from(a.wrapping_rem(*b)));
        }
        let (a, b, scale) = self.aligned(other);
        Number::normal(a % b, scale)
    }

    /// The negated number.
    pub fn neg(&self) -> Number {
        match &self.0 {
            Form::Small(mantissa, scale) if *mantissa != i64::MIN => Number(Form::Small(-mantissa, *scale)),
            _ => {
                let (mantissa, scale) = self.parts();
                Number(Form::Big(Arc::new((-mantissa, scale))))
            }
        }
    }

    /// The distance from zero.
    pub fn abs(&self) -> Number {
        if self.is_negative() { self.neg() } else { self.clone() }
    }

    /// Rounds half away from zero to `places` digits after the point (negative: before it).
    pub fn round(&self, places: i32) -> Option<Number> {
        self.rescale(places, divide_rounded)
    }

    /// The largest whole number not above this one.
    pub fn floor(&self) -> Option<Number> {
        self.rescale(0, |value, unit| {
            let quotient = value / unit;
            if value.sign() == Sign::Minus && &quotient * unit != *value { quotient - 1 } else { quotient }
        })
    }

    /// The smallest whole number not below this one.
    pub fn ceil(&self) -> Option<Number> {
        Some(self.neg().floor()?.neg())
    }

    fn rescale(&self, places: i32, divide: impl Fn(&BigInt, &BigInt) -> BigInt) -> Option<Number> {
        let (mantissa, scale) = self.parts();
        let drop = i64::from(scale) - i64::from(places);
        if drop <= 0 {
            return Some(self.clone());
        }
        if drop > MAX_WHOLE_DIGITS + MAX_SCALE {
            return Some(Number::from(0));
        }
        let kept = divide(&mantissa, &pow10(drop as u32));
        Number::from_parts(kept, i64::from(places), 1)
    }

    /// Without trailing zeros after the point.
    pub fn trimmed(&self) -> Number {
        let (mut mantissa, mut scale) = self.parts();
        // A number that ends in so many decimal zeros ends in at least as many binary ones. Zero has none of either.
        let zeros = mantissa.trailing_zeros().unwrap_or(u64::from(scale)).min(u64::from(scale)) as u32;
        // The largest power first: a long number is divided a dozen times, not once for each of its zeros.
        let mut power = if zeros == 0 { 0 } else { 1 << zeros.ilog2() };
        while power > 0 && scale > 0 {
            if power <= scale {
                let unit = pow10(power);
                let quotient = &mantissa / &unit;
                if &quotient * &unit == mantissa {
                    (mantissa, scale) = (quotient, scale - power);
                    continue;
                }
            }
            power /= 2;
        }
        Number::normal(mantissa, scale).unwrap_or_else(|| self.clone())
    }

    /// The value as `i64`, if it is whole and fits.
    pub fn to_i64(&self) -> Option<i64> {
        match &self.0 {
            Form::Small(mantissa, 0) => Some(*mantissa),
            _ => match self.trimmed().0 {
                Form::Small(mantissa, 0) => Some(mantissa),
                _ => None,
            },
        }
    }

    /// Whether there is nothing after the point but zeros.
    pub fn is_whole(&self) -> bool {
        let (mantissa, scale) = self.parts();
        scale == 0 || (mantissa % pow10(scale)).sign() == Sign::NoSign
    }

    /// Whether this is zero.
    pub fn is_zero(&self) -> bool {
        match &self.0 {
            Form::Small(mantissa, _) => *mantissa == 0,
            Form::Big(big) => big.0.sign() == Sign::NoSign,
        }
    }

    /// Whether this is below zero.
    pub fn is_negative(&self) -> bool {
        match &self.0 {
            Form::Small(mantissa, _) => *mantissa < 0,
            Form::Big(big) => big.0.sign() == Sign::Minus,
        }
    }

    /// Upper bound of the time to print this number, to compare it or to round it, in nanoseconds or so: it grows with
    /// the square of the digits.
    pub(crate) fn work(&self) -> usize {
        16 + self.cost().saturating_mul(self.cost())
    }

    /// The same for bringing two numbers to one scale, which comparing and adding do.
    pub(crate) fn work_to_align(&self, other: &Number) -> usize {
        let scale = |number: &Number| match &number.0 {
            Form::Small(_, scale) => *scale as usize,
            Form::Big(big) => big.1 as usize,
        };
        let shift = scale(self).abs_diff(scale(other)) / 16 + 1;
        (self.cost() + other.cost() + shift).saturating_mul(shift)
    }

    /// The same for reading it from a text; next to nothing if the text spells no number.
    pub(crate) fn work_to_parse(text: &str) -> usize {
        let bytes = text.trim().as_bytes();
        if bytes.len() <= 32 && !bytes.iter().any(|b| matches!(b, b'e' | b'E')) {
            return 16;
        }
        let digits = bytes.iter().take_while(|b| matches!(b, b'0'..=b'9' | b'.' | b'-' | b'+')).count();
        let exponent = match bytes.get(digits) {
            None => 0,
            Some(b'e' | b'E') => parse_exponent(&bytes[digits + 1..]).unwrap_or_default(),
            Some(_) => return 16 + digits / 8,
        };
        let most = (MAX_WHOLE_DIGITS + MAX_SCALE) as usize;
        let digits = digits + usize::try_from(exponent).unwrap_or(0);
        // A number that is out of range is not read.
        if digits > most { 16 + bytes.len() / 8 } else { 16 + (digits / 16).saturating_mul(digits / 16) }
    }

    /// A bound on how many digits arithmetic on this number touches; budgets charge it.
    pub(crate) fn cost(&self) -> usize {
        match &self.0 {
            Form::Small(..) => 1,
            Form::Big(big) => 1 + (big.0.bits() / 64) as usize + big.1 as usize / 16,
        }
    }
}

fn parse_exponent(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes.first()? {
        b'-' => (true, &bytes[1..]),
        b'+' => (false, &bytes[1..]),
        _ => (false, bytes),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // beyond 7 digits the number is out of range with any mantissa
    let significant: Vec<u8> = digits.iter().copied().skip_while(|b| *b == b'0').take(8).collect();
    let value = significant.iter().fold(0_i64, |acc, b| acc * 10 + i64::from(b - b'0'));
    Some(if negative { -value } else { value })
}

fn pow10(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

fn divide_rounded(value: &BigInt, unit: &BigInt) -> BigInt {
    let (quotient, remainder) = (value / unit, value % unit);
    if remainder.magnitude() * 2_u32 >= *unit.magnitude() {
        if (value.sign() == Sign::Minus) == (unit.sign() == Sign::Minus) { quotient + 1 } else { quotient - 1 }
    } else {
        quotient
    }
}

/// Decimal digits of the magnitude, never too few.
fn decimal_digits(value: &BigInt) -> i64 {
    (value.bits() as f64 * std::f64::consts::LOG10_2).ceil() as i64
}

/// Postgres's `select_div_scale`: at least 16 significant digits, and no fewer places than either input.
fn division_scale(a: &BigInt, sa: u32, b: &BigInt, sb: u32) -> u32 {
    let (weight_a, first_a) = base_10000_head(a, sa);
    let (weight_b, first_b) = base_10000_head(b, sb);
    let weight = weight_a - weight_b - i64::from(first_a <= first_b);
    let scale = (16 - weight * 4).max(i64::from(sa)).max(i64::from(sb)).clamp(0, 1000);
    scale as u32
}

/// Weight and value of the first base-10000 digit, which is how Postgres stores a numeric.
fn base_10000_head(mantissa: &BigInt, scale: u32) -> (i64, u64) {
    if mantissa.sign() == Sign::NoSign {
        return (0, 0);
    }
    let digits = mantissa.magnitude().to_string();
    let exponent = digits.len() as i64 - 1 - i64::from(scale);
    let weight = exponent.div_euclid(4);
    let take = (exponent.rem_euclid(4) + 1) as usize;
    let head = (0..take).fold(0_u64, |acc, i| acc * 10 + digits.as_bytes().get(i).map_or(0, |b| u64::from(b - b'0')));
    (weight, head)
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        if let (Form::Small(a, sa), Form::Small(b, sb)) = (&self.0, &other.0) {
            if sa == sb {
                return a.cmp(b);
            }
            let power = |exponent: u32| i128::from(POWERS[(exponent as usize).min(POWERS.len() - 1)]);
            let (a, b) = (i128::from(*a), i128::from(*b));
            return match sa.cmp(sb) {
                Ordering::Less => (a * power(sb - sa)).cmp(&b),
                _ => a.cmp(&(b * power(sa - sb))),
            };
        }
        let (a, b, _) = self.aligned(other);
        a.cmp(&b)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, digits, scale) = match &self.0 {
            Form::Small(mantissa, 0) => return write!(f, "{mantissa}"),
            Form::Small(mantissa, scale) => (*mantissa < 0, mantissa.unsigned_abs().to_string(), *scale as usize),
            Form::Big(big) => (big.0.sign() == Sign::Minus, big.0.magnitude().to_string(), big.1 as usize),
        };
        let sign = if negative { "-" } else { "" };
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        write!(f, "{sign}{whole}.{fraction}")
    }
}
