//! Stage 1 for live runs: finds the waits that an event may end, and the timers that are due.
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use automation_core::ids::{EventId, RunId, WaitNo};
use automation_core::order::Order;
use automation_core::topic::engine::hears;
use automation_core::wake_key::wake_key;
use pgrx::pg_sys;

use crate::definitions::derived::{DerivedTopic, Topics};
use crate::definitions::hearing::{self, Privileges};
use crate::event_log::events::{Event, Op};
use crate::pg::clock::{self, Micros};
use crate::pg::failpoint::failpoint;
use crate::pg::identity;
use crate::store::dispatches::{NewDispatch, Reason};
use crate::store::dwells;
use crate::store::live;
use crate::store::timers::{self, TimerKind};
use crate::store::wakes::{self, Key, Source, Waiter};

pub fn dispatch(waiter: Waiter, reason: Reason, cause: Option<(EventId, Micros)>, now: Micros) -> NewDispatch {
    NewDispatch {
        owner: waiter.owner,
        id: 0,
        tenant: None,
        behind: false,
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
        topic: None,
    }
}

/// The timers that are due at `by`, as dispatches; all events committed before `by` are routed. Timers of holds are
/// taken only if `held`. With `only_for`, only timers of roles that this role can SET ROLE to: a session with
/// set_clock() must not fire timers of other roles by its own clock.
pub fn due_timers(limit: i64, by: Micros, held: bool, only_for: Option<pg_sys::Oid>) -> Vec<NewDispatch> {
    let now = clock::now();
    let reason = |kind: TimerKind| match kind {
        TimerKind::Due => Reason::Due,
        TimerKind::Look => Reason::Look,
        TimerKind::Arm => Reason::Arm,
        TimerKind::RunTimeout => Reason::RunTimeout,
        TimerKind::Held => Reason::HoldOver,
        TimerKind::Bulk => Reason::Bulk,
    };
    let taken = timers::take_due(clock::set_clock().unwrap_or(by), limit, only_for, held);
    let held: Vec<RunId> = taken.iter().filter(|t| t.kind == TimerKind::Held).map(|t| t.waiter.run_id).collect();
    let keys: HashMap<RunId, i64> = dwells::keys_of_runs(&held).into_iter().collect();
    taken
        .into_iter()
        // A timer whose hold is over has nothing to do.
        .filter(|timer| timer.kind != TimerKind::Held || keys.contains_key(&timer.waiter.run_id))
        .map(|timer| {
            let ordering_key = keys.get(&timer.waiter.run_id).copied();
            NewDispatch { ordering_key, ..dispatch(timer.waiter, reason(timer.kind), None, now) }
        })
        .collect()
}

/// The dispatches for the waits that these events may end. A wait for a state gets one dispatch however many of the
/// events concern it; a wait for an event gets one for each event, on each of its topics.
pub fn of_events(events: &[Event], topics: &Topics, now: Micros) -> Vec<NewDispatch> {
    let orders = events.iter().filter(|event| event.op == Op::Moved);
    let mut found: Vec<NewDispatch> = orders.flat_map(|event| moved(event, now)).collect();
    // A job gets one dispatch however many of its rows have ended.
    let mut tended: HashSet<(RunId, Option<WaitNo>)> = HashSet::new();
    found.retain(|row| row.reason != Reason::Bulk || tended.insert((row.run_id, row.wait_no)));
    let mut seen = HashSet::new();
    let mut readers: HashMap<(pg_sys::Oid, pg_sys::Oid), bool> = HashMap::new();
    for Woken { waiter, source, event, topic } in waiters(events, topics) {
        let cause = matches!(source, Source::Topic | Source::Pattern).then_some((event.id, event.occurred_at));
        // A dispatch with a cause shows the run's owner the number of the event, so none is made for a change of a
        // table that the owner may not read. A wake-up without a cause reads the table as the owner, whose read is
        // refused there.
        let closed = event.relation.is_some_and(|relation| {
            let may = || identity::may_read(relation, waiter.owner);
            cause.is_some() && !*readers.entry((waiter.owner, relation)).or_insert_with(may)
        });
        if closed {
            continue;
        }
        if !seen.insert((waiter.run_id, waiter.wait_no, cause.map(|(id, _)| id), topic.clone())) {
            continue;
        }
        let reason = match source {
            Source::State => Reason::Look,
            Source::Topic | Source::Pattern => Reason::Event,
            Source::Signal => Reason::Signal,
            Source::Run => Reason::RunEnded,
        };
        found.push(NewDispatch { topic, ..dispatch(waiter, reason, cause, now) });
    }
    if !found.is_empty() {
        failpoint("wakes_found");
    }
    found
}

/// A wait that an event may end.
pub struct Woken<'a> {
    pub waiter: Waiter,
    source: Source,
    event: &'a Event,
    /// The derived topic on which the event is heard.
    topic: Option<Rc<str>>,
}

/// The waits that one of these events may end; a wait may be listed more than once.
pub fn waiters<'a>(events: &'a [Event], topics: &Topics) -> Vec<Woken<'a>> {
    if events.is_empty() || !wakes::any() {
        return Vec::new();
    }
    let patterns = wakes::patterns();
    let (mut lookups, mut of) = (Vec::new(), Vec::new());
    for event in events {
        let own = keys_of(event, &patterns).into_iter().map(|key| (key, None));
        let derived = topics.get(&event.id).into_iter().flatten();
        let derived =
            derived.flat_map(|of| topic_keys(&of.topic, &patterns).into_iter().map(move |key| (key, Some(of))));
        for (key, topic) in own.chain(derived) {
            lookups.push(key);
            of.push((event, topic));
        }
    }
    let found = wakes::find(&lookups);
    if found.is_empty() {
        return Vec::new();
    }
    let (hearing, privileges) = (hearing::current(), Privileges::default());
    found
        .into_iter()
        .filter_map(|(key, waiter)| {
            let (event, derived): &(&Event, Option<&DerivedTopic>) = of.get(key)?;
            let source = lookups.get(key)?.source;
            let heard = match (source, derived) {
                (Source::Topic | Source::Pattern, Some(derived)) => {
                    hearing.hears_derived(waiter.owner, event, &derived.topic, &derived.makers, &privileges)
                }
                (Source::Topic | Source::Pattern, None) => {
                    hearing.hears(waiter.owner, event, &event.topic(), &privileges)
                }
                // The state, the signal or the run is read with the owner's rights.
                (Source::State | Source::Signal | Source::Run, _) => true,
            };
            heard.then(|| Woken { waiter, source, event, topic: derived.map(|derived| derived.topic.clone()) })
        })
        .collect()
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
        // Without an id, as after TRUNCATE, the key stands for all entities of the kind.
        let id = event.entity_id.as_deref().map(|id| wake_key(id).into_owned());
        keys.push(key(Source::State, kind, id));
    }
    keys.extend(topic_keys(&event.topic(), patterns));
    keys
}

/// The keys of a topic in the wake-index. Topics have no entity: waits for a topic are indexed without an id, and a key
/// with any id finds them.
fn topic_keys(subject: &str, patterns: &[String]) -> Vec<Key> {
    let key = |source: Source, kind: &str| Key { source, kind: kind.to_owned(), entity_id: Some(String::new()) };
    let matching = patterns.iter().filter(|pattern| hears(pattern, subject));
    let matching = matching.map(|pattern| key(Source::Pattern, pattern));
    std::iter::once(key(Source::Topic, subject)).chain(matching).collect()
}

/// Is the event an order to call the next run of a queue?
pub fn is_turn(event: &Event) -> bool {
    matches!(event.order(), Some(Order::Turn { .. }))
}

/// The dispatches that an order to move runs makes.
fn moved(event: &Event, now: Micros) -> Vec<NewDispatch> {
    let Some(order) = event.order() else { return Vec::new() };
    match order {
        Order::Thaw { automation_id } => live::frozen(automation_id)
            .into_iter()
            .map(|(run_id, owner, automation_id, version_id)| {
                let waiter = Waiter { run_id, wait_no: WaitNo::NONE, owner, automation_id, version_id };
                dispatch(waiter, Reason::Thaw, None, now)
            })
            .collect(),
        Order::Look { kind } => {
            let found = wakes::find(&[Key { source: Source::State, kind, entity_id: None }]);
            found.into_iter().map(|(_, waiter)| dispatch(waiter, Reason::Look, None, now)).collect()
        }
        Order::Bulk { job, owner, automation_id, version_id, alone } => {
            let owner = pg_sys::Oid::from(owner);
            let waiter =
                Waiter { run_id: RunId(job), wait_no: WaitNo(i32::from(alone)), owner, automation_id, version_id };
            vec![dispatch(waiter, Reason::Bulk, None, now)]
        }
        Order::Turn { automation_id, key } => {
            let next = live::next_queued(&[(automation_id, key.as_str())]);
            next.into_iter().map(|waiter| dispatch(waiter, Reason::Turn, None, now)).collect()
        }
        Order::Skip { run_id, wait_no, owner, automation_id, version_id } => {
            let waiter = Waiter { run_id, wait_no, owner: pg_sys::Oid::from(owner), automation_id, version_id };
            vec![dispatch(waiter, Reason::Skip, None, now)]
        }
        Order::Start(_) | Order::Tick { .. } | Order::Freed { .. } => Vec::new(),
    }
}
