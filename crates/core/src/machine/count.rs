//! How many steps a run may take.
//!
//! `max_steps` is there to end runs that would never end by themselves: branches back, `repeat_while`, `repeat_until`.
//! A loop whose rounds are known when it begins (`for_each`, `repeat_count`) ends anyway, so its rounds do not add up:
//! each round begins with the count with which the first began. An endless loop inside of one round is still cut off,
//! and so is a branch that comes back to the loop, because the loop itself and its last round count. [`MOST_STEPS`]
//! bounds the size of a run.

use super::{Frame, Machine, error};
use crate::value::Value;

/// Most steps of a run, the rounds of all loops included: the history keeps a line of each step.
pub const MOST_STEPS: u32 = 1_000_000;

impl Frame {
    /// Does the frame belong to a loop whose number of rounds is known?
    fn is_bounded(&self) -> bool {
        self.rounds.is_some()
    }
}

impl Machine<'_> {
    /// Counts a step that is about to be taken. An error if the step is one too many.
    pub(super) fn count(&mut self, place: usize) -> Result<(), Value> {
        self.state.executed += 1;
        self.state.taken = self.state.taken.saturating_add(1);
        if let Some(frame) = self.bounded_loop(place) {
            frame.counted += 1;
        }
        // the steps of on_failure may be as many again
        let times = if self.state.failing.is_some() { 2 } else { 1 };
        let (most, hint) = if self.state.executed > self.program.max_steps.saturating_mul(times) {
            (self.program.max_steps, "Raise max_steps if so many are meant.")
        } else if self.state.taken > MOST_STEPS.saturating_mul(times) {
            (
                MOST_STEPS,
                "No run takes more, whatever its max_steps; the step bulk does its steps in a run for each row.",
            )
        } else {
            return Ok(());
        };
        let message = format!("Automation exceeded {most} step executions \u{2014} cancelled to prevent a loop");
        Err(error("54000", &message, Some(hint)))
    }

    /// Takes back the count of a step that is not taken yet.
    pub(super) fn uncount(&mut self, place: usize) {
        self.state.executed = self.state.executed.saturating_sub(1);
        self.state.taken = self.state.taken.saturating_sub(1);
        if let Some(frame) = self.bounded_loop(place) {
            frame.counted = frame.counted.saturating_sub(1);
        }
    }

    /// The innermost loop of a thread begins its next round.
    pub(super) fn count_round(&mut self, place: usize) {
        let innermost = self.state.threads[place].frames.last_mut().filter(|frame| frame.is_bounded());
        let counted = innermost.map_or(0, |frame| std::mem::take(&mut frame.counted));
        self.state.executed = self.state.executed.saturating_sub(counted);
    }

    /// A loop is left: the steps of its last round are counted with the round of the loop around it.
    pub(super) fn count_left(&mut self, place: usize, left: &Frame) {
        if left.counted > 0
            && let Some(frame) = self.bounded_loop(place)
        {
            frame.counted += left.counted;
        }
    }

    /// The innermost loop with a known number of rounds that a thread is in; that of the thread around it if a lane has
    /// none of its own.
    fn bounded_loop(&mut self, place: usize) -> Option<&mut Frame> {
        let mut place = place;
        let frame = loop {
            let thread = &self.state.threads[place];
            if let Some(frame) = thread.frames.iter().rposition(Frame::is_bounded) {
                break frame;
            }
            let parent = thread.parent?;
            place = self.state.threads.iter().position(|other| other.id == parent)?;
        };
        self.state.threads[place].frames.get_mut(frame)
    }
}
