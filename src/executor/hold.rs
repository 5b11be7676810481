//! Stage 2 for triggers with `hold_for`: begins a hold, keeps it, breaks it off, and starts its run at the deadline.
//!
//! Dispatches about the same entity are executed one after the other, in the order of its changes, so the executor here
//! is the only one that changes their hold. Sessions that pause, drop or redefine the automation may remove the row of
//! the hold; the first to lock that row wins. Steps are executed only after the deadline; until then only expressions
//! are evaluated.
use std::rc::Rc;

use automation_core::expr::{Budget, ExprError, Scope};
use automation_core::gate::hold::{self, Armed, Expired, Heard};
use automation_core::gate::{Code, Reason as Why};
use automation_core::ids::{RunId, WaitNo};
use automation_core::order::Start;
use automation_core::program::Trigger;
use automation_core::value::Unreadable;

use super::batch::{MAX_CRASHES, Outcome, crashed, dead_letter};
use super::claimer::Claimer;
use super::gates::{self, Class, Origin, Refusal};
use super::start::{Beginning, enter, first_walk, may_read, refused};
use crate::definitions::scope::{EventScope, instant};
use crate::definitions::tenant_view::tenant_matches;
use crate::definitions::versions::{self, Version};
use crate::event_log::events::{Event, Op};
use crate::pg::catch::PgError;
use crate::pg::clock::{self, Micros, POSTGRES_EPOCH};
use crate::pg::failpoint::failpoint;
use crate::pg::identity;
use crate::router::key_of;
use crate::runs::error::error_json;
use crate::runs::holds::remove;
use crate::runs::run;
use crate::runs::run::Run;
use crate::runs::run::of_dwell;
use crate::store::dispatches::{self, Dispatch, Reason};
use crate::store::dwells::{self, Dwell, Held, NewDwell};
use crate::store::history::{EndedRun, Ending};
use crate::store::timers::{self, Timer, TimerKind};
use crate::store::wakes::Waiter;

/// Applies a dispatch to the holds of its trigger. Returns the outcomes, and false if a row locked by another
/// transaction prevented a decision: then the dispatch stays queued and is applied once more.
pub fn hear(claimer: &mut Claimer, dispatch: &Dispatch, event: Option<&Event>) -> (Vec<Outcome>, bool) {
    let mut outcomes = Vec::new();
    let settled = listen(claimer, dispatch, event, &mut outcomes).is_some();
    (outcomes, settled)
}

/// Like `hear`, but returns None if a locked row prevented a decision. Outcomes pushed before that have taken effect.
fn listen(
    claimer: &mut Claimer,
    dispatch: &Dispatch,
    event: Option<&Event>,
    outcomes: &mut Vec<Outcome>,
) -> Option<()> {
    if dispatch.attempt > MAX_CRASHES {
        let error = crashed(dispatch);
        dead_letter(dispatch, claimer.owner, "crashed_server", &error);
        let (ended, _) = give_up(claimer, dispatch, event, "crashed_server", &error)?;
        outcomes.extend(ended.into_iter().map(Outcome::Ended));
        return Some(());
    }
    if dispatch.reason == Reason::HoldOver {
        return over(claimer, dispatch, outcomes);
    }
    let version = match versions::get(dispatch.version_id) {
        Ok(version) => version,
        Err(problem) => {
            outcomes.extend(unreadable(claimer, dispatch, event, problem));
            return Some(());
        }
    };
    let Some(trigger) = version.program.triggers.get(dispatch.trigger_no as usize) else { return Some(()) };
    let mut hearing = Hearing { claimer, dispatch, version: &version, trigger, outcomes };
    let Some(event) = event else { return hearing.without_event() };
    if event.op == Op::Truncated && event.entity_id.is_none() && trigger.is_change() {
        return hearing.every_entity(event);
    }
    let held = match dwells::lock(dispatch.automation_id, &trigger.id, &key_of(event)) {
        Held::Ours(dwell) => Some(dwell),
        Held::Nothing => None,
        Held::InOtherHands => return None,
    };
    // A hold whose deadline has passed ends before the event is counted by a gate.
    let held = hearing.unless_over(event, held)?;
    match hearing.fires(event)? {
        Fired::No => hearing.hear(event, held, false),
        Fired::Yes(None) => hearing.hear(event, held, true),
        Fired::Yes(Some(event)) => hearing.hear(&event, held, true),
    }
}

fn unreadable(claimer: &Claimer, dispatch: &Dispatch, event: Option<&Event>, problem: String) -> Vec<Outcome> {
    if dispatch.reason != Reason::Hold {
        // If there is a hold, it reports the same error at its deadline.
        return Vec::new();
    }
    let run = of_dispatch(claimer, dispatch, event);
    let error = Some(error_json(&PgError::new("XX000", problem), None));
    vec![Outcome::Ended(EndedRun { error, ..run.ended(Ending::Failed, Some("version_unreadable")) })]
}

/// The run that a dispatch would start if its trigger had no `hold_for`.
fn of_dispatch(claimer: &Claimer, dispatch: &Dispatch, event: Option<&Event>) -> Run {
    let (event_id, event_at) = dispatch.cause.unwrap_or_default();
    let mut run = run::of_dispatch(claimer.owner, dispatch, event, clock::engine_now());
    (run.event_id, run.event_at) = (event_id, event_at);
    run
}

/// Whether a trigger fired, with the event if a gate added fields to it.
enum Fired {
    No,
    Yes(Option<Box<Event>>),
}

/// One dispatch while it is applied to the holds of its trigger.
struct Hearing<'a> {
    claimer: &'a mut Claimer,
    dispatch: &'a Dispatch,
    version: &'a Rc<Version>,
    trigger: &'a Trigger,
    outcomes: &'a mut Vec<Outcome>,
}

impl Hearing<'_> {
    /// Ends the hold if its deadline had passed before the event happened. None if a lock prevented that.
    fn unless_over(&mut self, event: &Event, held: Option<Dwell>) -> Option<Option<Dwell>> {
        let happened = clock::as_seen(event.occurred_at);
        match held {
            Some(dwell) if happened >= dwell.deadline && self.beyond_hearing(&dwell, event).is_none() => {
                let outcome = expire(self.claimer, &dwell, self.dispatch.attempt)?;
                self.outcomes.push(outcome);
                Some(None)
            }
            held => Some(held),
        }
    }

    /// Did the event pass the gates before `hold_for`? If not, the refusal is added to the outcomes. None if a gate
    /// cannot be decided now.
    fn fires(&mut self, event: &Event) -> Option<Fired> {
        if self.dispatch.reason != Reason::Hold {
            return Some(Fired::No);
        }
        let run = of_dispatch(self.claimer, self.dispatch, Some(event));
        if !self.dispatch.active {
            self.outcomes.push(Outcome::Ended(run.ended(Ending::Cancelled, Some("automation_not_active"))));
            return Some(Fired::No);
        }
        let passed = identity::as_role(run.owner, || {
            may_read(run.owner, event).and_then(|()| gates::before_hold(&run, self.version, event))
        });
        match passed {
            Ok(counted) => Some(Fired::Yes(counted.map(Box::new))),
            Err(Refusal::Later) => None,
            Err(refusal) => {
                let outcome = refused(self.claimer, &run, refusal);
                self.outcomes.push(outcome);
                Some(Fired::No)
            }
        }
    }

    /// Applies an event to the hold, if there is one.
    fn hear(&mut self, event: &Event, held: Option<Dwell>, fired: bool) -> Option<()> {
        let held = held.and_then(|dwell| match self.beyond_hearing(&dwell, event) {
            Some(reason) => {
                self.end(&dwell, &reason);
                None
            }
            None => Some(dwell),
        });
        let run = of_dispatch(self.claimer, self.dispatch, Some(event));
        let since = self.since();
        let happened = instant(clock::as_seen(event.occurred_at));
        let heard = identity::as_role(run.owner, || {
            let scope = run.scope_at(self.version, event, since);
            let armed = match held.as_ref().map(armed_by).transpose() {
                Ok(armed) => armed,
                Err(error) => return Heard::Cancel(not_readable(error)),
            };
            hold::hear(self.trigger, armed.as_ref(), fired, &scope, &mut Budget::default(), happened)
        });
        match (heard, held) {
            (Heard::Due, Some(dwell)) => {
                // The deadline of the hold had passed before this event happened.
                let outcome = expire(self.claimer, &dwell, self.dispatch.attempt)?;
                self.outcomes.push(outcome);
                self.hear(event, None, fired)?;
            }
            (Heard::Keep, Some(dwell)) => dwells::hear(dwell.run_id, event),
            (Heard::Cancel(reason), Some(dwell)) => self.end(&dwell, &reason),
            (Heard::Rearm { reason, deadline }, Some(dwell)) => {
                self.end(&dwell, &reason);
                self.arm(&run, event, since, deadline.0 - POSTGRES_EPOCH);
            }
            (Heard::Arm { deadline }, _) => self.arm(&run, event, since, deadline.0 - POSTGRES_EPOCH),
            (Heard::Refuse(reason), _) => self.outcomes.push(Outcome::Ended(explained(&run, &reason))),
            _ => {}
        }
        Some(())
    }

    /// The reason why an event ends the hold without any expression being evaluated, if there is one.
    fn beyond_hearing(&self, dwell: &Dwell, event: &Event) -> Option<Why> {
        if !dwell.automation.active {
            return Some(why(Code::HoldInactive, "the automation is active", "it was paused meanwhile"));
        }
        if !tenant_matches(self.version.program.tenant.as_deref(), event) && event.op != Op::Truncated {
            return Some(why(Code::HoldEntityGone, "the entity stays", "it belongs to another tenant now"));
        }
        if may_read(dwell.owner, event).is_err() {
            return Some(why(Code::HoldBroken, "the owner may read the table", "that was revoked"));
        }
        None
    }

    /// Since when the trigger is true: the time at which the event was routed, and so visible to all, however late the
    /// dispatch is executed.
    fn since(&self) -> Micros {
        let routed = || dispatches::created_at(self.claimer.owner, self.dispatch.id).unwrap_or_else(clock::now);
        clock::set_clock().unwrap_or_else(routed)
    }

    fn arm(&mut self, run: &Run, event: &Event, since: Micros, deadline: Micros) {
        let armed = dwells::insert(&NewDwell {
            run_id: run.id,
            automation_id: run.automation_id,
            trigger_id: &self.trigger.id,
            key: &key_of(event),
            owner: run.owner,
            version_id: run.version_id,
            trigger_no: run.trigger_no,
            ordering_key: self.dispatch.ordering_key.unwrap_or_default(),
            fingerprint: self.trigger.fingerprint,
            since,
            deadline,
            event,
        });
        if !armed {
            self.outcomes.push(Outcome::Ended(run.ended(Ending::Cancelled, Some("automation_not_active"))));
            return;
        }
        set_timer(run.id, deadline, run);
        self.claimer.held.push((run.automation_id, run.trigger_no));
        failpoint("held");
    }

    fn end(&mut self, dwell: &Dwell, reason: &Why) {
        remove(dwell);
        self.outcomes.push(Outcome::Ended(explained(&of_dwell(dwell), reason)));
    }

    /// TRUNCATE: every entity is gone.
    fn every_entity(mut self, event: &Event) -> Option<()> {
        let key = self.dispatch.ordering_key.unwrap_or_default();
        match dwells::lock_all(key, self.dispatch.automation_id, &self.trigger.id) {
            Held::Ours(all) => {
                // A hold that began after the TRUNCATE may be here already: it is left alone.
                for dwell in all.into_iter().filter(|dwell| dwell.event.id < event.id) {
                    self.hear(event, Some(dwell), false)?;
                }
            }
            Held::Nothing => {}
            Held::InOtherHands => return None,
        }
        Some(())
    }

    /// The event is not in the log any more: it cannot be decided whether the hold is still true.
    fn without_event(mut self) -> Option<()> {
        let key = self.dispatch.ordering_key.unwrap_or_default();
        let (id, _) = self.dispatch.cause.unwrap_or_default();
        let found = format!("event {id} is not in the log any more");
        match dwells::lock_all(key, self.dispatch.automation_id, &self.trigger.id) {
            Held::Ours(all) => {
                let reason = why(Code::HoldBroken, "every event is heard", &found);
                all.iter().for_each(|dwell| self.end(dwell, &reason));
            }
            Held::Nothing => {}
            Held::InOtherHands => return None,
        }
        if self.dispatch.reason == Reason::Hold {
            let error = PgError::new("02000", found);
            dead_letter(self.dispatch, self.claimer.owner, "event_missing", &error);
            let run = of_dispatch(self.claimer, self.dispatch, None);
            let error = Some(error_json(&error, None));
            self.outcomes.push(Outcome::Ended(EndedRun { error, ..run.ended(Ending::Failed, Some("event_missing")) }));
        }
        Some(())
    }
}

/// The timer of a hold is due.
fn over(claimer: &mut Claimer, dispatch: &Dispatch, outcomes: &mut Vec<Outcome>) -> Option<()> {
    match dwells::lock_run(dispatch.run_id) {
        Held::InOtherHands => return None,
        Held::Nothing => {}
        Held::Ours(dwell) if clock::engine_now() < dwell.deadline => {
            // The clock was set back after the timer was due.
            set_timer(dwell.run_id, dwell.deadline, &of_dwell(&dwell));
        }
        Held::Ours(dwell) => outcomes.push(expire(claimer, &dwell, dispatch.attempt)?),
    }
    Some(())
}

/// Ends a hold at its deadline: it becomes a run if its trigger and the condition are still true. None if a row or key
/// that the run needs is locked by another transaction: then the hold ends later.
fn expire(claimer: &mut Claimer, dwell: &Dwell, attempt: i16) -> Option<Outcome> {
    let mut run = Run { attempt, ..of_dwell(dwell) };
    run.version_id = dwell.automation.version_id;
    versions::load(std::iter::once(run.version_id));
    let version = match versions::get(run.version_id) {
        Ok(version) => version,
        Err(problem) => {
            let error = Some(error_json(&PgError::new("XX000", problem), None));
            remove(dwell);
            return Some(Outcome::Ended(EndedRun { error, ..run.ended(Ending::Failed, Some("version_unreadable")) }));
        }
    };
    let place = version.program.triggers.iter().position(|trigger| trigger.id == dwell.trigger_id);
    let trigger = place.map(|place| &version.program.triggers[place]);
    match place {
        Some(place) => run.trigger_no = place as i16,
        // The run is recorded with the version that had the trigger.
        None => run.version_id = dwell.version_id,
    }
    let _context = enter(&run);
    identity::as_role(run.owner, || {
        let origin = Origin { class: Class::Event, again: false, dedups: true, counts: true };
        let may = may_read(run.owner, &dwell.event);
        let reserved = may.and_then(|()| gates::reserve(claimer, &mut run, &version, &dwell.event, origin, false));
        if matches!(reserved, Err(Refusal::Later)) {
            return None;
        }
        remove(dwell);
        failpoint("hold_over");
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(refusal) => return Some(refused(claimer, &run, refusal)),
        };
        Some(match broken(&run, &version, trigger, dwell) {
            Some(reason) => Outcome::Ended(explained(&run, &reason)),
            None => match reserved.enter(claimer, &run, &version) {
                Ok(queues) => {
                    let beginning = Beginning { active: true, queues };
                    let order = (&dwell.event, &Start::default());
                    first_walk(claimer, &run, &version, &dwell.event, order, beginning)
                }
                // Too many executions, and another session is changing the automation at this moment.
                Err(Refusal::Later) => refused(claimer, &run, Refusal::Hot),
                Err(refusal) => refused(claimer, &run, refusal),
            },
        })
    })
}

/// Why the hold does not become a run now that its time is up; None if it does.
fn broken(run: &Run, version: &Version, trigger: Option<&Trigger>, dwell: &Dwell) -> Option<Why> {
    let latest = dwell.heard.as_ref().unwrap_or(&dwell.event);
    let scope = run.scope_at(version, latest, clock::engine_now().max(dwell.deadline));
    let condition = version.program.condition.as_ref();
    let verdict = match armed_by(dwell) {
        Ok(armed) => hold::expire(trigger, &armed, dwell.automation.active, condition, &scope, &mut Budget::default()),
        Err(error) => Expired::Drop(not_readable(error)),
    };
    match verdict {
        Expired::Drop(mut reason) => {
            if reason.code == Code::HoldInactive {
                reason.found = "it was paused, or given to another role".to_owned();
            }
            Some(reason)
        }
        Expired::Fire | Expired::NotYet => not_recorded(trigger, dwell),
    }
}

/// A reason to break off the hold if its kind was not watched all the time: a change that made it false may not have
/// been recorded.
fn not_recorded(trigger: Option<&Trigger>, dwell: &Dwell) -> Option<Why> {
    let kind = trigger.and_then(|trigger| trigger.kind.as_deref())?;
    let since = dwells::recorded_since(kind);
    let gap = since.is_none_or(|since| since > dwell.event.occurred_at);
    gap.then(|| why(Code::HoldBroken, "every change is recorded", &format!("\"{kind}\" was not watched all the time")))
}

/// The parts of a hold that the core needs to judge an event.
fn armed_by(dwell: &Dwell) -> Result<Armed, Unreadable> {
    let scope = EventScope::new(&dwell.event, dwell.since);
    let root = |name: &str| Ok(scope.root(name)?.cloned().unwrap_or_default());
    let (old, new) = (root("old")?, root("new")?);
    Ok(Armed { deadline: instant(dwell.deadline), fingerprint: dwell.fingerprint, old, new })
}

fn not_readable(error: Unreadable) -> Why {
    why(Code::HoldBroken, "the change that began the hold can be read", &ExprError::from(error).message)
}

fn set_timer(run_id: RunId, due_at: Micros, run: &Run) {
    let waiter = Waiter {
        run_id,
        wait_no: WaitNo::NONE,
        owner: run.owner,
        automation_id: run.automation_id,
        version_id: run.version_id,
    };
    identity::as_engine(|| timers::insert(&[Timer { due_at, waiter, kind: TimerKind::Held }]));
    crate::signal::at_commit::timer_at_commit(due_at);
}

fn why(code: Code, clause: &str, found: &str) -> Why {
    Why { code, clause: clause.to_owned(), found: found.to_owned() }
}

/// The history row of a run that was not started, with the reason.
fn explained(run: &Run, reason: &Why) -> EndedRun {
    match reason.code {
        Code::ConditionFalse => run.ended(Ending::Skipped, Some("condition")),
        Code::ConditionError => {
            let error = Some(error_json(&PgError::new("22023", reason.clause.clone()), None));
            EndedRun { error, ..run.ended(Ending::Failed, Some("condition_failed")) }
        }
        code => {
            let told = reason.to_string();
            let told = told.split_once(": ").map_or(told.as_str(), |(_, told)| told);
            let error = Some(serde_json::json!({ "detail": told }).to_string());
            EndedRun { error, ..run.ended(Ending::Skipped, Some(code.word())) }
        }
    }
}

/// A dispatch cannot be executed: the holds under its key end as failed. Returns the runs that failed, and true if the
/// dispatch is done; if false, its event is still to be applied. None while another transaction has one of the holds
/// locked.
pub fn give_up(
    claimer: &Claimer,
    dispatch: &Dispatch,
    event: Option<&Event>,
    reason: &'static str,
    error: &PgError,
) -> Option<(Vec<EndedRun>, bool)> {
    versions::load(std::iter::once(dispatch.version_id));
    let version = versions::get(dispatch.version_id).ok();
    let trigger = version.as_ref().and_then(|version| version.program.triggers.get(dispatch.trigger_no as usize));
    let held = match (dispatch.reason, dispatch.ordering_key.zip(trigger)) {
        (Reason::HoldOver, _) => match dwells::lock_run(dispatch.run_id) {
            Held::Ours(dwell) => vec![dwell],
            Held::Nothing => Vec::new(),
            Held::InOtherHands => return None,
        },
        (_, Some((key, trigger))) => match dwells::lock_all(key, dispatch.automation_id, &trigger.id) {
            Held::Ours(all) => all,
            Held::Nothing => Vec::new(),
            Held::InOtherHands => return None,
        },
        (_, None) => Vec::new(),
    };
    let fail = |run: Run| {
        let error = Some(error_json(error, None));
        EndedRun { error, ..Run { attempt: dispatch.attempt, ..run }.ended(Ending::Failed, Some(reason)) }
    };
    let ended: Vec<EndedRun> = held
        .iter()
        .map(|dwell| {
            remove(dwell);
            fail(of_dwell(dwell))
        })
        .collect();
    Some(match (dispatch.reason, ended.is_empty()) {
        (Reason::Hold, true) => (vec![fail(of_dispatch(claimer, dispatch, event))], true),
        (Reason::Hold | Reason::HoldCheck, false) => (ended, dispatch.attempt > MAX_CRASHES),
        _ => (ended, true),
    })
}
