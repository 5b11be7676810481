//! Where a run that repeats a failed run goes on.
//!
//! Completed steps are not done again: a lane that had completed stays so, and a lane that failed goes on at the step
//! that failed. Only a step that the caller names begins anew, with all steps after it in its lane.

use super::{Frame, State, Thread, Wait, WaitFor};
use crate::program::{Op, Program};
use crate::steps::StepKind;
use std::ops::Range;

/// Why a run cannot go on at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStart {
    /// The program has no such step, or the step has no meaning by itself, such as a step of a loop.
    Unknown,
    /// The step is in a lane, and the run did not fail while the lanes were under way.
    NotInLanes {
        /// The `parallel` that the lane belongs to.
        parallel: String,
    },
}

impl State {
    /// The state of a failed run, ready to try again the steps that failed.
    pub fn to_try_again(mut self, program: &Program) -> State {
        self.failing = None;
        (self.executed, self.taken) = (0, 0);
        // the bulk job has counted the failed run already
        self.job = None;
        let mut place = 0;
        // lanes that come back may have lanes themselves
        while let Some(thread) = self.threads.get_mut(place) {
            thread.failed = 0;
            thread.frames.iter_mut().for_each(|frame| frame.counted = 0);
            let mut back = Vec::new();
            match &mut thread.wait {
                Some(Wait { step, what: WaitFor::Lanes { left, failed }, .. }) => {
                    if let Some(lanes) = failed.take_if(|lanes| !lanes.threads.is_empty()) {
                        *left += lanes.threads.len() as u32;
                        back = lanes.threads;
                        // the `parallel` has not failed in the new run
                        let step = program.steps.get(*step).map(|step| &step.id);
                        self.results.retain(|(id, _)| Some(id) != step);
                    }
                }
                other => *other = None,
            }
            self.threads.extend(back);
            place += 1;
        }
        self
    }

    /// The state of a run that is ready to try again, moved to a step. At a step of the run itself the run begins
    /// there, with the results of its steps and the variables outside of blocks. At a step of a lane, that lane goes on
    /// there and the others stay as they are.
    pub fn at(mut self, program: &Program, id: &str) -> Result<State, NoStart> {
        let step = program.steps.iter().position(|step| step.id == id).ok_or(NoStart::Unknown)?;
        if !program.can_begin(step) {
            return Err(NoStart::Unknown);
        }
        let Some(lane) = program.lane_of(step) else {
            let first = self.threads.first_mut().map(std::mem::take).unwrap_or_default();
            let vars = first.frames.into_iter().next().map_or(first.vars, |frame| frame.vars);
            self.threads = vec![Thread { pc: program.begin(step), vars, ..Thread::default() }];
            return Ok(State { results: self.results, item: self.item, threads: self.threads, ..State::new() });
        };
        let not_there = || NoStart::NotInLanes { parallel: program.steps[lane.parallel].id.clone() };
        let around = self.threads.iter_mut().find(|thread| thread.lanes_of() == Some(lane.parallel));
        let around = around.ok_or_else(not_there)?;
        let (parent, vars, wait_result) = (around.id, around.vars.clone(), around.wait_result.clone());
        let known = self.threads.iter().position(|t| t.parent == Some(parent) && lane.code.contains(&t.pc));
        let place = known.unwrap_or_else(|| {
            let id = self.next_thread;
            self.next_thread += 1;
            if let Some(Wait { what: WaitFor::Lanes { left, .. }, .. }) =
                self.threads.iter_mut().find(|thread| thread.id == parent).and_then(|thread| thread.wait.as_mut())
            {
                *left += 1;
            }
            let pc = lane.code.start;
            self.threads.push(Thread { id, parent: Some(parent), pc, vars, wait_result, ..Thread::default() });
            self.threads.len() - 1
        });
        let id = self.threads[place].id;
        self.threads[place].move_to(program, step);
        self.drop_lanes_of(id);
        Ok(self)
    }

    /// Forgets the lanes of a thread, and the lanes inside of those.
    fn drop_lanes_of(&mut self, thread: u32) {
        let mut gone = vec![thread];
        while let Some(parent) = gone.pop() {
            gone.extend(self.threads.iter().filter(|lane| lane.parent == Some(parent)).map(|lane| lane.id));
            self.threads.retain(|lane| lane.parent != Some(parent));
        }
    }

    /// The steps at which [`State::at`] can go on, in the order of the document.
    pub fn places<'p>(&self, program: &'p Program) -> Vec<&'p str> {
        let steps = program.steps.iter();
        steps.map(|step| step.id.as_str()).filter(|id| self.clone().at(program, id).is_ok()).collect()
    }
}

impl Thread {
    /// The `parallel` whose lanes the thread waits for.
    fn lanes_of(&self) -> Option<usize> {
        let wait = self.wait.as_ref()?;
        matches!(wait.what, WaitFor::Lanes { .. }).then_some(wait.step)
    }

    /// Moves the thread to a step of the same lane. Variables of the blocks around that step stay as they are.
    fn move_to(&mut self, program: &Program, step: usize) {
        let (here, there) = (program.around(program.step_at(self.pc)), program.around(step));
        let shared = here.iter().zip(&there).take_while(|(here, there)| here == there).count();
        let kept = program.steps[there.get(shared).copied().unwrap_or(step)].frames;
        while self.frames.len() > kept
            && let Some(frame) = self.frames.pop()
        {
            self.vars = frame.vars;
        }
        while self.frames.len() < program.steps[step].frames {
            self.frames.push(Frame { vars: self.vars.clone(), ..Frame::default() });
        }
        self.pc = program.begin(step);
        self.failed = 0;
        self.wait = None;
    }
}

/// A lane of a `parallel`.
struct Lane {
    parallel: usize,
    /// Its instructions.
    code: Range<usize>,
}

impl Program {
    /// The step that an instruction is about, or leads to.
    pub(super) fn step_at(&self, mut pc: usize) -> usize {
        loop {
            match self.code.get(pc) {
                Some(Op::Jump(target)) => pc = *target,
                Some(Op::Open | Op::Close) => pc += 1,
                _ => break,
            }
        }
        // behind the last step of a lane stands its end
        self.code.iter().take(pc + 1).rev().find_map(Op::step).unwrap_or_default()
    }

    /// The steps around a step within its lane, outermost first.
    fn around(&self, step: usize) -> Vec<usize> {
        let mut steps: Vec<usize> = std::iter::successors(self.steps[step].within, |s| self.steps[*s].within).collect();
        steps.reverse();
        steps
    }

    /// The innermost lane that a step is in.
    fn lane_of(&self, step: usize) -> Option<Lane> {
        let pc = self.begin(step);
        let forks = self.code.iter().filter_map(|op| match op {
            Op::Fork { step, lanes, join } => Some((*step, lanes, *join)),
            _ => None,
        });
        let lanes = forks.flat_map(|(parallel, lanes, join)| {
            let ends = lanes.iter().skip(1).copied().chain([join]);
            lanes.iter().zip(ends).map(move |(start, end)| Lane { parallel, code: *start..end })
        });
        lanes.filter(|lane| lane.code.contains(&pc)).max_by_key(|lane| lane.code.start)
    }

    /// Can a run begin at a step? At a step outside of all blocks, and in a lane at a step with nothing but sequences
    /// around it: a step of a loop or of a way means nothing without its round or its choice.
    fn can_begin(&self, step: usize) -> bool {
        let pc = self.begin(step);
        if self.on_failure.is_some_and(|failure| pc >= failure) {
            return false;
        }
        match self.lane_of(step) {
            None => self.steps[step].path.matches('[').count() == 1,
            Some(lane) => {
                // the rows of a bulk step have runs of their own
                let bodies = self.steps.iter().filter_map(|step| step.action.body_of_rows());
                let mut bodies = bodies.filter(|body| *body > lane.code.start);
                let in_bulk = bodies.any(|body| self.bulk_code(body).contains(&pc));
                let around = self.around(step);
                !in_bulk && around.into_iter().all(|step| self.steps[step].action.kind() == StepKind::Sequence)
            }
        }
    }

    /// The instructions for the rows of a bulk step, which the run itself jumps over.
    fn bulk_code(&self, body: usize) -> Range<usize> {
        match body.checked_sub(1).and_then(|jump| self.code.get(jump)) {
            Some(Op::Jump(end)) => body..*end,
            _ => 0..0,
        }
    }
}
