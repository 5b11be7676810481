//! The retry policy of a step: how often, and when, a failed step is tried again.

use super::parts::{Parts, duration_text};
use crate::value::{Duration, Number};
use serde_json::Value as Json;

/// Delays of a policy that names none.
const DEFAULT_DELAYS: [i64; 3] = [1_000_000, 5_000_000, 30_000_000];
/// Most tries after the first.
const MOST: u32 = 1000;

/// How often, and when, a failed step is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Tries after the first.
    pub max: u32,
    /// How long to wait before each.
    pub backoff: Backoff,
}

/// How long to wait before the next try.
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// These many microseconds in turn; the last of them from then on.
    Fixed(Vec<i64>),
    /// `base * factor ^ n`, no more than `cap`, give or take `jitter`.
    Exponential {
        /// Microseconds before the second try.
        base: i64,
        /// By how much each wait is longer than the one before.
        factor: f64,
        /// Most microseconds.
        cap: i64,
        /// Share of the wait, 0 to 1, by which it may be shorter or longer.
        jitter: f64,
    },
}

impl Retry {
    /// Microseconds to wait after so many failed tries (from 1), None if it is not to be tried again. `seed` decides
    /// the jitter, so that the same run gives the same answer.
    pub fn delay(&self, failed: u32, seed: u64) -> Option<i64> {
        if failed > self.max {
            return None;
        }
        Some(match &self.backoff {
            Backoff::Fixed(delays) => {
                let place = (failed as usize - 1).min(delays.len().saturating_sub(1));
                delays.get(place).copied().unwrap_or_default()
            }
            Backoff::Exponential { base, factor, cap, jitter } => {
                let wait = (*base as f64 * factor.powi(failed as i32 - 1)).min(*cap as f64);
                let spread = jitter * (2.0 * unit(seed ^ u64::from(failed)) - 1.0);
                (wait * (1.0 + spread)).clamp(0.0, *cap as f64) as i64
            }
        })
    }

    /// Reads `3`, `{"max": 3, "delays": ["1s", "5s"]}` or `{"max": 5, "backoff": "exponential", "base": "1s", ...}`.
    pub(super) fn read(given: &Json, parts: &mut Parts<'_>) -> Option<Retry> {
        let whole = |value: &Json| value.as_u64().filter(|n| (1..=u64::from(MOST)).contains(n)).map(|n| n as u32);
        let fields = match given {
            Json::Object(fields) => {
                fields.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
            }
            Json::Number(_) => serde_json::Map::from_iter([("max".to_owned(), given.clone())]),
            _ => {
                parts.wrong("retry", "\"retry\" must be a number of tries or an object", RETRY_HINT);
                return None;
            }
        };
        const KNOWN: [&str; 7] = ["max", "delays", "backoff", "base", "factor", "cap", "jitter"];
        if let Some(field) = fields.keys().find(|field| !KNOWN.contains(&field.as_str())) {
            parts.wrong("retry", &format!("unknown field \"{field}\" in \"retry\""), RETRY_HINT);
            return None;
        }
        let delays = match fields.get("delays") {
            None => None,
            Some(Json::Array(items)) if !items.is_empty() && items.len() <= 100 => {
                let micros: Option<Vec<i64>> = items.iter().map(|item| micros(&duration_text(item)?)).collect();
                match micros {
                    Some(micros) => Some(micros),
                    None => {
                        parts.wrong("retry", "invalid delay in \"retry\"", "Delays are like '1s' or '5 minutes'.");
                        return None;
                    }
                }
            }
            Some(_) => {
                parts.wrong("retry", "\"delays\" of \"retry\" must be a list of 1 to 100 durations", RETRY_HINT);
                return None;
            }
        };
        let max = match fields.get("max") {
            None => delays.as_ref().map_or(DEFAULT_DELAYS.len(), Vec::len) as u32,
            Some(value) => match whole(value) {
                Some(max) => max,
                None => {
                    parts.wrong("retry", &format!("invalid number of tries {value} in \"retry\""), RETRY_HINT);
                    return None;
                }
            },
        };
        let exponential_only =
            ["base", "factor", "cap", "jitter"].into_iter().find(|field| fields.contains_key(*field));
        let backoff = match fields.get("backoff").map(|word| word.as_str().unwrap_or_default()) {
            None | Some("fixed") if let Some(field) = exponential_only => {
                let message = format!("\"{field}\" of \"retry\" needs \"backoff\": \"exponential\"");
                parts.wrong("retry", &message, RETRY_HINT);
                return None;
            }
            Some("exponential") if delays.is_some() => {
                parts.wrong("retry", "\"delays\" of \"retry\" are not for an exponential backoff", RETRY_HINT);
                return None;
            }
            None | Some("fixed") => Backoff::Fixed(delays.unwrap_or_else(|| DEFAULT_DELAYS.to_vec())),
            Some("exponential") => exponential(&fields, parts)?,
            Some(other) => {
                let message = format!("unknown backoff \"{other}\" in \"retry\"");
                parts.wrong("retry", &message, "Use fixed or exponential.");
                return None;
            }
        };
        Some(Retry { max, backoff })
    }
}

const RETRY_HINT: &str = "For example {\"max\": 3, \"delays\": [\"1s\", \"5s\", \"30s\"]}, or automation.retry().";

fn exponential(fields: &serde_json::Map<String, Json>, parts: &mut Parts<'_>) -> Option<Backoff> {
    let mut duration = |field: &str, otherwise: i64| match fields.get(field) {
        None => Some(otherwise),
        Some(value) => match duration_text(value).as_deref().and_then(micros) {
            Some(micros) if micros > 0 => Some(micros),
            _ => {
                parts.wrong(
                    "retry",
                    &format!("invalid \"{field}\" {value} in \"retry\""),
                    "It is a duration above zero.",
                );
                None
            }
        },
    };
    let (base, cap) = (duration("base", 1_000_000), duration("cap", 3_600_000_000));
    let mut number = |field: &str, otherwise: f64, range: std::ops::RangeInclusive<f64>| match fields.get(field) {
        None => Some(otherwise),
        Some(value) => match value.as_f64() {
            Some(number) if range.contains(&number) => Some(number),
            _ => {
                let (from, to) = (range.start(), range.end());
                let hint = format!("It is a number from {from} to {to}.");
                parts.wrong("retry", &format!("invalid \"{field}\" {value} in \"retry\""), &hint);
                None
            }
        },
    };
    let (factor, jitter) = (number("factor", 2.0, 1.0..=100.0), number("jitter", 0.1, 0.0..=1.0));
    Some(Backoff::Exponential { base: base?, factor: factor?, cap: cap?, jitter: jitter? })
}

/// A duration that is not negative and not longer than a Postgres timestamp can bear; a bare number means seconds, as
/// in an interval.
pub(crate) fn length(text: &str) -> Option<Duration> {
    let text = text.trim();
    let duration = Duration::parse(text)
        .or_else(|| Number::parse(text).and_then(|_| Duration::parse(&format!("{text} seconds"))))?;
    (0..=MAX_MICROS).contains(&duration.total_micros()).then_some(duration)
}

/// The same in microseconds.
pub(super) fn micros(text: &str) -> Option<i64> {
    length(text).map(|duration| duration.total_micros() as i64)
}

/// Ten thousand years: within the range of a timestamp, whenever it is added.
const MAX_MICROS: i128 = 10_000 * 366 * 86_400 * 1_000_000;

/// May an error of this class go away by itself? Mistakes in the statement and missing rights do not.
pub fn is_retryable(sqlstate: &str) -> bool {
    !["42", "0A", "28", "3D", "3F", "2F", "XX"].iter().any(|class| sqlstate.starts_with(class))
}

/// A number in [0, 1) that depends on the seed alone (splitmix64).
pub(crate) fn unit(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::{Backoff, DEFAULT_DELAYS, Retry, is_retryable};

    #[test]
    fn the_default_waits_are_1_5_and_30_seconds_r003_8() {
        let retry = Retry { max: 3, backoff: Backoff::Fixed(DEFAULT_DELAYS.to_vec()) };
        let waits: Vec<Option<i64>> = (1..=4).map(|failed| retry.delay(failed, 7)).collect();
        assert_eq!(waits, [Some(1_000_000), Some(5_000_000), Some(30_000_000), None]);
    }

    #[test]
    fn exponential_waits_grow_up_to_the_cap_r002_22() {
        let backoff = Backoff::Exponential { base: 1_000_000, factor: 2.0, cap: 5_000_000, jitter: 0.0 };
        let retry = Retry { max: 5, backoff };
        let waits: Vec<i64> = (1..=5).filter_map(|failed| retry.delay(failed, 1)).collect();
        assert_eq!(waits, [1_000_000, 2_000_000, 4_000_000, 5_000_000, 5_000_000]);
    }

    #[test]
    fn jitter_stays_in_its_range_and_differs_between_runs() {
        let backoff = Backoff::Exponential { base: 1_000_000, factor: 1.0, cap: 9_000_000, jitter: 0.5 };
        let retry = Retry { max: 1, backoff };
        let waits: Vec<i64> = (0..100).filter_map(|seed| retry.delay(1, seed)).collect();
        assert!(waits.iter().all(|wait| (500_000..=1_500_000).contains(wait)));
        assert!(waits.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn mistakes_and_missing_rights_are_not_tried_again() {
        for state in ["42601", "42501", "42P01", "0A000"] {
            assert!(!is_retryable(state), "{state}");
        }
        for state in ["40P01", "23505", "22012", "57014", "P0001"] {
            assert!(is_retryable(state), "{state}");
        }
    }
}
