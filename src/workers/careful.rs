//! Chooses the next dispatch to try after a crash. Dispatches that may have been executing then are tried one by one,
//! so that a step that takes the server down is found out.
use std::collections::HashSet;

use pgrx::pg_sys;

use crate::gucs;
use crate::signal::shmem::{self, shared};
use crate::store::dispatches;

/// How many dispatches to look at for one that no other dispatch holds back.
const LOOK_AHEAD: i64 = 500;

pub enum Pick {
    /// There is no dispatch left to try.
    Nothing,
    /// All dispatches that are left are locked by other executors, or wait for those that are.
    AllHeld,
    /// The dispatch to try; its row is locked.
    Dispatch(i64),
}

/// The upper bound of an owner's dispatches that are to be tried one by one: not beyond `below`, where dispatches
/// begin that were queued later, and at most executors × batch_size of them, the most that can have been executing
/// at once.
pub fn end(owner: pg_sys::Oid, floor: i64, below: i64) -> i64 {
    let most = (gucs::executors() as i64 * gucs::batch_size()).max(1);
    dispatches::at_place(owner, floor, most).map_or(below, |id| id.min(below))
}

/// The first dispatch of an owner that no executor tries and that has to wait for none before it. Only this one is
/// locked: several executors look at the same head of the queue, and each must be able to take the dispatch that it has
/// chosen. `put_off` are dispatches whose next try is not due yet.
pub fn first_free(owner: pg_sys::Oid, floor: i64, below: i64, put_off: &HashSet<i64>) -> Pick {
    let queue = dispatches::queue(owner, floor, below, LOOK_AHEAD);
    if queue.is_empty() {
        return Pick::Nothing;
    }
    let tried = || {
        let mut ids = shared().tried_by_others(shmem::my_database());
        ids.extend(put_off);
        ids
    };
    while let Some(id) = dispatches::lock_first(owner, &free_heads(&queue, &tried())) {
        // Another executor may have chosen it and released its row between the two looks.
        if !tried().contains(&id) {
            return Pick::Dispatch(id);
        }
    }
    Pick::AllHeld
}

/// The dispatches that wait for none before them: the first of each ordering key, and those without one.
fn free_heads(queue: &[(i64, Option<i64>)], tried: &[i64]) -> Vec<i64> {
    let mut keys = HashSet::new();
    let first_of_its_key = |(_, key): &&(i64, Option<i64>)| key.is_none_or(|key| keys.insert(key));
    queue.iter().filter(first_of_its_key).map(|(id, _)| *id).filter(|id| !tried.contains(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::free_heads;

    #[test]
    fn what_is_tried_holds_back_what_has_its_key() {
        let queue = [(1, Some(7)), (2, None), (3, Some(7)), (4, Some(8)), (5, None), (6, Some(8))];
        assert_eq!(free_heads(&queue, &[]), [1, 2, 4, 5]);
        assert_eq!(free_heads(&queue, &[1, 5]), [2, 4]);
        assert!(free_heads(&[], &[1]).is_empty());
    }
}
