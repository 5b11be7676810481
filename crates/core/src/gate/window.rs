//! The window gate: so many occurrences within a trailing time.
//!
//! The caller keeps one row per qualifying occurrence and partition, locks the partition, and counts each emission
//! once; then the answer is exact also under concurrency and redelivery.

use super::{Code, Reason};
use crate::definition::in_words;
use crate::expr::Expr;
use crate::value::{Timestamp, Value};

/// When a window fires again while it stays full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refire {
    /// With every occurrence.
    Every,
    /// Only with the occurrence that fills it; the window must have emptied before it fires again.
    Once,
}

/// A window of a trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// How many occurrences.
    pub count: u64,
    /// Within so many microseconds.
    pub within: i64,
    /// Counted apart for each value of this; for each entity if it is not given.
    pub per: Option<Expr>,
    /// When the window fires again.
    pub refire: Refire,
}

/// The result of counting one more occurrence.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Occurrences within the window, this one included.
    pub count: u64,
    /// Whether the trigger goes on to the next gate.
    pub verdict: Result<(), Reason>,
}

impl Window {
    /// The earliest instant that still counts. Older occurrences can be forgotten.
    pub fn since(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_sub(self.within))
    }

    /// One more occurrence now, given the times of the earlier ones in ascending order.
    pub fn count(&self, earlier: &[Timestamp], now: Timestamp) -> Counted {
        let since = self.since(now);
        self.decide((earlier.len() - earlier.partition_point(|at| *at < since)) as u64)
    }

    /// One more occurrence, given how many earlier ones still count.
    pub fn decide(&self, earlier: u64) -> Counted {
        let count = earlier + 1;
        let clause = || format!("{} within {}", self.count, in_words(self.within));
        let verdict = if count < self.count {
            Err(Reason::new(Code::WindowNotFull, clause(), format!("this is number {count}")))
        } else if count > self.count && self.refire == Refire::Once {
            Err(Reason::new(Code::WindowFired, clause(), format!("it fired at number {}, this is {count}", self.count)))
        } else {
            Ok(())
        };
        Counted { count, verdict }
    }

    /// The value of `window` in expressions.
    pub fn value(&self, count: u64, key: &str) -> Value {
        let whole = |number: u64| Value::int(i64::try_from(number).unwrap_or(i64::MAX));
        Value::object(vec![
            ("count".into(), whole(count)),
            ("threshold".into(), whole(self.count)),
            ("within".into(), Value::Duration(crate::value::Duration::from_micros(self.within))),
            ("key".into(), Value::text(key)),
        ])
    }
}
