//! Stage 1 for triggers by the clock: finds the ticks that are due and starts, queues or skips each. The row of a
//! schedule is locked meanwhile, so only one router at a time decides its ticks; the record of ticks ensures besides
//! that none fires twice.
use automation_core::expr::Budget;
use automation_core::ids::{AutomationId, EventId, RunId};
use automation_core::order::Order;
use automation_core::schedule::{Due, Overlap, TickEntry, zone_data};
use automation_core::value::Timestamp;
use pgrx::pg_sys;

use super::Plan;
use super::definitions::{self, Active, Definitions};
use super::matching::ran_out;
use super::slow;
use crate::definitions::scope::{EventScope, instant, micros};
use crate::event_log::events::{Event, NewEvent, Op, append_event};
use crate::pg::append::next_id;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::failpoint::failpoint;
use crate::pg::subtransaction::in_subtransaction;
use crate::provenance::Cause;
use crate::store::dispatches::Reason;
use crate::store::log::{self, Entry};
use crate::store::schedules::{self, NewTick, Schedule};

/// How long, in microseconds, a schedule is put off after its ticks could not be decided.
const PUT_OFF: clock::Micros = 60_000_000;

/// If the last tick of a schedule is more than so many microseconds in the future, it was decided by a clock that was
/// ahead.
const AHEAD: clock::Micros = 1_000_000;

/// A schedule whose ticks are being decided, with its automation and trigger.
struct Subject<'a> {
    row: Schedule,
    active: &'a Active,
    trigger_no: usize,
    schedule: &'a automation_core::schedule::Schedule,
}

impl Plan {
    /// Decides the ticks of up to `limit` schedules that are due, and the ticks of the automations in `freed` that wait
    /// for a run to end. With `only_for`, only of schedules of roles that this role can become. Returns whether more
    /// may be due.
    pub(super) fn ticks(&mut self, limit: i64, freed: &[AutomationId], only_for: Option<pg_sys::Oid>) -> bool {
        let due = if limit > 0 { schedules::take_due(clock::engine_now(), limit, only_for) } else { Vec::new() };
        let mut waiting = if freed.is_empty() { Vec::new() } else { schedules::take_waiting(freed) };
        // A schedule that is due also starts its waiting ticks.
        waiting.retain(|row| !due.iter().any(|due| due.id == row.id));
        if due.is_empty() && waiting.is_empty() {
            return false;
        }
        failpoint("ticks_taken");
        let many = due.len() as i64 == limit;
        let taken: Vec<(Schedule, bool)> =
            due.into_iter().map(|row| (row, true)).chain(waiting.into_iter().map(|row| (row, false))).collect();
        // Read after the rows are locked: a session that changes a definition changes these rows with it.
        definitions::with_current(|definitions| {
            // All in one subtransaction; one by one only if that fails. A transaction with more than 64 subtransactions
            // slows down the snapshots of all other sessions.
            if self.deal_with_together(definitions, &taken).is_ok() {
                return;
            }
            for alone in taken.chunks(1) {
                if let Err(error) = self.deal_with_together(definitions, alone) {
                    put_off(definitions, &alone[0].0, &error);
                }
            }
        });
        many
    }

    /// Decides the ticks of schedules; if that fails for one of them, no schedule is changed.
    fn deal_with_together(&mut self, definitions: &Definitions, taken: &[(Schedule, bool)]) -> Result<(), PgError> {
        let (queued, counts) = (self.dispatches.len(), self.counts.clone());
        let outcome = in_subtransaction(|| {
            taken.iter().for_each(|(row, is_due)| self.deal_with(definitions, row.clone(), *is_due));
            Ok(())
        });
        if outcome.is_err() {
            self.dispatches.truncate(queued);
            self.counts = counts;
        }
        outcome
    }

    fn deal_with(&mut self, definitions: &Definitions, row: Schedule, is_due: bool) {
        failpoint("tick");
        let active = definitions.by_id(row.automation_id);
        let found = active.and_then(|active| {
            let has_name =
                |trigger: &automation_core::program::Trigger| trigger.id == row.trigger_id && trigger.enabled;
            let trigger_no = active.program.triggers.iter().position(has_name)?;
            let schedule = active.program.triggers[trigger_no].schedule.as_ref()?;
            (schedule.text == row.timetable).then_some((active, trigger_no, schedule))
        });
        let Some((active, trigger_no, schedule)) = found else {
            return schedules::rest(row.id, "the automation is not active");
        };
        let mut subject = Subject { row, active, trigger_no, schedule };
        let (under_way, waiting) = self.start_waiting(&mut subject);
        if is_due {
            self.fire_due(&mut subject, under_way, waiting);
        }
        schedules::move_on(&subject.row);
    }

    /// Starts waiting ticks, as far as they need not wait any more. Returns whether a run is under way, and how many
    /// ticks still wait.
    fn start_waiting(&mut self, subject: &mut Subject<'_>) -> (bool, usize) {
        let may_overlap = subject.schedule.overlap == Overlap::Allow;
        let waiting = if subject.row.has_waiting { schedules::waiting(subject.row.id) } else { Vec::new() };
        let run = subject.row.run.filter(|_| !may_overlap);
        let mut under_way = run.is_some_and(|(run, event)| schedules::is_under_way(run, event));
        let mut started = 0;
        for waited in &waiting {
            if under_way {
                break;
            }
            let run = RunId(next_id("run_id_seq"));
            if schedules::start_waiting(subject.row.id, waited.tick, run) {
                let event = self.tick_event(subject, instant(waited.tick), waited.made_up, waited.missed);
                self.start_tick(subject, event, run);
                under_way = !may_overlap;
            }
            started += 1;
        }
        (under_way, waiting.len() - started)
    }

    /// Decides every tick that is due, and moves the schedule on.
    fn fire_due(&mut self, subject: &mut Subject<'_>, under_way: bool, waiting: usize) {
        let (last, now) = (instant(subject.row.last_tick), instant(clock::engine_now()));
        let Due { mut fire, made_up, mut missed, last: dealt_with, next, .. } = subject.schedule.due(last, now);
        let made_up: Vec<Timestamp> = fire[..made_up].to_vec();
        let candidates: Vec<i64> = missed.iter().chain(&fire).map(|tick| micros(*tick)).collect();
        // Some may be recorded already if the clock was set back and the schedule then computed anew. For a single
        // tick, inserting its record detects that.
        let known = if candidates.len() > 1 { schedules::known(subject.row.id, &candidates) } else { Vec::new() };
        missed.retain(|tick| !known.contains(&micros(*tick)));
        fire.retain(|tick| !known.contains(&micros(*tick)));
        for tick in &missed {
            let reason = Some("missed: seen too late to be fired".to_owned());
            record(subject, *tick, NewTick { reason, ..NewTick::new("missed") });
        }
        // The first tick that fires carries the number of missed ticks.
        let mut missed = missed.len() as i32;
        let mut passed = Vec::new();
        for tick in fire {
            let late = made_up.contains(&tick);
            let event = self.tick_event(subject, tick, late, missed);
            match self.filter_tick(subject, &event) {
                Ok(()) => passed.push((tick, late, missed, event)),
                Err(reason) => {
                    record(subject, tick, NewTick { reason: Some(reason), ..NewTick::new("skipped") });
                }
            }
            missed = 0;
        }
        let entries = subject.schedule.enter(usize::from(under_way), waiting, passed.len());
        for ((tick, made_up, missed, event), entry) in passed.into_iter().zip(entries) {
            let tick_as = |status| NewTick { made_up, missed, ..NewTick::new(status) };
            match entry {
                TickEntry::Start => {
                    let run_id = Some(RunId(next_id("run_id_seq")));
                    let started = NewTick { run_id, ..tick_as("started") };
                    if let (true, Some(run)) = (record(subject, tick, started), run_id) {
                        self.start_tick(subject, event, run);
                    }
                }
                TickEntry::Queue => {
                    record(
                        subject,
                        tick,
                        NewTick { reason: Some("waits for the run before".into()), ..tick_as("queued") },
                    );
                }
                TickEntry::Skip(reason) => {
                    let skipped = NewTick { reason: Some(reason.to_string()), ..tick_as("skipped") };
                    if record(subject, tick, skipped) {
                        self.counts_of(subject).refused += 1;
                    }
                }
            }
        }
        subject.row.last_tick = dealt_with.map_or(subject.row.last_tick, micros);
        subject.row.next_tick = next.map(micros);
    }

    fn counts_of(&mut self, subject: &Subject<'_>) -> &mut crate::store::stats::Counts {
        self.counts.entry((subject.active.automation_id, subject.trigger_no as i16)).or_default()
    }

    /// Is the trigger's filter true, as far as the event alone decides it? If not, returns the reason.
    fn filter_tick(&mut self, subject: &Subject<'_>, event: &Event) -> Result<(), String> {
        let trigger = &subject.active.program.triggers[subject.trigger_no];
        let Some(filter) = trigger.filter.as_ref().filter(|filter| filter.is_pure_event()) else { return Ok(()) };
        let mut budget = Budget::default();
        let holds = filter.holds(&EventScope::new(event, self.now), &mut budget);
        slow::filtered(subject.active, &trigger.id, &budget, ran_out(&holds));
        match holds {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.counts_of(subject).filtered += 1;
                Err("filter_false: the filter does not hold".to_owned())
            }
            Err(error) => {
                self.counts_of(subject).filter_errors += 1;
                self.note_filter_error(subject.active, None, &trigger.id, &error.message);
                Err(format!("filter_error: {}", error.message))
            }
        }
    }

    /// The order by which the clock starts a run. Unlike an order of start_run() it names no run, because the run is
    /// queued in the transaction that writes the order.
    fn tick_event(&self, subject: &Subject<'_>, tick: Timestamp, made_up: bool, missed: i32) -> Event {
        let order = Order::Tick {
            automation_id: subject.active.automation_id,
            schedule_id: subject.row.id,
            tick: micros(tick),
        };
        let payload = serde_json::json!({
            "scheduled_at": tick.to_string(),
            "timezone": subject.schedule.timetable.zone(),
            "made_up": made_up,
            "missed": missed,
        });
        let cause = Cause::schedule(subject.active.owner);
        Event {
            id: EventId(0),
            xid: 0,
            occurred_at: self.now,
            cause_run: cause.run,
            relation: None,
            role: cause.role,
            depth: cause.depth,
            op: Op::Started,
            truncated: false,
            kind: None,
            entity_id: None,
            topic: Some(format!("automation.tick.{}", subject.active.name)),
            tenant: subject.active.program.tenant.clone(),
            actor: cause.actor,
            changed: Vec::new(),
            prev: None,
            next: Some(order.encode()),
            payload: Some(payload.to_string()),
            window: None,
        }
    }

    fn start_tick(&mut self, subject: &mut Subject<'_>, mut event: Event, run: RunId) {
        event.id = append_event(&NewEvent {
            op: Some(event.op),
            topic: event.topic.as_deref(),
            tenant: event.tenant.as_deref().map(str::as_bytes),
            next: event.next.as_deref().map(str::as_bytes),
            payload: event.payload.as_deref().map(str::as_bytes),
            cause: Some(Cause::schedule(subject.active.owner)),
            at: Some(event.occurred_at),
            ..Default::default()
        });
        self.counts_of(subject).matched += 1;
        let dispatch = self.dispatch(subject.active, &event, subject.trigger_no as i16, Reason::Trigger, Some(run));
        self.dispatches.push(dispatch);
        subject.row.run = Some((run, event.id));
    }
}

/// Computes the next tick of schedules whose last tick was decided by a clock that was ahead: otherwise they would
/// stand still until the clock has reached that time. A tick that was fired ahead of its time is not fired once more
/// when its time comes.
pub fn compute_ticks_anew() {
    let now = clock::now();
    let ahead = schedules::take_ahead(now + AHEAD);
    if ahead.is_empty() {
        return;
    }
    definitions::with_current(|definitions| {
        for mut row in ahead {
            let triggers = definitions.by_id(row.automation_id).map(|active| &active.program.triggers);
            let trigger = triggers.and_then(|triggers| triggers.iter().find(|trigger| trigger.id == row.trigger_id));
            let Some(schedule) = trigger.and_then(|trigger| trigger.schedule.as_ref()) else { continue };
            schedules::forget_unfired(row.id, now);
            row.last_tick = now;
            row.next_tick = schedule.timetable.next(instant(now)).map(micros);
            schedules::move_on(&row);
            if let Some(next) = row.next_tick {
                crate::signal::at_commit::timer_at_commit(next);
            }
        }
    });
}

/// Puts off a schedule whose ticks cannot be decided, so that it delays neither other schedules nor the log.
fn put_off(definitions: &Definitions, row: &Schedule, error: &PgError) {
    schedules::put_off(row.id, clock::engine_now() + PUT_OFF);
    log::error(&Entry {
        code: "schedule_failed",
        automation_id: Some(row.automation_id),
        owner: definitions.by_id(row.automation_id).map(|active| active.owner),
        message: "the ticks of a schedule could not be dealt with and are put off for a minute",
        detail: Some(&error.message),
        ..Default::default()
    });
}

fn record(subject: &Subject<'_>, tick: Timestamp, what: NewTick) -> bool {
    let tick = NewTick { tick: micros(tick), ..what };
    schedules::record(subject.row.id, &tick, zone_data(), clock::engine_now())
}
