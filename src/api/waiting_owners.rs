//! Owners whose work does not get on, as status() tells of them. Names are for roles that may learn them, counts for
//! all.
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use pgrx::pg_sys;

use super::admin::StatusRow;
use crate::gucs;
use crate::pg::{clock, identity, names};
use crate::signal::executor_slot::ExecutorSlot;
use crate::signal::shmem::{self, DatabaseSlot, shared};
use crate::store::{dispatches, owners};

/// An executor that has been in one batch for so many microseconds is held.
const HELD: i64 = 5_000_000;
/// Queued work of a refused owner is counted up to this.
const MOST_COUNTED: i64 = 1000;

/// A row about the executors, and one for each owner whose work is refused.
pub fn rows(home: Option<&DatabaseSlot>) -> Vec<StatusRow> {
    let slots: Vec<&ExecutorSlot> =
        shared().executors_of(shmem::my_database()).filter(|slot| slot.pid.load(Ordering::Acquire) != 0).collect();
    let no_process = home.is_some_and(|home| home.out_of_workers.load(Ordering::Acquire));
    let now = clock::now();
    let is_held = |slot: &ExecutorSlot| slot.place().busy_since.is_some_and(|since| now - since > HELD);
    let mut held: BTreeMap<u32, usize> = BTreeMap::new();
    for slot in slots.iter().filter(|slot| is_held(slot)) {
        *held.entry(slot.owner.load(Ordering::Acquire)).or_default() += 1;
    }
    let all_held = !slots.is_empty() && held.values().sum::<usize>() == slots.len();

    let (mut refused, mut hidden, mut waiting) = (Vec::new(), 0, BTreeMap::new());
    for owner in dispatches::owners() {
        if let Some(reason) = owners::refusal(owner) {
            match names::role_name(owner).filter(|_| identity::may_name(owner)) {
                Some(name) => refused.push((name, reason, dispatches::queued(owner, 0, MOST_COUNTED))),
                None => hidden += 1,
            }
            continue;
        }
        let oid = owner.to_u32();
        let own = shared().executors_of(shmem::my_database()).filter(|slot| slot.owner.load(Ordering::Acquire) == oid);
        let (has, held) = (own.count(), held.get(&oid).copied().unwrap_or_default());
        let stands_still = if has == 0 { all_held || no_process } else { has == held };
        if stands_still && dispatches::queued(owner, 0, has as i64 + 1) > has as i64 {
            waiting.insert(oid, 1);
        }
    }

    let mut rows = vec![executors(&slots, no_process, &waiting, &held)];
    rows.extend(refused.into_iter().map(|(name, reason, queued)| {
        let queued = if queued < MOST_COUNTED { queued.to_string() } else { format!("{MOST_COUNTED} or more") };
        (format!("owner {name}"), "refused".to_owned(), Some(format!("{reason}; {queued} queued")))
    }));
    if hidden > 0 {
        let detail = format!("work of {} stays queued: no right to run automations here", other_owners(hidden));
        rows.push(("owners".to_owned(), "refused".to_owned(), Some(detail)));
    }
    rows
}

fn executors(
    slots: &[&ExecutorSlot],
    no_process: bool,
    waiting: &BTreeMap<u32, usize>,
    held: &BTreeMap<u32, usize>,
) -> StatusRow {
    let mut problems = Vec::new();
    if no_process {
        problems.push("max_worker_processes is used up: executors cannot be started".to_owned());
    }
    if !waiting.is_empty() {
        problems.push(format!(
            "work of {} waits; executors held for more than {} s: {}; give such steps a timeout, or set \
             automation_engine.step_timeout",
            owners_of(waiting, |name, _| name.to_owned(), |owners, _| other_owners(owners)),
            HELD / 1_000_000,
            owners_of(held, |name, count| format!("{name} ({count})"), |_, count| format!("other owners ({count})")),
        ));
    }
    let usual = || format!("{} running, at most {}", slots.len(), gucs::executors());
    let status = if problems.is_empty() { "ok" } else { "starved" };
    let detail = if problems.is_empty() { usual() } else { problems.join("; ") };
    ("executors".to_owned(), status.to_owned(), Some(detail))
}

fn other_owners(count: usize) -> String {
    format!("{count} other owner{}", if count == 1 { "" } else { "s" })
}

/// A list of owners with their counts: those that the current user may name, then how many others there are, and the
/// sum of their counts.
fn owners_of(
    counts: &BTreeMap<u32, usize>,
    one: impl Fn(&str, usize) -> String,
    others: impl Fn(usize, usize) -> String,
) -> String {
    let (mut named, mut unnamed, mut sum) = (Vec::new(), 0, 0);
    for (owner, count) in counts {
        let owner = pg_sys::Oid::from(*owner);
        match names::role_name(owner).filter(|_| identity::may_name(owner)) {
            Some(name) => named.push(one(&format!("\"{name}\""), *count)),
            None => {
                unnamed += 1;
                sum += count;
            }
        }
    }
    if unnamed > 0 {
        named.push(others(unnamed, sum));
    }
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}
