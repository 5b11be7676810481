//! Stage 1 for runs that wait: which waits an event may end, and which are due.
use std::collections::HashSet;

use automation_core::topic;
use pgrx::pg_sys;

use crate::failpoint::failpoint;
use crate::pg::append::next_id;
use crate::pg::clock::{self, Micros};
use crate::pg::identity;
use crate::store::dispatches::{NewDispatch, Reason};
use crate::store::events::{Event, Op};
use crate::store::live;
use crate::store::timers::{self, TimerKind};
use crate::store::wakes::{self, Key, Source, Waiter};

pub fn dispatch(waiter: Waiter, reason: Reason, cause: Option<(i64, Micros)>, now: Micros) -> NewDispatch {
    NewDispatch {
        owner: waiter.owner,
        id: next_id("dispatch_id_seq"),
        run_id: waiter.run_id,
        event: None,
        created_at: now,
        ordering_key: None,
        automation_id: waiter.automation_id,
        version_id: waiter.version_id,
        trigger_no: -1,
        reason,
        wait_no: Some(waiter.wait_no),
        cause,
    }
}

/// The timers that are due, as work. In a session with a clock of its own, only those whose owner it can act for: its
/// clock is nobody else's business.
pub fn due_timers(limit: i64) -> Vec<NewDispatch> {
    let only_for = clock::set_clock().map(|_| identity::outer_user());
    let now = clock::now();
    let reason = |kind: TimerKind| match kind {
        TimerKind::Due => Reason::Due,
        TimerKind::Look => Reason::Look,
        TimerKind::Arm => Reason::Arm,
        TimerKind::RunTimeout => Reason::RunTimeout,
        TimerKind::Bulk => Reason::Bulk,
    };
    timers::take_due(clock::engine_now(), limit, only_for)
        .into_iter()
        .map(|timer| dispatch(timer.waiter, reason(timer.kind), None, now))
        .collect()
}

/// The waits that these events may end. A wait for a state is looked at once however many of them concern it; a wait for
/// an event looks at each.
pub fn of_events(events: &[Event], now: Micros) -> Vec<NewDispatch> {
    let orders = events.iter().filter(|event| event.op == Op::Moved);
    let mut found: Vec<NewDispatch> = orders.flat_map(|event| moved(event, now)).collect();
    // A job is tended once however many of its rows have ended.
    let mut tended: HashSet<(i64, Option<i32>)> = HashSet::new();
    found.retain(|row| row.reason != Reason::Bulk || tended.insert((row.run_id, row.wait_no)));
    let mut seen: HashSet<(i64, i32, Option<i64>)> = HashSet::new();
    for (waiter, source, event) in waiters(events) {
        let cause = matches!(source, Source::Topic | Source::Pattern).then_some((event.id, event.occurred_at));
        if !seen.insert((waiter.run_id, waiter.wait_no, cause.map(|(id, _)| id))) {
            continue;
        }
        let reason = match source {
            Source::State => Reason::Look,
            Source::Topic | Source::Pattern => Reason::Event,
            Source::Signal => Reason::Signal,
            Source::Run => Reason::RunEnded,
        };
        found.push(dispatch(waiter, reason, cause, now));
    }
    if !found.is_empty() {
        failpoint("wakes_found");
    }
    found
}

/// Who waits for one of these events, by what and for which; somebody may be named more than once.
pub fn waiters(events: &[Event]) -> Vec<(Waiter, Source, &Event)> {
    if events.is_empty() || !wakes::any() {
        return Vec::new();
    }
    let patterns = wakes::patterns();
    let keys = events.iter().flat_map(|event| keys_of(event, &patterns).into_iter().map(move |key| (key, event)));
    let (lookups, of): (Vec<Key>, Vec<&Event>) = keys.unzip();
    let found = wakes::find(&lookups).into_iter();
    found.filter_map(|(key, waiter)| Some((waiter, lookups.get(key)?.source, *of.get(key)?))).collect()
}

fn keys_of(event: &Event, patterns: &[String]) -> Vec<Key> {
    let key = |source: Source, kind: &str, entity_id: Option<String>| Key { source, kind: kind.to_owned(), entity_id };
    let kind = event.kind.as_deref().unwrap_or_default();
    match event.op {
        Op::Signalled => return vec![key(Source::Signal, kind, event.entity_id.clone())],
        Op::Ended => return vec![key(Source::Run, "run", event.entity_id.clone())],
        Op::Started | Op::Moved => return Vec::new(),
        Op::Created | Op::Updated | Op::Deleted | Op::Truncated | Op::Emitted => {}
    }
    let mut keys = Vec::new();
    if event.op.is_change() {
        // All of a kind, if all of it is gone.
        keys.push(key(Source::State, kind, event.entity_id.clone()));
    }
    let subject = event.topic();
    // Topics have no entity: every wait for one stands under "any".
    let any = || Some(String::new());
    keys.push(key(Source::Topic, &subject, any()));
    let matching = patterns.iter().filter(|pattern| topic::matches(pattern, &subject));
    keys.extend(matching.map(|pattern| key(Source::Pattern, pattern, any())));
    keys
}

/// An order to move runs: skip_step(), a bulk job whose rows have ended, an automation that is active again, a kind that is watched again.
fn moved(event: &Event, now: Micros) -> Vec<NewDispatch> {
    let order: serde_json::Value =
        event.next.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let number = |name: &str| order[name].as_i64().unwrap_or_default();
    match order["do"].as_str() {
        Some("thaw") => live::frozen(number("automation_id") as i32)
            .into_iter()
            .map(|(run_id, owner, automation_id, version_id)| {
                let waiter = Waiter { run_id, wait_no: 0, owner, automation_id, version_id };
                dispatch(waiter, Reason::Thaw, None, now)
            })
            .collect(),
        // A kind is watched again: whoever waits for any of its entities may have missed something.
        Some("look") => {
            let kind = order["kind"].as_str().unwrap_or_default().to_owned();
            let found = wakes::find(&[Key { source: Source::State, kind, entity_id: None }]);
            found.into_iter().map(|(_, waiter)| dispatch(waiter, Reason::Look, None, now)).collect()
        }
        Some("bulk") => {
            let waiter = Waiter {
                run_id: number("job"),
                wait_no: i32::from(order["alone"] == true),
                owner: pg_sys::Oid::from(number("owner") as u32),
                automation_id: number("automation_id") as i32,
                version_id: number("version_id") as i32,
            };
            vec![dispatch(waiter, Reason::Bulk, None, now)]
        }
        Some("skip") => {
            let waiter = Waiter {
                run_id: number("run_id"),
                wait_no: number("wait_no") as i32,
                owner: pg_sys::Oid::from(number("owner") as u32),
                automation_id: number("automation_id") as i32,
                version_id: number("version_id") as i32,
            };
            vec![dispatch(waiter, Reason::Skip, None, now)]
        }
        _ => Vec::new(),
    }
}
