//! Moving a run that waits: a wake, a deadline, a signal, a person.
use std::rc::Rc;

use automation_core::definition::OnPause;
use automation_core::machine::{Cause, JobItem, Machine, State, Wait, WaitFor, Woke, error};
use automation_core::program::StopStatus;
use automation_core::topic::engine::hears;
use automation_core::value::Value;

use super::batch::{Claimer, Outcome};
use super::gates::{self, Class};
use super::run::{enter, error_json};
use super::scope::RunScope;
use super::suspend;
use super::sweep;
use super::versions;
use super::walk::{Run, Walk, Walked, too_late};
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::identity;
use crate::pg::snapshot::Snapshot;
use crate::router::{derived, tenant_matches};
use crate::store::automations;
use crate::store::bulk;
use crate::store::dispatches::Reason;
use crate::store::events::Event;
use crate::store::history::{self, EndedRun, Ending};
use crate::store::live::{LiveRun, Seen, WaitNote};
use crate::store::signals::{self, Taken};

/// Why a wait is looked at.
#[derive(Clone, Debug)]
pub struct Nudge {
    pub wait_no: i32,
    pub reason: Reason,
    /// The event that came.
    pub event: Option<Rc<Event>>,
}

/// A run that was taken up.
pub fn of_live(live: &LiveRun) -> Run {
    Run {
        id: live.id,
        owner: live.owner,
        automation: live.automation.clone(),
        automation_id: live.automation_id,
        version_id: live.version_id,
        trigger_no: live.trigger_no,
        attempt: 0,
        event_id: live.event_id,
        event_at: live.event_at,
        started_at: live.started_at,
        depth: live.depth,
        parent: live.parent,
        kind: live.kind.clone(),
        entity_id: live.entity_id.clone(),
        key: live.key.clone(),
        mode_key: live.mode_key.clone(),
        tenant: live.tenant.clone(),
        item: None,
    }
}

/// What remains to be done for a run that has ended.
pub fn conclude(machine: &mut Machine<'_>, mut ended: EndedRun) -> Outcome {
    ended.abandoned = machine.take_abandoned();
    Outcome::Ended(ended)
}

/// Moves a run if one of the nudges is what it waits for.
pub fn resume(claimer: &mut Claimer, live: LiveRun, nudges: &[Nudge]) -> Outcome {
    let mut run = of_live(&live);
    let version = match versions::get(run.version_id) {
        Ok(version) => version,
        Err(problem) => {
            let error = Some(error_json(&PgError::new("XX000", problem), None));
            let ended = run.ended(Ending::Failed, Some("version_unreadable"));
            return Outcome::Ended(EndedRun { error, live: Some(live.waits), ..ended });
        }
    };
    let Ok(state) = serde_json::from_str::<State>(&live.state) else {
        let error = Some(error_json(&PgError::new("XX000", "the state of the run cannot be read"), None));
        let ended = run.ended(Ending::Failed, Some("state_unreadable"));
        return Outcome::Ended(EndedRun { error, live: Some(live.waits), ..ended });
    };
    run.item = state.job;
    let mut live = live;
    if !live.active && version.program.on_pause == OnPause::Freeze {
        // The session that makes the automation active again must find the run frozen, or the run must not be frozen at all.
        match automations::stays_as_it_is(live.automation_id, live.tenant.as_deref()) {
            Some(active) => live.active = active,
            None => {
                claimer.unsettled.extend(nudges.iter().map(|nudge| (run.id, nudge.wait_no)));
                return Outcome::Stays;
            }
        }
    }
    let program = &version.program;
    let its_turn = live.queued && gates::is_its_turn(&live);
    if live.queued && !(its_turn && sweep::may_call(claimer, &live, nudges)) {
        return Outcome::Stays;
    }
    let class = if live.trigger_no < 0 { Class::Schedule } else { Class::Event };
    if !(gates::may_move(claimer, &live, program)
        && gates::lock_entity(&run, program)
        && gates::admit(claimer, &run, program, class))
    {
        claimer.unsettled.extend(nudges.iter().map(|nudge| (run.id, nudge.wait_no)));
        return Outcome::Stays;
    }
    if its_turn {
        live.queued = false;
        live.started_at = clock::engine_now();
        run.started_at = live.started_at;
    }
    let _context = enter(&run);
    let event = live.event.clone();
    identity::as_role(run.owner, || {
        let world = run.scope(&version, &event);
        let mut machine = Machine::new(&version.program, state, run.id as u64, run.key.clone());
        let steps = live.steps.strip_suffix(']').unwrap_or_default();
        let steps = if steps == "[" { String::new() } else { steps.to_owned() };
        let mut walk = Walk { claimer, run: &run, version: version.clone(), steps };
        let mut moved = its_turn;
        let mut again = Vec::new();
        for nudge in nudges.iter().filter(|_| !its_turn) {
            if nudge.reason == Reason::Sweep {
                moved |= sweep::sweep(walk.claimer, &live, &mut machine, &world);
                continue;
            }
            match nudged(&live, &mut machine, nudge, &world) {
                Ok(Woke::Moved) => moved = true,
                // Its timer is gone; if it is still to come, there must be another.
                Ok(Woke::NotYet) => again.push((nudge.wait_no, nudge.reason)),
                Ok(Woke::Gone) => {}
                Err(InOtherHands) => {
                    walk.claimer.unsettled.insert((run.id, nudge.wait_no));
                }
            }
        }
        if !moved {
            return stays(&live, &mut machine, &world, &again);
        }
        let ends = nudges.iter().any(|nudge| nudge.reason == Reason::RunTimeout);
        let frozen = !live.active && version.program.on_pause == OnPause::Freeze && !ends;
        if !live.active && version.program.on_pause == OnPause::Drain {
            let reason = error("55000", "the automation is not active any more", None);
            machine.give_up(StopStatus::Cancelled, "automation_not_active", reason);
        }
        let walked = if frozen { walk.stay(&mut machine) } else { walk.go(&mut machine, &world) };
        match walked {
            Walked::Ended(end) => {
                let mut ended = walk.history(&machine, &end);
                ended.live = Some(live.waits.clone());
                conclude(&mut machine, ended)
            }
            Walked::Suspended => {
                // Another wait of the run may have been looked at in vain.
                look_again(&live, &machine, &world, &again);
                let (before, steps) = (live.waits.clone(), walk.steps_json());
                let run = LiveRun { frozen, steps, ..live };
                let mut put = suspend::put_away(run, &mut machine, &world, &before);
                if its_turn {
                    put.timers.extend(suspend::run_timeout(&put.run, &machine));
                }
                Outcome::Suspended(Box::new(put))
            }
        }
    })
}

/// Nothing came of it; when to look again may have changed.
fn stays(live: &LiveRun, machine: &mut Machine<'_>, world: &RunScope<'_>, looked_at: &[(i32, Reason)]) -> Outcome {
    look_again(live, machine, world, looked_at);
    suspend::warn(live, machine);
    Outcome::Stays
}

/// Sets the timers for the next look at waits that were looked at in vain.
fn look_again(live: &LiveRun, machine: &Machine<'_>, world: &RunScope<'_>, looked_at: &[(i32, Reason)]) {
    for wait in machine.state.waits() {
        for (_, reason) in looked_at.iter().filter(|(no, _)| *no == wait.no) {
            suspend::look_later(live, machine, wait, *reason, world);
        }
    }
}

/// What the wait needs is in somebody else's hands at the moment, and may come back.
pub struct InOtherHands;

pub fn nudged(
    live: &LiveRun,
    machine: &mut Machine<'_>,
    nudge: &Nudge,
    world: &RunScope<'_>,
) -> Result<Woke, InOtherHands> {
    Ok(match nudge.reason {
        Reason::Thaw if live.frozen => Woke::Moved,
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
                // What was committed before the deadline beats it, even if it is routed after.
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

/// An event came on a topic: does the wait want it? The run's tenant may see the event in another form, which has topics of its
/// own.
fn by_nudge(
    machine: &mut Machine<'_>,
    no: i32,
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

/// An event came: does the wait want it?
fn by_event(
    machine: &mut Machine<'_>,
    no: i32,
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

/// Is it on the topic, of the automation's tenant, and for its owner's eyes?
fn wanted(machine: &Machine<'_>, pattern: &str, event: &Event, world: &RunScope<'_>) -> bool {
    hears(pattern, &event.topic()) && tenant_matches(machine.program().tenant.as_deref(), event) && world.may_see(event)
}

/// Was it in the log already when the wait began?
fn was_seen(seen: &Seen, event: &Event) -> bool {
    if event.xid == seen.xid {
        return event.id <= seen.up_to;
    }
    Snapshot::parse(&seen.snapshot).is_some_and(|snapshot| snapshot.sees(event.xid))
}

/// Looks through the log for what came between the wait's beginning and its being armed, or, with a lookback, before.
fn by_log(
    machine: &mut Machine<'_>,
    step: usize,
    no: i32,
    note: Option<&WaitNote>,
    topic: &str,
    world: &RunScope<'_>,
) -> Woke {
    let Some(note) = note else { return Woke::NotYet };
    let Some(seen) = &note.seen else { return Woke::NotYet };
    let derivers = derived::current();
    let lookback = machine.program().steps[step].action.awaited_event().and_then(|awaited| awaited.lookback);
    if let Some(lookback) = lookback {
        // Events carry the time on the wall, the wait that of a clock which may have been set.
        let since = clock::now() - (clock::engine_now() - note.since).max(0);
        for event in crate::store::router::events_after(since - lookback) {
            for event in heard(&derivers, topic, &Rc::new(event), world) {
                if wanted(machine, topic, &event, world)
                    && machine.wake(no, Cause::Event, &world.with_event(&event)) == Woke::Moved
                {
                    return Woke::Moved;
                }
            }
        }
        // What began before and was committed since counts as well, however long it took.
    }
    let Some(snapshot) = Snapshot::parse(&seen.snapshot) else { return Woke::NotYet };
    let mut above = 0;
    loop {
        let (events, more) = crate::store::router::events_since_seen(&snapshot, seen.xid, seen.floor, above);
        let last = events.last().map(|event| event.id);
        for event in events.into_iter().flat_map(|event| heard(&derivers, topic, &Rc::new(event), world)) {
            if by_event(machine, no, Some(note), topic, &event, world) == Woke::Moved {
                return Woke::Moved;
            }
        }
        match last.filter(|_| more) {
            Some(last) => above = last,
            None => return Woke::NotYet,
        }
    }
}

/// Looks at the end of the log. The router takes a timer only when it has routed all that it could see, so what it has
/// not is there.
fn by_newest(machine: &mut Machine<'_>, no: i32, note: Option<&WaitNote>, topic: &str, world: &RunScope<'_>) -> Woke {
    let derivers = derived::current();
    let newest = crate::store::router::newest_events().into_iter();
    for event in newest.flat_map(|event| heard(&derivers, topic, &Rc::new(event), world)) {
        if by_event(machine, no, note, topic, &event, world) == Woke::Moved {
            return Woke::Moved;
        }
    }
    Woke::NotYet
}

/// The run is beyond help: it ends as failed, whatever it waited for.
pub fn give_up(live: LiveRun, reason: &'static str, error: &PgError) -> EndedRun {
    let run = of_live(&live);
    let steps = Some(live.steps.clone()).filter(|steps| steps != "[]");
    let (abandoned, item) = ties(&live);
    EndedRun {
        error: Some(error_json(error, None)),
        steps,
        abandoned,
        item,
        live: Some(live.waits),
        ..run.ended(Ending::Failed, Some(reason))
    }
}

/// What a run that waits has to do with others: the runs and jobs it waits for, and the row of a job that it is for.
fn ties(live: &LiveRun) -> (Vec<i64>, Option<JobItem>) {
    let state: Option<State> = serde_json::from_str(&live.state).ok();
    state.map(|state| (state.children().collect(), state.job)).unwrap_or_default()
}

/// What a cancelled run leaves in the history.
pub fn cancelled(live: &LiveRun, reason: &str) -> EndedRun {
    let run = of_live(live);
    let (abandoned, item) = ties(live);
    let steps = Some(live.steps.clone()).filter(|steps| steps != "[]");
    EndedRun {
        ended_at: clock::engine_now(),
        steps,
        live: Some(live.waits.clone()),
        abandoned,
        item,
        ..run.ended(Ending::Cancelled, Some(reason))
    }
}
