//! Is a dispatch to blame for the end of the process that tried it alone? Asked by the next process that tries it.

/// How the process that made the last attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process was killed without a word, as a process is that crashes.
    Silent,
    /// The postmaster told the process to quit: another process crashed, or the server was stopped at once.
    Quit,
    /// The process left in an orderly way in the middle of the work: it was terminated, or the server was shut down.
    Left,
}

/// The facts about the last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    pub end: End,
    /// The postmaster of that time is still the postmaster.
    pub same_server: bool,
    /// How many ends so far may have been caused by the dispatch, and more likely were not.
    pub doubtful: u32,
}

/// So many doubtful ends are forgiven: a long run is met by power cuts and terminations, but a step that ends its own
/// process, or the whole server, is not tried for ever.
pub const MOST_DOUBTFUL: u32 = 10;

/// Whether the last attempt counts as a crash, and how many doubtful ends there are now.
pub fn judge(last: LastAttempt) -> (bool, u32) {
    let doubtful = match (last.end, last.same_server) {
        // The postmaster survived the process, so the process crashed on its own.
        (End::Silent, true) => return (true, last.doubtful),
        (End::Quit, _) | (End::Left, false) => return (false, last.doubtful),
        // The whole server died (a power cut, say), or the process alone was terminated.
        (End::Silent, false) | (End::Left, true) => last.doubtful + 1,
    };
    (doubtful > MOST_DOUBTFUL, doubtful)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(end: End, same_server: bool, doubtful: u32) -> (bool, u32) {
        judge(LastAttempt { end, same_server, doubtful })
    }

    #[test]
    fn only_a_death_that_the_postmaster_survived_counts_at_once() {
        assert_eq!(judged(End::Silent, true, 0), (true, 0));
        assert_eq!(judged(End::Silent, false, 0), (false, 1));
        assert_eq!(judged(End::Left, true, 0), (false, 1));
    }

    #[test]
    fn a_crash_of_another_and_a_shutdown_are_no_reason_to_doubt() {
        for doubtful in [0, MOST_DOUBTFUL, MOST_DOUBTFUL + 5] {
            assert_eq!(judged(End::Quit, true, doubtful), (false, doubtful));
            assert_eq!(judged(End::Quit, false, doubtful), (false, doubtful));
            assert_eq!(judged(End::Left, false, doubtful), (false, doubtful));
        }
    }

    #[test]
    fn doubtful_ends_count_when_there_are_too_many() {
        assert_eq!(judged(End::Silent, false, MOST_DOUBTFUL - 1), (false, MOST_DOUBTFUL));
        assert_eq!(judged(End::Silent, false, MOST_DOUBTFUL), (true, MOST_DOUBTFUL + 1));
        assert_eq!(judged(End::Left, true, MOST_DOUBTFUL), (true, MOST_DOUBTFUL + 1));
    }
}
