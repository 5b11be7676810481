//! The courier's policy: whether and when a message is sent again after an attempt.
//!
//! Attempts are counted from 1. A message that is to arrive at most once is not sent again when it may have had its
//! effect; everything else that went wrong is tried again until the attempts are used up.

use crate::program::{Backoff, Retry};
use serde_json::Value as Json;

/// How long a message waits that must be signed and cannot be.
pub const DEFERRED_FOR: i64 = 5 * MINUTE;
/// The longest that a receiver can ask us to wait.
pub const MAX_RETRY_AFTER: i64 = 60 * MINUTE;
/// How many attempts beyond the last one may be made up for because the server went down.
const MAX_INTERRUPTIONS: u32 = 3;
const MINUTE: i64 = 60 * SECOND;
const SECOND: i64 = 1_000_000;

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver answered.
    Answer {
        /// Its status.
        status: u16,
        /// For how many microseconds it asks us to wait.
        retry_after: Option<i64>,
    },
    /// No rule allows to send the message there.
    Blocked,
    /// Nothing of the message has left the server.
    NotSent,
    /// The message was sent, in part at least, and no answer came.
    Unknown,
    /// The server went down while the message was being sent.
    Interrupted,
    /// The message must not be sent unsigned, and there is no secret to sign it with.
    Unsigned,
}

/// The facts about a message when an attempt is over.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The attempt's number, from 1.
    pub number: u32,
    /// How many attempts there may be.
    pub max: u32,
    /// Whether the message must not arrive twice.
    pub at_most_once: bool,
    /// How long to wait between attempts; None for two, four, eight ... minutes.
    pub backoff: Option<&'a Backoff>,
    /// Decides the jitter: the id of the message.
    pub seed: u64,
}

/// The next thing to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The message has arrived.
    Delivered,
    /// The message is sent again after so many microseconds.
    Again {
        /// From now on.
        after: i64,
    },
    /// The message waits for so many microseconds, and this attempt does not count.
    Defer {
        /// From now on.
        after: i64,
    },
    /// The message is given up.
    Dead {
        /// The receiver is gone for good: its endpoint is disabled.
        disable_endpoint: bool,
    },
    /// The message may have arrived, and must not be sent again.
    Ambiguous,
}

impl Attempt<'_> {
    /// The next thing to do after an attempt with this outcome.
    pub fn then(&self, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Answer { status: 200..=299, .. } => Next::Delivered,
            Outcome::Answer { status: 410, .. } => Next::Dead { disable_endpoint: true },
            // It is not known whether the request had its effect before the receiver, or a server behind it, failed.
            Outcome::Answer { status: 500 | 502 | 504..=599, .. } | Outcome::Unknown | Outcome::Interrupted
                if self.at_most_once =>
            {
                Next::Ambiguous
            }
            Outcome::Unsigned => Next::Defer { after: DEFERRED_FOR },
            // Neither the message nor its receiver did anything wrong, so that alone is no reason to give up; unless it
            // happens again and again, when the message itself may be the cause of the server's crashes.
            Outcome::Interrupted if self.number < self.max.saturating_add(MAX_INTERRUPTIONS) => {
                Next::Again { after: 0 }
            }
            _ if self.number >= self.max => Next::Dead { disable_endpoint: false },
            Outcome::Answer { status: 429 | 503, retry_after: Some(wait) } => {
                Next::Again { after: wait.clamp(SECOND, MAX_RETRY_AFTER) }
            }
            _ => Next::Again { after: self.wait() },
        }
    }

    /// How long to wait after this attempt.
    fn wait(&self) -> i64 {
        let usual;
        let backoff = match self.backoff {
            Some(backoff) => backoff,
            None => {
                // a tenth more at most, so that messages that failed together do not come back together
                let cap = 2 * 24 * 60 * MINUTE;
                usual = Backoff::Exponential { base: 2 * MINUTE, factor: 2.0, cap, jitter: 0.0 };
                &usual
            }
        };
        let retry = Retry { max: u32::MAX, backoff: backoff.clone() };
        let wait = retry.delay(self.number.max(1), self.seed).unwrap_or_default();
        match self.backoff {
            Some(_) => wait,
            None => wait + (wait as f64 * 0.1 * crate::program::unit(self.seed ^ u64::from(self.number))) as i64,
        }
    }
}

/// A backoff as the outbox keeps it: lengths in microseconds.
pub fn backoff_to_json(backoff: &Backoff) -> Json {
    match backoff {
        Backoff::Fixed(delays) => serde_json::json!({ "delays": delays }),
        Backoff::Exponential { base, factor, cap, jitter } => {
            serde_json::json!({ "base": base, "factor": factor, "cap": cap, "jitter": jitter })
        }
    }
}

/// The backoff that the outbox keeps; None if the JSON is no backoff.
pub fn backoff_from_json(json: &Json) -> Option<Backoff> {
    if let Some(delays) = json.get("delays") {
        return delays.as_array()?.iter().map(Json::as_i64).collect::<Option<_>>().map(Backoff::Fixed);
    }
    let number = |field: &str| json.get(field).and_then(Json::as_f64);
    let micros = |field: &str| json.get(field).and_then(Json::as_i64);
    Some(Backoff::Exponential {
        base: micros("base")?,
        factor: number("factor")?,
        cap: micros("cap")?,
        jitter: number("jitter")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_is_read_back_as_it_was() {
        for backoff in [
            Backoff::Fixed(vec![1, 5_000_000]),
            Backoff::Exponential { base: 1_000_000, factor: 1.5, cap: 60_000_000, jitter: 0.1 },
        ] {
            assert_eq!(backoff_from_json(&backoff_to_json(&backoff)), Some(backoff));
        }
        for text in ["{}", "[]", "null", "{\"delays\": 5}", "{\"delays\": [\"x\"]}", "{\"base\": 1}"] {
            assert_eq!(backoff_from_json(&serde_json::from_str(text).unwrap()), None, "{text}");
        }
    }

    #[test]
    fn the_usual_waits_are_two_to_the_power_of_the_attempt_in_minutes_and_a_tenth_more_at_most_r004_13() {
        for number in 1..=8 {
            let minutes = 60_000_000_i64 << number;
            let waits: Vec<i64> = (0..100)
                .map(|seed| Attempt { number, max: 100, at_most_once: false, backoff: None, seed }.wait())
                .collect();
            assert!(waits.iter().all(|wait| (minutes..=minutes + minutes / 10).contains(wait)), "{number}: {waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{number}");
        }
    }
}
