//! Dispatches whose run could not get a lock, could not serialize or was the victim of a deadlock: tried again after
//! growing pauses, while the executor goes on with other dispatches.
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long to wait after the first failure; twice as long after each further one, up to the longest.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(5);
/// The log is told of a run after so many failures: some three seconds, as a rule.
const TELL_AFTER: u32 = 8;
/// How long to rest while nothing can be done but to wait for other executors.
const REST: Duration = Duration::from_millis(5);
const LONGEST_REST: Duration = Duration::from_millis(50);
/// A dispatch that was not put off again for so long after its pause has ended: its entry is dropped.
const FORGET: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct PutOff {
    entries: HashMap<i64, Entry>,
}

struct Entry {
    failures: u32,
    since: Instant,
    until: Instant,
}

/// For how long a dispatch that was put off again has failed, and whether to log that.
#[derive(Debug, PartialEq)]
pub struct Delay {
    /// For how long it has been tried.
    pub waited: Duration,
    /// Now the log is to be told.
    pub tell: bool,
}

impl PutOff {
    /// The dispatch has failed.
    pub fn again(&mut self, dispatch: i64) -> Delay {
        self.again_at(dispatch, Instant::now())
    }

    fn again_at(&mut self, dispatch: i64, now: Instant) -> Delay {
        let entry = self.entries.entry(dispatch).or_insert(Entry { failures: 0, since: now, until: now });
        let pause = FIRST.saturating_mul(1 << entry.failures.min(16)).min(LONGEST);
        entry.failures += 1;
        entry.until = now + pause;
        Delay { waited: now - entry.since, tell: entry.failures == TELL_AFTER }
    }

    /// The dispatches whose time has not come.
    pub fn not_due(&mut self) -> HashSet<i64> {
        self.not_due_at(Instant::now())
    }

    fn not_due_at(&mut self, now: Instant) -> HashSet<i64> {
        self.entries.retain(|_, entry| now.saturating_duration_since(entry.until) < FORGET);
        self.entries.iter().filter(|(_, entry)| entry.until > now).map(|(id, _)| *id).collect()
    }

    /// How long to rest while all other dispatches wait for other executors.
    pub fn rest(&self) -> Duration {
        let now = Instant::now();
        let next = self.entries.values().map(|entry| entry.until).filter(|until| *until > now).min();
        next.map_or(REST, |until| (until - now).clamp(REST, LONGEST_REST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_the_log_is_told_once() {
        let (mut put_off, mut now) = (PutOff::default(), Instant::now());
        let mut told = 0;
        for _ in 0..40 {
            let delay = put_off.again_at(7, now);
            told += u32::from(delay.tell);
            assert!(put_off.not_due_at(now).contains(&7));
            now += LONGEST;
            assert!(!put_off.not_due_at(now).contains(&7));
        }
        assert_eq!(told, 1);
        assert!(put_off.again_at(7, now).waited >= LONGEST * 39);
        assert!(put_off.not_due_at(now + LONGEST + FORGET).is_empty() && put_off.entries.is_empty());
    }
}
