//! Resuming a live run: evaluates its waits after a wake-up, a deadline, a signal or a person's order, and lets it go
//! on.
use std::rc::Rc;

use automation_core::definition::OnPause;
use automation_core::ids::{EventId, WaitNo};
use automation_core::machine::{Cause, Machine, State, Wait, WaitFor, Woke, error};
use automation_core::program::StopStatus;
use automation_core::run_state::Pause;
use automation_core::topic::engine::hears;
use automation_core::value::Value;

use super::batch::Outcome;
use super::bulk::{Standing, standing};
use super::claimer::Claimer;
use super::gates::{self, Class};
use super::start::enter;
use super::sweep;
use super::walk::{Walk, Walked, too_late};
use crate::definitions::derived;
use crate::definitions::tenant_view::tenant_matches;
use crate::definitions::versions::{self, Version};
use crate::event_log::events::Event;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::identity;
use crate::pg::snapshot::Snapshot;
use crate::runs::end::cancelled;
use crate::runs::error::error_json;
use crate::runs::in_hand;
use crate::runs::run::{Run, of_live};
use crate::runs::scope::RunScope;
use crate::runs::suspend;
use crate::store::automations;
use crate::store::bulk;
use crate::store::dispatches::Reason;
use crate::store::history::{self, EndedRun, Ending};
use crate::store::live::{LiveRun, Seen, WaitNote};
use crate::store::signals::{self, Taken};

/// The reason to evaluate a wait.
#[derive(Clone, Debug)]
pub struct Nudge {
    pub wait_no: WaitNo,
    pub reason: Reason,
    /// The event that may end the wait.
    pub event: Option<Rc<Event>>,
}

/// The outcome of a run that has ended, with the runs and jobs that it waited for and leaves abandoned.
pub fn conclude(machine: &mut Machine<'_>, mut ended: EndedRun) -> Outcome {
    ended.abandoned = machine.take_abandoned();
    Outcome::Ended(ended)
}

/// Lets a run go on if one of the nudges ends its wait.
pub fn resume(claimer: &mut Claimer, live: LiveRun, nudges: &[Nudge]) -> Outcome {
    let taken = match TakenUp::new(claimer, live, nudges) {
        Ok(taken) => taken,
        Err(outcome) => return outcome,
    };
    let _context = enter(&taken.run);
    let event = taken.live.event.clone();
    identity::as_role(taken.run.owner, || taken.wake(claimer, &event, nudges))
}

/// A live run that an executor has taken up.
struct TakenUp {
    live: LiveRun,
    run: Run,
    version: Rc<Version>,
    state: State,
    /// The run was queued behind others with the same key, and its turn has come.
    its_turn: bool,
}

impl TakenUp {
    /// Takes the run up if it can be read and no other run or session prevents that; otherwise returns the outcome for
    /// it.
    fn new(claimer: &mut Claimer, live: LiveRun, nudges: &[Nudge]) -> Result<TakenUp, Outcome> {
        let run = of_live(&live);
        let fail = |reason: &'static str, problem: String| {
            let error = Some(error_json(&PgError::new("XX000", problem), None));
            let ended = run.ended(Ending::Failed, Some(reason));
            Outcome::Ended(EndedRun { error, live: Some(live.waits.clone()), ..ended })
        };
        let version = versions::get(run.version_id).map_err(|problem| fail("version_unreadable", problem))?;
        let state: State = serde_json::from_str(&live.state)
            .map_err(|_| fail("state_unreadable", "the state of the run cannot be read".to_owned()))?;
        let mut taken = TakenUp { run: Run { item: state.job, ..run }, live, version, state, its_turn: false };
        match taken.run.item.map_or(Standing::GoOn, |item| standing(claimer, item.job)) {
            Standing::GoOn => {}
            Standing::Cancelled => {
                in_hand::note(taken.run.id);
                return Err(Outcome::Ended(cancelled(&taken.live, "cancelled")));
            }
            Standing::Undecided => return Err(taken.later(claimer, nudges)),
        }
        if !taken.live.active && taken.freezes() {
            // The session that makes the automation active again must find the run frozen, or the run must not be
            // frozen at all.
            match automations::stays_as_it_is(taken.live.automation_id, taken.live.tenant.as_deref()) {
                Some(active) => taken.live.active = active,
                None => return Err(taken.later(claimer, nudges)),
            }
        }
        let is_queued = taken.live.pause == Pause::Queued;
        taken.its_turn = is_queued && gates::is_its_turn(&taken.live);
        if is_queued && !(taken.its_turn && sweep::may_call(claimer, &taken.live, nudges)) {
            return Err(Outcome::Stays);
        }
        if !taken.is_admitted(claimer) {
            return Err(taken.later(claimer, nudges));
        }
        if taken.its_turn {
            taken.live.pause = Pause::Waiting;
            taken.live.started_at = clock::engine_now();
            taken.run.started_at = taken.live.started_at;
        }
        Ok(taken)
    }

    fn freezes(&self) -> bool {
        self.version.program.on_pause == OnPause::Freeze
    }

    /// Do the gates let the run execute now?
    fn is_admitted(&self, claimer: &mut Claimer) -> bool {
        let program = &self.version.program;
        let class = if self.live.trigger_no < 0 { Class::Schedule } else { Class::Event };
        gates::may_move(claimer, &self.live, program)
            && gates::lock_entity(&self.run, program)
            && gates::admit(claimer, &self.run, program, class)
    }

    /// The run cannot be decided now: the dispatches that named it stay queued.
    fn later(&self, claimer: &mut Claimer, nudges: &[Nudge]) -> Outcome {
        claimer.unsettled.extend(nudges.iter().map(|nudge| (self.run.id, nudge.wait_no)));
        Outcome::Stays
    }

    /// Evaluates the waits that the nudges are about, and lets the run go on if one of them is over.
    fn wake(self, claimer: &mut Claimer, event: &Event, nudges: &[Nudge]) -> Outcome {
        let TakenUp { live, run, version, state, its_turn } = self;
        let world = run.scope(&version, event);
        let mut machine = Machine::new(&version.program, state, run.id.0 as u64, run.key.clone());
        let looked = if its_turn {
            Looked { moved: true, in_vain: Vec::new() }
        } else {
            look(claimer, &live, &mut machine, &world, nudges)
        };
        if !looked.moved {
            return stays(&live, &mut machine, &world, &looked.in_vain);
        }
        let on_pause = version.program.on_pause;
        let ends = nudges.iter().any(|nudge| nudge.reason == Reason::RunTimeout);
        let freezes = !live.active && on_pause == OnPause::Freeze && !ends;
        if !live.active && on_pause == OnPause::Drain {
            let reason = error("55000", "the automation is not active any more", None);
            machine.give_up(StopStatus::Cancelled, "automation_not_active", reason);
        }
        let mut walk = Walk { claimer, run: &run, version: version.clone(), steps: open_list(&live.steps) };
        let walked = if freezes { walk.stay(&mut machine) } else { walk.go(&mut machine, &world) };
        match walked {
            Walked::Ended(end) => {
                let mut ended = walk.history(&machine, &end);
                ended.live = Some(live.waits.clone());
                conclude(&mut machine, ended)
            }
            Walked::Suspended => {
                // Another wait of the run may have been evaluated without ending.
                look_again(&live, &machine, &world, &looked.in_vain);
                let (before, steps) = (live.waits.clone(), walk.steps_json());
                let pause = if freezes { Pause::Frozen } else { Pause::Waiting };
                let mut put = suspend::put_away(LiveRun { pause, steps, ..live }, &mut machine, &world, &before);
                if its_turn {
                    put.timers.extend(suspend::run_timeout(&put.run, &machine));
                }
                Outcome::Suspended(Box::new(put))
            }
        }
    }
}

/// The steps so far, as a JSON list that is still open at its end.
fn open_list(steps: &str) -> String {
    let open = steps.strip_suffix(']').unwrap_or_default();
    if open == "[" { String::new() } else { open.to_owned() }
}

/// The result of evaluating waits.
struct Looked {
    /// One of the waits is over.
    moved: bool,
    /// The waits that are not over, and why they were evaluated.
    in_vain: Vec<(WaitNo, Reason)>,
}

fn look(
    claimer: &mut Claimer,
    live: &LiveRun,
    machine: &mut Machine<'_>,
    world: &RunScope<'_>,
    nudges: &[Nudge],
) -> Looked {
    let mut looked = Looked { moved: false, in_vain: Vec::new() };
    for nudge in nudges {
        if nudge.reason == Reason::Sweep {
            looked.moved |= sweep::sweep(claimer, live, machine, world);
            continue;
        }
        match nudged(live, machine, nudge, world) {
            Ok(Woke::Moved) => looked.moved = true,
            // Its timer is gone; if the wait goes on, it needs another.
            Ok(Woke::NotYet) => looked.in_vain.push((nudge.wait_no, nudge.reason)),
            Ok(Woke::Gone) => {}
            Err(InOtherHands) => {
                claimer.unsettled.insert((live.id, nudge.wait_no));
            }
        }
    }
    looked
}

/// No wait ended; the time of the next evaluation may have changed.
fn stays(live: &LiveRun, machine: &mut Machine<'_>, world: &RunScope<'_>, looked_at: &[(WaitNo, Reason)]) -> Outcome {
    look_again(live, machine, world, looked_at);
    suspend::warn(live, machine);
    Outcome::Stays
}

/// Sets the timers for the next evaluation of waits that did not end.
fn look_again(live: &LiveRun, machine: &Machine<'_>, world: &RunScope<'_>, looked_at: &[(WaitNo, Reason)]) {
    for wait in machine.state.waits() {
        for (_, reason) in looked_at.iter().filter(|(no, _)| *no == wait.no) {
            suspend::look_later(live, machine, wait, *reason, world);
        }
    }
}

/// A row that this wait needs is locked by another transaction, which may roll back: retry later.
pub struct InOtherHands;

pub fn nudged(
    live: &LiveRun,
    machine: &mut Machine<'_>,
    nudge: &Nudge,
    world: &RunScope<'_>,
) -> Result<Woke, InOtherHands> {
    Ok(match nudge.reason {
        Reason::Thaw if live.pause == Pause::Frozen => Woke::Moved,
        Reason::Thaw => Woke::Gone,
        Reason::RunTimeout => {
            machine.give_up(StopStatus::Failed, "timed_out", too_late(machine.program()));
            Woke::Moved
        }
        _ => match machine.state.wait(nudge.wait_no).cloned() {
            Some(wait) => waited(live, machine, nudge, &wait, world)?,
            None => Woke::Gone,
        },
    })
}

fn waited(
    live: &LiveRun,
    machine: &mut Machine<'_>,
    nudge: &Nudge,
    wait: &Wait,
    world: &RunScope<'_>,
) -> Result<Woke, InOtherHands> {
    let no = nudge.wait_no;
    let note = live.waits.iter().find(|note| note.no == no);
    Ok(match (&wait.what, nudge.reason) {
        (_, Reason::Skip) => machine.wake(no, Cause::Skip, world),
        (WaitFor::Event { topic }, _) => {
            let woke = match &nudge.event {
                Some(event) => by_nudge(machine, no, note, topic, event, world),
                None if nudge.reason == Reason::Arm => by_log(machine, wait.step, no, note, topic, world),
                None => Woke::NotYet,
            };
            if woke == Woke::NotYet && nudge.reason == Reason::Due {
                // An event that was committed before the deadline beats it, even if it is routed after.
                return Ok(match by_newest(machine, no, note, topic, world) {
                    Woke::NotYet => machine.wake(no, Cause::Timer, world),
                    other => other,
                });
            }
            woke
        }
        (WaitFor::Signal { name, key }, _) => {
            match signals::take(name, key.as_deref(), live.owner, live.tenant.as_deref()) {
                Taken::Payload(payload) => {
                    let payload = Value::from_json(&payload).unwrap_or_default();
                    machine.wake(no, Cause::Signal(payload), world)
                }
                Taken::InOtherHands => return Err(InOtherHands),
                Taken::Nothing if nudge.reason == Reason::Due => machine.wake(no, Cause::Timer, world),
                Taken::Nothing => Woke::NotYet,
            }
        }
        (WaitFor::Run { run }, reason) => match history::outcomes(&[*run]).into_iter().next() {
            Some((_, status, output, failure)) => {
                let read =
                    |text: Option<String>| text.and_then(|text| Value::from_json(&text).ok()).unwrap_or_default();
                let (output, error) = (read(output), read(failure));
                machine.wake(no, Cause::Ended { status, output, error }, world)
            }
            None if reason == Reason::Due => machine.wake(no, Cause::Timer, world),
            None => Woke::NotYet,
        },
        (WaitFor::Bulk { job }, reason) => match bulk::ended(*job) {
            Some((status, counts, failure)) => {
                let read = |text: &str| Value::from_json(text).unwrap_or_default();
                let (output, error) = (read(&counts), failure.as_deref().map(read).unwrap_or_default());
                machine.wake(no, Cause::Ended { status, output, error }, world)
            }
            None if reason == Reason::Due => machine.wake(no, Cause::Timer, world),
            None => Woke::NotYet,
        },
        (_, Reason::Due) => machine.wake(no, Cause::Timer, world),
        _ => machine.wake(no, Cause::Look, world),
    })
}

/// Does an event on a topic end the wait? The run's tenant may see the event in another form, which has topics of its
/// own.
fn by_nudge(
    machine: &mut Machine<'_>,
    no: WaitNo,
    note: Option<&WaitNote>,
    topic: &str,
    event: &Rc<Event>,
    world: &RunScope<'_>,
) -> Woke {
    match world.seen(event) {
        None => Woke::NotYet,
        Some(seen) if Rc::ptr_eq(&seen, event) => by_event(machine, no, note, topic, event, world),
        Some(_) => {
            let heard = heard(&derived::current(), topic, event, world);
            let moved = heard.iter().any(|event| by_event(machine, no, note, topic, event, world) == Woke::Moved);
            if moved { Woke::Moved } else { Woke::NotYet }
        }
    }
}

/// An event of the log as the run's tenant sees it, on each topic that the pattern selects.
fn heard(derivers: &derived::Derivers, pattern: &str, event: &Rc<Event>, world: &RunScope<'_>) -> Vec<Rc<Event>> {
    let Some(event) = world.seen(event) else { return Vec::new() };
    derivers.heard(pattern, &event, |derived| world.may_hear(&event, derived))
}

/// Does an event end the wait?
fn by_event(
    machine: &mut Machine<'_>,
    no: WaitNo,
    note: Option<&WaitNote>,
    topic: &str,
    event: &Event,
    world: &RunScope<'_>,
) -> Woke {
    let old = note.and_then(|note| note.seen.as_ref()).is_some_and(|seen| was_seen(seen, event));
    if old || !wanted(machine, topic, event, world) {
        return Woke::NotYet;
    }
    machine.wake(no, Cause::Event, &world.with_event(event))
}

/// Is the event on the topic and of the automation's tenant, and may its owner see it?
fn wanted(machine: &Machine<'_>, pattern: &str, event: &Event, world: &RunScope<'_>) -> bool {
    hears(pattern, &event.topic()) && tenant_matches(machine.program().tenant.as_deref(), event) && world.may_see(event)
}

/// Was the event in the log already when the wait began?
fn was_seen(seen: &Seen, event: &Event) -> bool {
    if event.xid == seen.xid {
        return event.id <= EventId(seen.up_to);
    }
    Snapshot::parse(&seen.snapshot).is_some_and(|snapshot| snapshot.sees(event.xid))
}

/// Searches the log for events between the beginning of the wait and its arming, or, with a lookback, before.
fn by_log(
    machine: &mut Machine<'_>,
    step: usize,
    no: WaitNo,
    note: Option<&WaitNote>,
    topic: &str,
    world: &RunScope<'_>,
) -> Woke {
    let Some(note) = note else { return Woke::NotYet };
    let Some(seen) = &note.seen else { return Woke::NotYet };
    let derivers = derived::current();
    let lookback = machine.program().steps[step].action.awaited_event().and_then(|awaited| awaited.lookback);
    if let Some(lookback) = lookback {
        // Events carry the wall-clock time, the wait carries that of a clock which may have been set.
        let since = clock::now() - (clock::engine_now() - note.since).max(0);
        for event in crate::event_log::cursor::events_after(since - lookback) {
            for event in heard(&derivers, topic, &Rc::new(event), world) {
                if wanted(machine, topic, &event, world)
                    && machine.wake(no, Cause::Event, &world.with_event(&event)) == Woke::Moved
                {
                    return Woke::Moved;
                }
            }
        }
        // Events of transactions that began before and were committed since count as well, however long those took.
    }
    let Some(snapshot) = Snapshot::parse(&seen.snapshot) else { return Woke::NotYet };
    let mut above = 0;
    loop {
        let (events, more) = crate::event_log::cursor::events_since_seen(&snapshot, seen.xid, seen.floor, above);
        let last = events.last().map(|event| event.id);
        for event in events.into_iter().flat_map(|event| heard(&derivers, topic, &Rc::new(event), world)) {
            if by_event(machine, no, Some(note), topic, &event, world) == Woke::Moved {
                return Woke::Moved;
            }
        }
        match last.filter(|_| more) {
            Some(last) => above = last.0,
            None => return Woke::NotYet,
        }
    }
}

/// Searches the end of the log. The router takes a timer only when it has routed all events visible to it, so the
/// events that it has not routed are there.
fn by_newest(
    machine: &mut Machine<'_>,
    no: WaitNo,
    note: Option<&WaitNote>,
    topic: &str,
    world: &RunScope<'_>,
) -> Woke {
    let derivers = derived::current();
    let newest = crate::event_log::cursor::newest_events().into_iter();
    for event in newest.flat_map(|event| heard(&derivers, topic, &Rc::new(event), world)) {
        if by_event(machine, no, note, topic, &event, world) == Woke::Moved {
            return Woke::Moved;
        }
    }
    Woke::NotYet
}
