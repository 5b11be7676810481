//! Executors: claim a dispatch, walk the run, commit. Between looking and committing others go on.

use crate::actors::{Lock, Pending, Protocol, Simulation};
use crate::checks;
use crate::database::*;
use automation_core::expr::Budget;
use automation_core::ids::{RunId, WaitNo};
use automation_core::machine::{Cause, Machine, Next, State, Wait, WaitFor, Woke, error};
use automation_core::program::{Action, StopStatus};
use automation_core::steps::{Publish, Run};
use automation_core::topic;
use automation_core::value::{Timestamp, Value};

/// A run in the hands of an executor.
struct Walk {
    run: i64,
    live: Live,
    before: Vec<Wait>,
    pending: Pending,
}

/// A run's key: what signals for it alone carry. Every other run takes any.
pub fn key_of(run: i64) -> Option<String> {
    (run % 2 == 0).then(|| run.to_string())
}

pub fn world(simulation: &Simulation, run: i64, started: i64) -> World {
    let root = vec![("id".into(), Value::int(run)), ("at".into(), Value::Time(Timestamp(started)))];
    World { entities: simulation.db.entities.clone(), now: simulation.now, run: Value::object(root), event: None }
}

/// May this wait have this signal?
pub fn fits(wait: &Wait, signal: &Signal) -> bool {
    let WaitFor::Signal { name, key } = &wait.what else { return false };
    *name == signal.name && (key.is_none() || signal.key.is_none() || *key == signal.key)
}

impl Simulation {
    /// Takes a dispatch that nobody else has. None if there is none, or it has to wait.
    pub fn claim(&mut self) -> Option<Pending> {
        let free: Vec<i64> =
            self.db.dispatches.keys().copied().filter(|id| !self.locked(Lock::Dispatch(*id))).collect();
        let id = *self.chance.pick(&free[..free.len().min(6)])?;
        let dispatch = self.db.dispatches[&id].clone();
        let done = |locks| Pending { writes: vec![Write::DispatchGone(id)], locks, look: None };
        let run = dispatch.run;
        if self.db.ended.contains_key(&run) {
            return Some(done(vec![Lock::Dispatch(id)]));
        }
        if self.locked(Lock::Run(run)) && self.protocol != Protocol::NoRunLock {
            // never drop it: whoever has the run may have looked too early
            return (self.protocol == Protocol::DropOnContention).then(|| done(vec![Lock::Dispatch(id)]));
        }
        let pending = done(vec![Lock::Dispatch(id), Lock::Run(run)]);
        match dispatch.why {
            Why::Start { automation, parent } => Some(self.start(run, automation, parent, pending)),
            // it has not begun yet
            _ if !self.db.runs.contains_key(&run) => None,
            Why::Cancel => Some(self.cancel(run, pending)),
            why => self.nudge(run, dispatch.wait, why, pending),
        }
    }

    /// Looks once more at what was armed, in a transaction after the one that armed it.
    pub fn look_after_commit(&mut self, run: i64) -> Option<Pending> {
        if self.locked(Lock::Run(run)) || !self.db.runs.contains_key(&run) {
            return None;
        }
        let armed = |timer: &&(i64, i64, WaitNo, TimerKind)| timer.1 == run && timer.3 == TimerKind::Arm;
        let wait = self.db.timers.iter().find(armed)?.2;
        let pending = Pending { writes: Vec::new(), locks: vec![Lock::Run(run)], look: Some(run) };
        self.nudge(run, wait, Why::Arm, pending)
    }

    fn start(&mut self, run: i64, automation: usize, parent: Option<i64>, pending: Pending) -> Pending {
        let live = Live {
            automation,
            parent,
            started: self.now,
            state: String::new(),
            seen: Default::default(),
            moves: Vec::new(),
        };
        let program = &self.family[automation];
        let mut machine = Machine::new(program, State::new(), run as u64, key_of(run));
        let world = world(self, run, self.now);
        let mut walk = Walk { run, live, before: Vec::new(), pending };
        walk.live.moves.push(Move { wait: WaitNo::NONE, cause: None, world: world.clone(), outcomes: Vec::new() });
        self.walk(walk, &mut machine, &world)
    }

    fn cancel(&mut self, run: i64, mut pending: Pending) -> Pending {
        let live = self.db.runs[&run].clone();
        let state: State = serde_json::from_str(&live.state).expect("a state");
        for child in state.children() {
            pending.writes.push(Write::Event(self.next_id(), Event::Cancel { run: child }));
        }
        self.put_out(run, &live, &waits(&state), "cancelled", Value::Null, &mut pending);
        pending
    }

    /// Something may have happened that a wait waits for.
    fn nudge(&mut self, run: i64, wait_no: WaitNo, why: Why, mut pending: Pending) -> Option<Pending> {
        let mut live = self.db.runs[&run].clone();
        let state: State = serde_json::from_str(&live.state).expect("a state");
        let before = waits(&state);
        let number = match self.protocol {
            Protocol::IgnoreNumber => before.first().map_or(wait_no, |wait| wait.no),
            _ => wait_no,
        };
        let mut machine = Machine::new(&self.family[live.automation], state, run as u64, key_of(run));
        let Some(wait) = machine.state.wait(number).cloned() else { return Some(pending) };
        let mut world = world(self, run, live.started);
        let due = (why == Why::Due).then_some(Cause::Timer);
        let cause = match (&wait.what, &why) {
            (_, Why::Skip) => Some(Cause::Skip),
            (WaitFor::Event { topic }, _) => match self.wanted(&machine, &wait, topic, &live, &why, &world) {
                Some(event) => {
                    world.event = Some(event);
                    Some(Cause::Event)
                }
                None => due,
            },
            (WaitFor::Signal { .. }, _) => {
                let fitting: Vec<i64> =
                    self.db.signals.iter().filter(|(_, signal)| fits(&wait, signal)).map(|(id, _)| *id).collect();
                match fitting.iter().find(|id| !self.locked(Lock::Signal(**id))) {
                    Some(id) => {
                        pending.locks.push(Lock::Signal(*id));
                        pending.writes.push(Write::SignalGone(*id));
                        Some(Cause::Signal(Value::Null))
                    }
                    // Somebody is about to take it, and may yet leave it: ask again.
                    None if !fitting.is_empty() && self.protocol != Protocol::SkipLockedSignal => return None,
                    None => due,
                }
            }
            (WaitFor::Run { run: child }, _) => match self.db.ended.get(&child.0) {
                Some((status, output)) => {
                    let (status, output) = ((*status).to_owned(), output.clone());
                    Some(Cause::Ended { status, output, error: Value::Null })
                }
                None => due,
            },
            (_, Why::Due) => Some(Cause::Timer),
            _ => Some(Cause::Look),
        };
        let woke = match cause.clone() {
            Some(cause) => machine.wake(number, cause, &world),
            None => Woke::NotYet,
        };
        if why == Why::Skip && woke == Woke::Moved {
            let skipped = machine.take_records().first().map(|record| record.step);
            if let Some(step) = skipped.filter(|step| !self.db.skips.contains(&(run, *step))) {
                self.wrong(format!("nobody asked to skip step {step} of run {run}"));
            }
        }
        if woke != Woke::Moved {
            pending.writes.push(Write::ArmGone(run, number));
            if wait.what == WaitFor::Until {
                pending.writes.push(Write::LookGone(run, number));
                let again =
                    machine.look_again(&wait, &world).map(|at| Write::Timer(at.0, run, number, TimerKind::Look));
                pending.writes.extend(again);
            }
            return Some(pending);
        }
        live.moves.push(Move { wait: number, cause, world: world.clone(), outcomes: Vec::new() });
        world.event = None;
        Some(self.walk(Walk { run, live, before, pending }, &mut machine, &world))
    }

    /// The event that a wait wants: the one that came, or, when it is looked at for another reason, any since it began.
    fn wanted(
        &self,
        machine: &Machine<'_>,
        wait: &Wait,
        pattern: &str,
        live: &Live,
        why: &Why,
        world: &World,
    ) -> Option<Value> {
        let seen = live.seen.get(&wait.no);
        let candidates: Vec<i64> = match why {
            Why::Event(id) => vec![*id],
            _ => self.db.events.keys().copied().collect(),
        };
        candidates.into_iter().filter(|id| seen.is_none_or(|seen| !seen.contains(id))).find_map(|id| {
            let Event::Emitted { topic, n } = self.db.events.get(&id)? else { return None };
            if !topic::matches(pattern, topic) {
                return None;
            }
            let event = event_value(topic, *n);
            let mut trial = Machine::new(machine.program(), machine.state.clone(), 0, None);
            let there = World { event: Some(event.clone()), ..world.clone() };
            let wants = trial.wake(wait.no, Cause::Event, &there) == Woke::Moved;
            wants.then_some(event)
        })
    }

    fn walk(&mut self, mut walk: Walk, machine: &mut Machine<'_>, world: &World) -> Pending {
        loop {
            match machine.advance(world) {
                Next::Act { thread, step } => {
                    let outcome = self.perform(&mut walk, machine, thread, step, world);
                    let paused = self.chance.one_in(25);
                    if paused {
                        machine.pause_here(self.now);
                    }
                    if let Some(last) = walk.live.moves.last_mut() {
                        last.outcomes.push(outcome);
                        last.outcomes.extend(paused.then_some(Performed::Paused));
                    }
                }
                Next::Suspend => return self.put_away(walk, machine, world),
                Next::End(end) => {
                    let status = match end.status {
                        StopStatus::Completed => "completed",
                        StopStatus::Failed => "failed",
                        StopStatus::Cancelled => "cancelled",
                    };
                    let program = machine.program();
                    if let Err(problem) = checks::replay(program, walk.run, &walk.live.moves, status, &machine.output())
                    {
                        self.wrong(problem);
                    }
                    let Walk { run, live, before, mut pending } = walk;
                    for child in machine.take_abandoned() {
                        pending.writes.push(Write::Event(self.next_id(), Event::Cancel { run: child }));
                    }
                    self.put_out(run, &live, &before, status, machine.output(), &mut pending);
                    return pending;
                }
            }
        }
    }

    fn perform(
        &mut self,
        walk: &mut Walk,
        machine: &mut Machine<'_>,
        thread: u32,
        step: usize,
        world: &World,
    ) -> Performed {
        if self.chance.one_in(8) {
            machine.fail(thread, error("22012", "by chance", None), self.now);
            return Performed::Failed(step);
        }
        match &machine.program().steps[step].action {
            Action::Run(Run { automation, .. }) => {
                let child = self.next_id();
                let number = automation.trim_start_matches('a').parse().expect("a0, a1, ...");
                let event = Event::Started { run: child, automation: number, parent: Some(walk.run) };
                walk.pending.writes.push(Write::Event(self.next_id(), event));
                machine.wait_for_run(thread, RunId(child), self.now);
                Performed::Started(step, child)
            }
            Action::Publish(Publish { payload, .. }) => {
                let value = payload.eval(&machine.scope(thread, world), &mut Budget::default()).expect("a payload");
                let path = value.get("path").and_then(Value::to_text).unwrap_or_default();
                walk.pending.writes.push(Write::Effect(walk.run, step, path.clone()));
                machine.succeed(thread, Value::object(vec![("n".into(), Value::int(1))]));
                Performed::Done(step, path)
            }
            other => panic!("nobody performs a step of kind {}", other.kind().name()),
        }
    }

    /// The run suspends: its row, what can wake it and when it is due are written together.
    fn put_away(&mut self, walk: Walk, machine: &mut Machine<'_>, world: &World) -> Pending {
        let Walk { run, mut live, before, mut pending } = walk;
        let after = waits(&machine.state);
        for child in machine.take_abandoned() {
            pending.writes.push(Write::Event(self.next_id(), Event::Cancel { run: child }));
        }
        for old in before.iter().filter(|old| !after.iter().any(|wait| wait.no == old.no)) {
            pending.writes.push(Write::WaitGone(run, old.no));
            live.seen.remove(&old.no);
        }
        for wait in after.iter().filter(|wait| !before.iter().any(|old| old.no == wait.no)) {
            let rows = sources(machine, wait, world).into_iter();
            pending.writes.extend(rows.map(|source| Write::Index(run, wait.no, source)));
            pending.writes.extend(wait.due.map(|at| Write::Timer(at, run, wait.no, TimerKind::Due)));
            let again = machine.look_again(wait, world);
            pending.writes.extend(again.map(|at| Write::Timer(at.0, run, wait.no, TimerKind::Look)));
            if is_armed(wait) && self.protocol != Protocol::NoArm {
                pending.writes.push(Write::Timer(self.now, run, wait.no, TimerKind::Arm));
                pending.look = self.chance.one_in(2).then_some(run);
            }
            if matches!(wait.what, WaitFor::Event { .. }) {
                live.seen.insert(wait.no, self.db.events.keys().copied().collect());
            }
        }
        live.state = serde_json::to_string(&machine.state).expect("a state is JSON");
        pending.writes.push(Write::Run(run, Box::new(live)));
        pending
    }

    /// The run is over: nothing of it stays but its end, and whoever waits for that hears of it.
    fn put_out(
        &mut self,
        run: i64,
        live: &Live,
        waits: &[Wait],
        status: &'static str,
        output: Value,
        pending: &mut Pending,
    ) {
        pending.writes.extend(waits.iter().map(|wait| Write::WaitGone(run, wait.no)));
        pending.writes.push(Write::Ended(run, status, output));
        if live.parent.is_some() {
            pending.writes.push(Write::Event(self.next_id(), Event::Ended { run }));
        }
    }
}
