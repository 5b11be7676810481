//! The states of a run, the words that tables and views have for them, and the steps from one to the next.
//! docs/architecture.md has the drawing; pgrx-tests/state_parity.rs compares the words with the CHECK constraints and
//! with the view automation.runs.

/// How a run has ended. A run that has ended never moves again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    Completed,
    Failed,
    Cancelled,
    /// A gate refused the run, or its hold was broken: no step was executed.
    Skipped,
    /// Too many executions: no step was executed, and the automation is paused.
    Hot,
}

/// Why a live run, one that has a row of its own in the table `run`, does not execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pause {
    /// At one or several steps that wait.
    #[default]
    Waiting,
    /// Before its next step, because its automation is paused with `on_pause => 'freeze'`.
    Frozen,
    /// Before its first step, because runs with the same key come first (mode `queued`).
    Queued,
}

/// A state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// In the queue of its owner: the row is in the table `dispatch`.
    Pending,
    /// An executor executes it; shown from shared memory, the row is where it was before.
    Running,
    /// The row is in the table `run`.
    Live(Pause),
    /// The row is in the table `run_history`.
    Ended(Ending),
}

/// Something that moves a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// An executor takes the run up: from the queue, or because its wait may be over, its automation is active again,
    /// or its turn has come.
    TakeUp,
    /// The executor puts it down again before its end.
    PutDown(Pause),
    /// The transaction was rolled back by a crash or an interruption: the run is where it was.
    GiveBack(Pause),
    /// The same for a run that had not been put down before.
    GiveBackToQueue,
    /// It ends.
    End(Ending),
}

pub const ENDINGS: [Ending; 5] = [Ending::Completed, Ending::Failed, Ending::Cancelled, Ending::Skipped, Ending::Hot];
pub const PAUSES: [Pause; 3] = [Pause::Waiting, Pause::Frozen, Pause::Queued];

impl Ending {
    /// As the table run_history and the view have it.
    pub fn word(self) -> &'static str {
        match self {
            Ending::Completed => "completed",
            Ending::Failed => "failed",
            Ending::Cancelled => "cancelled",
            Ending::Skipped => "skipped",
            Ending::Hot => "hot",
        }
    }

    /// Can a run end so that has executed a step?
    fn may_follow_steps(self) -> bool {
        matches!(self, Ending::Completed | Ending::Failed | Ending::Cancelled)
    }
}

impl Pause {
    /// As the table run has it.
    pub fn word(self) -> &'static str {
        match self {
            Pause::Waiting => "waiting",
            Pause::Frozen => "frozen",
            Pause::Queued => "queued",
        }
    }

    pub fn from_word(word: &str) -> Option<Pause> {
        PAUSES.into_iter().find(|pause| pause.word() == word)
    }
}

impl RunState {
    pub fn all() -> impl Iterator<Item = RunState> {
        let under_way = [RunState::Pending, RunState::Running].into_iter();
        under_way.chain(PAUSES.map(RunState::Live)).chain(ENDINGS.map(RunState::Ended))
    }

    /// As the view automation.runs shows it. A frozen run waits for its automation, a queued one is still to be begun.
    pub fn shown(self) -> &'static str {
        match self {
            RunState::Pending | RunState::Live(Pause::Queued) => "pending",
            RunState::Running => "running",
            RunState::Live(Pause::Waiting | Pause::Frozen) => "waiting",
            RunState::Ended(ending) => ending.word(),
        }
    }

    /// The state after a move; None if a run in this state cannot be moved so.
    pub fn on(self, by: Move) -> Option<RunState> {
        match (self, by) {
            (RunState::Pending | RunState::Live(_), Move::TakeUp) => Some(RunState::Running),
            (RunState::Running, Move::PutDown(pause) | Move::GiveBack(pause)) => Some(RunState::Live(pause)),
            (RunState::Running, Move::GiveBackToQueue) => Some(RunState::Pending),
            (RunState::Running, Move::End(ending)) => Some(RunState::Ended(ending)),
            // Cancelled, or refused by the router, before an executor takes it up.
            (RunState::Pending, Move::End(ending @ (Ending::Cancelled | Ending::Skipped))) => {
                Some(RunState::Ended(ending))
            }
            // Cancelled, or given up because it crashed the server.
            (RunState::Live(_), Move::End(ending)) if ending.may_follow_steps() => Some(RunState::Ended(ending)),
            (RunState::Pending, Move::PutDown(_) | Move::GiveBack(_) | Move::GiveBackToQueue | Move::End(_))
            | (RunState::Running, Move::TakeUp)
            | (RunState::Live(_), Move::PutDown(_) | Move::GiveBack(_) | Move::GiveBackToQueue | Move::End(_))
            | (
                RunState::Ended(_),
                Move::TakeUp | Move::PutDown(_) | Move::GiveBack(_) | Move::GiveBackToQueue | Move::End(_),
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves() -> impl Iterator<Item = Move> {
        let plain = [Move::TakeUp, Move::GiveBackToQueue].into_iter();
        plain.chain(PAUSES.map(Move::PutDown)).chain(PAUSES.map(Move::GiveBack)).chain(ENDINGS.map(Move::End))
    }

    #[test]
    fn an_ended_run_never_moves_again() {
        for ending in ENDINGS {
            assert!(moves().all(|by| RunState::Ended(ending).on(by).is_none()), "{ending:?}");
        }
    }

    #[test]
    fn every_state_is_reached_from_the_queue_and_every_state_under_way_can_end() {
        let mut reached = vec![RunState::Pending];
        while let Some(new) = {
            let next = reached.iter().flat_map(|state| moves().filter_map(|by| state.on(by)));
            next.into_iter().find(|state| !reached.contains(state))
        } {
            reached.push(new);
        }
        assert!(RunState::all().all(|state| reached.contains(&state)));
        let cancel = Move::End(Ending::Cancelled);
        let under_way = RunState::all().filter(|state| !matches!(state, RunState::Ended(_)));
        for state in under_way {
            assert_eq!(state.on(cancel), Some(RunState::Ended(Ending::Cancelled)), "{state:?} can be cancelled");
        }
    }

    #[test]
    fn only_an_executor_completes_a_run_or_says_that_it_is_hot() {
        for state in RunState::all().filter(|state| *state != RunState::Running) {
            assert_eq!(state.on(Move::End(Ending::Hot)), None, "{state:?}");
        }
        assert_eq!(RunState::Pending.on(Move::End(Ending::Completed)), None);
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for pause in PAUSES {
            assert_eq!(Pause::from_word(pause.word()), Some(pause));
        }
        assert_eq!(Pause::from_word("running"), None);
    }
}
