//! Whose turn it is. Owners take turns, and within an owner's turn its tenants do, so that nobody waits longer for having
//! a neighbour with a long queue. Priority counts within a queue only: it never takes another's turn.

use std::collections::BTreeMap;

/// The runs of one owner and tenant that could start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Who owns the automations.
    pub owner: u32,
    /// Whose events they are.
    pub tenant: Option<String>,
    /// How many runs wait.
    pub waiting: usize,
}

/// Who had the last turn. Losing it costs a turn, not more.
#[derive(Clone, Debug, Default)]
pub struct Rotation {
    owner: Option<u32>,
    tenants: BTreeMap<u32, Option<String>>,
}

impl Rotation {
    /// The queues from which to take the next `slots` runs, one run each, in this order.
    pub fn turns(&mut self, queues: &[Queue], slots: usize) -> Vec<usize> {
        let mut by_owner: BTreeMap<u32, BTreeMap<Option<String>, (usize, usize)>> = BTreeMap::new();
        for (place, queue) in queues.iter().enumerate().filter(|(_, queue)| queue.waiting > 0) {
            by_owner.entry(queue.owner).or_default().insert(queue.tenant.clone(), (place, queue.waiting));
        }
        self.tenants.retain(|owner, _| by_owner.contains_key(owner));
        let mut turns = Vec::new();
        while turns.len() < slots {
            let Some(owner) = after(&by_owner, self.owner.as_ref()) else { break };
            let Some(tenants) = by_owner.get_mut(&owner) else { break };
            let Some(tenant) = after(tenants, self.tenants.get(&owner)) else { break };
            if let Some((place, waiting)) = tenants.get_mut(&tenant) {
                turns.push(*place);
                *waiting -= 1;
                if *waiting == 0 {
                    tenants.remove(&tenant);
                }
            }
            self.tenants.insert(owner, tenant);
            self.owner = Some(owner);
            if tenants.is_empty() {
                by_owner.remove(&owner);
            }
        }
        turns
    }
}

/// The key after another, round and round.
fn after<K: Ord + Clone, V>(map: &BTreeMap<K, V>, last: Option<&K>) -> Option<K> {
    use std::ops::Bound::{Excluded, Unbounded};
    let next = last.and_then(|last| map.range((Excluded(last), Unbounded)).next());
    next.or_else(|| map.iter().next()).map(|(key, _)| key.clone())
}

#[cfg(test)]
mod tests {
    use super::{Queue, Rotation};

    fn queue(owner: u32, tenant: &str, waiting: usize) -> Queue {
        Queue { owner, tenant: Some(tenant.to_owned()), waiting }
    }

    fn names(queues: &[Queue], turns: &[usize]) -> String {
        let name =
            |place: &usize| format!("{}{}", queues[*place].owner, queues[*place].tenant.as_deref().unwrap_or("-"));
        turns.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn owners_take_turns_and_so_do_the_tenants_of_each() {
        let queues = [queue(1, "a", 9), queue(1, "b", 9), queue(2, "c", 9)];
        assert_eq!(names(&queues, &Rotation::default().turns(&queues, 6)), "1a 2c 1b 2c 1a 2c");
    }

    #[test]
    fn a_turn_is_remembered_from_one_batch_to_the_next() {
        let queues = [queue(1, "a", 9), queue(1, "b", 9), queue(1, "c", 9)];
        let mut rotation = Rotation::default();
        let taken: Vec<usize> = (0..5).flat_map(|_| rotation.turns(&queues, 1)).collect();
        assert_eq!(names(&queues, &taken), "1a 1b 1c 1a 1b");
    }

    #[test]
    fn an_empty_queue_has_no_turn_and_all_that_wait_are_taken() {
        let queues = [queue(1, "a", 2), queue(1, "b", 0), queue(2, "c", 1)];
        assert_eq!(names(&queues, &Rotation::default().turns(&queues, 100)), "1a 2c 1a");
    }

    #[test]
    fn a_hundred_thousand_runs_of_one_tenant_delay_anothers_at_most_twofold() {
        // alone, 1,000 runs take 100 batches of 10
        let mut queues = [queue(1, "big", 100_000), queue(1, "small", 1000)];
        let mut rotation = Rotation::default();
        let mut batches = 0;
        while queues[1].waiting > 0 {
            for place in rotation.turns(&queues, 10) {
                queues[place].waiting -= 1;
            }
            batches += 1;
        }
        assert!(batches <= 200, "{batches} batches");
    }
}
