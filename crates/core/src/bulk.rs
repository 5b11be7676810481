//! Bulk jobs: how many rows to begin now, when to look again, how fast a job goes, and which states follow which.

/// Most rows of a job that are begun and neither ended nor waiting. A dispatch queued behind them waits only for those.
pub const WINDOW: i64 = 1000;
/// A job without a rate gets its next rows when so many are left of those before.
const REFILL: i64 = WINDOW / 2;
/// How often, in microseconds, a job with a rate gets its next rows.
const BEAT: i64 = 100_000;
/// How much, in microseconds, a job that is late makes up for.
const MOST_LATE: i64 = 1_000_000;
/// Over how long, in microseconds, the speed is averaged.
const MEMORY: f64 = 10_000_000.0;

/// The hint for a rate that is no rate.
pub const RATE_HINT: &str = "It is how many rows to begin in a second, more than 0, for example 50 or 0.5.";

/// Is the number a rate: so many rows per second?
pub fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0 && rate <= 1e9
}

/// The state of a job. `word` is its text in the state column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Its query is about to run.
    Querying,
    /// Its rows are there; a person is to say whether to go on.
    Approval,
    /// Its rows are being begun.
    Executing,
    /// All rows are begun, some have not ended.
    Monitoring,
    /// The job is to end; its runs under way are being cancelled.
    Cancelling,
    /// Every row has ended, well or not.
    Finished,
    /// Its query has failed.
    Failed,
    /// The job was cancelled.
    Cancelled,
}

/// Why a person's order was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such job, or the caller may not see it.
    NotFound,
    /// The job has ended, or is about to.
    AlreadyEnded(JobState),
}

const STATES: [(JobState, &str); 8] = [
    (JobState::Querying, "querying"),
    (JobState::Approval, "approval"),
    (JobState::Executing, "executing"),
    (JobState::Monitoring, "monitoring"),
    (JobState::Cancelling, "cancelling"),
    (JobState::Finished, "finished"),
    (JobState::Failed, "failed"),
    (JobState::Cancelled, "cancelled"),
];

impl JobState {
    /// The word in the state column.
    pub fn word(self) -> &'static str {
        STATES.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<JobState> {
        STATES.iter().find(|(_, known)| *known == word).map(|(state, _)| *state)
    }

    /// Has the job ended, so that no state follows?
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Finished | JobState::Failed | JobState::Cancelled)
    }

    /// A person approves the job. None if it was approved before, or needs no approval.
    pub fn approve(self) -> Result<Option<JobState>, Refusal> {
        match self {
            // the query is still to come, and no approval will be asked for after it
            JobState::Querying => Ok(Some(JobState::Querying)),
            JobState::Approval => Ok(Some(JobState::Executing)),
            JobState::Executing | JobState::Monitoring | JobState::Finished => Ok(None),
            JobState::Cancelling | JobState::Failed | JobState::Cancelled => Err(Refusal::AlreadyEnded(self)),
        }
    }

    /// A person cancels the job. None if it was cancelled before.
    pub fn cancel(self) -> Result<Option<JobState>, Refusal> {
        match self {
            JobState::Querying | JobState::Approval | JobState::Executing | JobState::Monitoring => {
                Ok(Some(JobState::Cancelling))
            }
            JobState::Cancelling | JobState::Cancelled => Ok(None),
            JobState::Finished | JobState::Failed => Err(Refusal::AlreadyEnded(self)),
        }
    }
}

impl Refusal {
    /// The reason as callers compare it.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::NotFound => "job_not_found",
            Refusal::AlreadyEnded(_) => "already_ended",
        }
    }

    /// The reason as a person reads it.
    pub fn message(self) -> String {
        match self {
            Refusal::NotFound => "Bulk job not found".to_owned(),
            Refusal::AlreadyEnded(JobState::Cancelling) => "Bulk job is being cancelled".to_owned(),
            Refusal::AlreadyEnded(state) => format!("Bulk job is {}", state.word()),
        }
    }
}

/// The rows of a job, counted by how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All rows of the job.
    pub total: i64,
    /// How many rows were begun, in order.
    pub issued: i64,
    /// How many rows were begun and came back, because the automation was paused: they are to be begun again.
    pub returned: i64,
    /// How many rows ended well.
    pub completed: i64,
    /// How many rows failed.
    pub failed: i64,
    /// How many rows a gate refused.
    pub skipped: i64,
    /// How many rows were cancelled.
    pub cancelled: i64,
    /// How many rows have runs that wait.
    pub waiting: i64,
}

impl Counts {
    /// How many rows have ended.
    pub fn ended(&self) -> i64 {
        self.completed + self.failed + self.skipped + self.cancelled
    }

    /// How many rows are under way.
    pub fn open(&self) -> i64 {
        self.issued - self.ended() - self.returned
    }

    /// Counts every row that has not ended otherwise as cancelled.
    pub fn cancel_rest(&mut self) {
        self.cancelled = self.total - self.completed - self.failed - self.skipped;
    }

    /// How many rows are still to be begun.
    pub fn left(&self) -> i64 {
        self.total - self.issued + self.returned
    }
}

/// How many rows may begin now. `next_at` is when the next row may begin, in microseconds; a job that is late makes up
/// for a second at most, so that it neither falls behind its rate nor bursts after a pause.
pub fn quota(counts: &Counts, rate: Option<f64>, next_at: i64, now: i64) -> i64 {
    let queued = counts.open() - counts.waiting;
    let room = (WINDOW - queued).max(0);
    let due = match rate {
        None if queued > REFILL => 0,
        None => room,
        Some(rate) => {
            let begin = next_at.max(now - MOST_LATE);
            if begin > now { 0 } else { ((now - begin) as f64 * rate / 1_000_000.0) as i64 + 1 }
        }
    };
    due.min(room).min(counts.left())
}

/// When the next row may begin after so many have begun now, and when to look again: None if there is nothing to look
/// for before a row ends.
pub fn pace(counts: &Counts, rate: Option<f64>, next_at: i64, begun: i64, now: i64) -> (i64, Option<i64>) {
    let Some(rate) = rate else { return (now, None) };
    let next_at = next_at.max(now - MOST_LATE).saturating_add((begun as f64 * 1_000_000.0 / rate) as i64);
    let full = counts.open() - counts.waiting >= WINDOW;
    (next_at, (counts.left() > 0 && !full).then(|| next_at.max(now + BEAT)))
}

/// Rows per second: `before`, and `ended` rows in the last `took` microseconds.
pub fn speed(before: Option<f64>, ended: i64, took: i64) -> Option<f64> {
    if took <= 0 {
        return before;
    }
    let latest = ended as f64 * 1_000_000.0 / took as f64;
    let weight = 1.0 - (-(took as f64) / MEMORY).exp();
    Some(before.map_or(latest, |before| before + (latest - before) * weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(total: i64, issued: i64, completed: i64) -> Counts {
        Counts { total, issued, completed, ..Counts::default() }
    }

    #[test]
    fn every_state_has_a_word_of_its_own_and_ends_by_three_ways_r002_21() {
        for (state, word) in STATES {
            assert_eq!(state.word(), word);
            assert_eq!(JobState::parse(word), Some(state));
        }
        let over: Vec<&str> = STATES.iter().filter(|(state, _)| state.is_over()).map(|(_, word)| *word).collect();
        assert_eq!(over, ["finished", "failed", "cancelled"]);
    }

    #[test]
    fn to_approve_or_cancel_twice_is_to_do_it_once() {
        for (state, word) in STATES {
            let approved = state.approve();
            if let Ok(Some(next)) = approved.filter_same(state) {
                assert_eq!(next.approve(), Ok(None), "{word}");
            }
            if let Ok(Some(next)) = state.cancel() {
                assert_eq!(next.cancel(), Ok(None), "{word}");
            }
            assert_eq!(state.is_over() && state != JobState::Cancelled, state.cancel().is_err(), "{word}");
        }
        assert_eq!(JobState::Finished.cancel().unwrap_err().message(), "Bulk job is finished");
    }

    trait FilterSame {
        fn filter_same(self, state: JobState) -> Self;
    }

    impl FilterSame for Result<Option<JobState>, Refusal> {
        fn filter_same(self, state: JobState) -> Self {
            self.map(|next| next.filter(|next| *next != state))
        }
    }

    #[test]
    fn without_a_rate_the_window_is_refilled_when_half_of_it_is_done() {
        assert_eq!(quota(&counts(100_000, 0, 0), None, 0, 7), WINDOW);
        assert_eq!(quota(&counts(100_000, 1000, 499), None, 0, 0), 0);
        assert_eq!(quota(&counts(100_000, 1000, 500), None, 0, 0), 500);
        assert_eq!(quota(&counts(1200, 1000, 900), None, 0, 0), 200);
        assert_eq!(quota(&counts(1000, 1000, 900), None, 0, 0), 0);
        assert_eq!(pace(&counts(1200, 1000, 900), None, 0, 200, 9), (9, None));
    }

    #[test]
    fn rows_whose_runs_wait_do_not_hold_up_the_others() {
        let mut held = counts(5000, 1000, 0);
        assert_eq!(quota(&held, None, 0, 0), 0);
        held.waiting = 1000;
        assert_eq!(quota(&held, None, 0, 0), 1000);
    }

    #[test]
    fn every_row_of_a_cancelled_job_is_accounted_for() {
        let mut counts = Counts { total: 10, issued: 7, completed: 3, failed: 1, skipped: 1, ..Counts::default() };
        counts.cancel_rest();
        assert_eq!((counts.cancelled, counts.ended()), (5, 10));
    }

    #[test]
    fn what_came_back_is_begun_again() {
        let back = Counts { total: 10, issued: 10, returned: 4, completed: 6, ..Counts::default() };
        assert_eq!((back.open(), back.left()), (0, 4));
        assert_eq!(quota(&back, None, 0, 0), 4);
    }

    #[test]
    fn a_rate_is_kept_over_time_however_late_the_looks_are_r002_21() {
        for (rate, late) in [(0.5, 0), (1.0, 3_000), (7.0, 40_000), (300.0, 90_000), (2_500.0, 10_000)] {
            let (mut now, mut next_at, mut state) = (1_000_000_000, 0, counts(1_000_000, 0, 0));
            let begun = now;
            while now < begun + 60_000_000 {
                let items = quota(&state, Some(rate), next_at, now);
                state.issued += items;
                state.completed += items;
                let (next, wake) = pace(&state, Some(rate), next_at, items, now);
                next_at = next;
                let wake = wake.expect("there is more");
                assert!(wake > now);
                now = wake + late;
            }
            let (wanted, got) = (rate * (now - begun) as f64 / 1e6, state.issued as f64);
            // above: the rows that a first look makes up for; below: those that the last look has not begun yet
            assert!(got <= wanted + rate + 1.0 && got >= wanted - rate * 0.3 - 1.0, "{rate}: {got} of {wanted}");
        }
    }

    #[test]
    fn rows_that_are_passed_over_cost_nothing_of_the_rate() {
        let now = 50_000_000;
        let (next_at, wake) = pace(&counts(100_000, 5000, 5000), Some(10.0), now, 0, now);
        assert_eq!((next_at, wake), (now, Some(now + BEAT)));
        assert_eq!(quota(&counts(100_000, 5000, 5000), Some(10.0), next_at, now), 1);
    }

    #[test]
    fn a_long_pause_is_not_made_up_for() {
        assert_eq!(quota(&counts(100_000, 0, 0), Some(100.0), 0, 3_600_000_000), 101);
    }

    #[test]
    fn a_full_window_waits_for_rows_to_end_not_for_the_clock() {
        let full = counts(100_000, 1000, 0);
        assert_eq!(quota(&full, Some(100.0), 0, 50_000_000), 0);
        assert_eq!(pace(&full, Some(100.0), 0, 0, 50_000_000).1, None);
    }

    #[test]
    fn rates_are_positive_and_finite() {
        for (rate, valid) in [(0.0, false), (-1.0, false), (f64::NAN, false), (f64::INFINITY, false), (0.01, true)] {
            assert_eq!(is_rate(rate), valid, "{rate}");
        }
    }

    #[test]
    fn the_speed_follows_what_happens() {
        assert_eq!(speed(None, 100, 0), None);
        assert_eq!(speed(None, 100, 1_000_000), Some(100.0));
        let slower = speed(Some(100.0), 0, 10_000_000).unwrap();
        assert!((36.0..38.0).contains(&slower), "{slower}");
    }
}
