//! The flow of a run: branches, loops, lanes, the end.

use super::{End, Frame, Kept, LaneFailure, MAX_ROUNDS, Machine, Thread, ThreadScope, Wait, WaitFor, error, fault};
use crate::expr::{Budget, Scope};
use crate::ids::WaitNo;
use crate::program::StopStatus;
use crate::steps::Repeat;
use crate::value::Value;

impl Machine<'_> {
    pub(crate) fn pop_frame(&mut self, place: usize) {
        if let Some(frame) = self.state.threads[place].frames.pop() {
            self.count_left(place, &frame);
            self.state.threads[place].vars = frame.vars;
        }
    }

    pub(super) fn begin_loop(&mut self, place: usize, number: usize, done: usize, world: &dyn Scope) {
        let program = self.program;
        let Some(repeat) = program.steps[number].action.repeat() else { return self.step_on(place) };
        let evaluate = |expr: &crate::expr::Expr| {
            let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
            expr.eval(&scope, &mut Budget::default()).map_err(|error| fault(&error, expr.text()))
        };
        let (rounds, items) = match repeat {
            Repeat::While(_) | Repeat::Until(_) => (None, None),
            Repeat::Count(expr) => match evaluate(expr).and_then(|value| rounds_of(&value)) {
                Ok(rounds) => (Some(rounds), None),
                Err(error) => return self.failed(place, number, error),
            },
            Repeat::Each(expr) => match evaluate(expr).and_then(items_of) {
                Ok((rounds, items)) => (Some(rounds), Some(Kept(items))),
                Err(error) => return self.failed(place, number, error),
            },
        };
        let thread = &mut self.state.threads[place];
        if rounds == Some(0) {
            thread.pc = done;
            return;
        }
        thread.frames.push(Frame { vars: thread.vars.clone(), round: 1, rounds, items, counted: 0 });
        let begin = match repeat {
            Repeat::While(condition) => self.holds(place, condition, world),
            Repeat::Count(_) | Repeat::Until(_) | Repeat::Each(_) => Ok(true),
        };
        match begin {
            Ok(true) => self.state.threads[place].pc += 1,
            Ok(false) => {
                self.pop_frame(place);
                self.state.threads[place].pc = done;
            }
            Err(error) => {
                self.pop_frame(place);
                self.failed(place, number, error);
            }
        }
    }

    pub(super) fn next_round(&mut self, place: usize, number: usize, body: usize, world: &dyn Scope) {
        let program = self.program;
        let Some(repeat) = program.steps[number].action.repeat() else { return self.step_on(place) };
        let again = match repeat {
            Repeat::Until(condition) => self.holds(place, condition, world).map(|holds| !holds),
            Repeat::Count(_) | Repeat::While(_) | Repeat::Each(_) => Ok(true),
        };
        let Some(frame) = self.state.threads[place].frames.last_mut() else { return self.step_on(place) };
        frame.round += 1;
        let (round, rounds) = (frame.round, frame.rounds);
        let again = match (again, repeat) {
            (Ok(true), Repeat::While(condition)) => self.holds(place, condition, world),
            (Ok(true), Repeat::Count(_) | Repeat::Until(_) | Repeat::Each(_)) => {
                Ok(rounds.is_none_or(|rounds| round <= rounds))
            }
            (other, _) => other,
        };
        match again {
            Ok(true) if round > MAX_ROUNDS => {
                self.pop_frame(place);
                let message = format!("a loop does not take more than {MAX_ROUNDS} rounds");
                self.failed(place, number, error("54000", &message, None));
            }
            Ok(true) => {
                self.count_round(place);
                self.state.threads[place].pc = body;
            }
            Ok(false) => {
                self.pop_frame(place);
                self.state.threads[place].pc += 1;
            }
            Err(error) => {
                self.pop_frame(place);
                self.failed(place, number, error);
            }
        }
    }

    pub(super) fn fork(&mut self, place: usize, lanes: &[usize], join: usize) {
        let Thread { id: parent, vars, wait_result, .. } = self.state.threads[place].clone();
        let (step, _) = self.current(place);
        for pc in lanes {
            let id = self.state.next_thread;
            self.state.next_thread += 1;
            let (vars, wait_result) = (vars.clone(), wait_result.clone());
            let lane = Thread { id, parent: Some(parent), pc: *pc, vars, wait_result, ..Thread::default() };
            self.state.threads.push(lane);
        }
        // Nothing outside of the run can end this wait, so it needs no number.
        let what = WaitFor::Lanes { left: lanes.len() as u32, failed: None };
        let thread = &mut self.state.threads[place];
        thread.pc = join;
        thread.wait = Some(Wait { no: WaitNo::NONE, step, what, since: 0, due: None });
    }

    pub(super) fn finish_thread(&mut self, place: usize) {
        match self.state.threads[place].parent {
            Some(parent) => self.leave_lane(place, parent, None),
            None => {
                let end = End { status: StopStatus::Completed, reason: None, step: None, error: None };
                match self.state.failing.take() {
                    None => self.finish(end),
                    Some(failing) => self.end_failed(failing),
                }
            }
        }
    }

    pub(super) fn leave_lane(&mut self, place: usize, parent: u32, error: Option<Value>) {
        let lane = self.state.threads.remove(place);
        let place = self.place_of(parent);
        let Some(Wait { step, what: WaitFor::Lanes { left, failed }, .. }) = &mut self.state.threads[place].wait else {
            return;
        };
        *left -= 1;
        if let Some(error) = error {
            let nothing = || Box::new(LaneFailure { error: Kept(error), threads: Vec::new() });
            failed.get_or_insert_with(nothing).threads.push(lane);
        }
        if *left > 0 {
            return;
        }
        match failed.as_ref().map(|failed| failed.error.0.clone()) {
            None => self.state.threads[place].wait = None,
            Some(error) => {
                let step = *step;
                self.failed(place, step, error);
            }
        }
    }
}

fn rounds_of(value: &Value) -> Result<u32, Value> {
    let number = value.as_number().and_then(|number| number.to_string().parse::<i64>().ok());
    match number {
        Some(rounds @ 0..) if rounds <= i64::from(MAX_ROUNDS) => Ok(rounds as u32),
        Some(0..) => Err(error("54000", &format!("a loop does not take more than {MAX_ROUNDS} rounds"), None)),
        _ => {
            let message = format!("the count of a loop is {}, not a whole number from 0", value.to_json());
            Err(error("22023", &message, None))
        }
    }
}

fn items_of(value: Value) -> Result<(u32, Value), Value> {
    match &value {
        Value::Null => Ok((0, value)),
        Value::List(items) if items.len() <= MAX_ROUNDS as usize => Ok((items.len() as u32, value)),
        Value::List(items) => {
            let message = format!("a loop does not take more than {MAX_ROUNDS} rounds, the list has {}", items.len());
            Err(error("54000", &message, None))
        }
        other => Err(error("22023", &format!("for_each needs a list, not {}", other.type_name()), None)),
    }
}
