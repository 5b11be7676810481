//! How many requests may be under way at once, and whose: a receiver that hangs, and an automation all of whose
//! receivers hang, must leave room for the others.
use std::collections::HashMap;

/// Requests under way, in all and to one receiver of one owner.
pub const MOST: usize = 64;
pub const MOST_PER_RECEIVER: usize = 8;
/// The number of requests that every automation may have under way, however many automations send.
const LEAST_PER_AUTOMATION: usize = 4;

/// Counts of the requests under way: all, by receiver and by automation.
#[derive(Clone, Debug, Default)]
pub struct Share {
    total: usize,
    receivers: HashMap<String, usize>,
    automations: HashMap<i64, usize>,
}

impl Share {
    /// How many more requests may begin.
    pub fn room(&self) -> usize {
        MOST - self.total
    }

    pub fn in_flight(&self) -> usize {
        self.total
    }

    /// Counts a request as under way, if there is room for it.
    pub fn take(&mut self, receiver: &str, automation: i64) -> bool {
        if self.total >= MOST || self.is_full(receiver) || self.has_its_share(automation) {
            return false;
        }
        self.total += 1;
        *self.receivers.entry(receiver.to_owned()).or_insert(0) += 1;
        *self.automations.entry(automation).or_insert(0) += 1;
        true
    }

    pub fn give_back(&mut self, receiver: &str, automation: i64) {
        self.total = self.total.saturating_sub(1);
        lower(&mut self.receivers, receiver);
        lower(&mut self.automations, &automation);
    }

    fn is_full(&self, receiver: &str) -> bool {
        self.receivers.get(receiver).is_some_and(|count| *count >= MOST_PER_RECEIVER)
    }

    /// Has the automation its share? Room is divided into one share more than there are automations that send, so that
    /// a new automation finds room at once.
    fn has_its_share(&self, automation: i64) -> bool {
        let has = self.automations.get(&automation).copied().unwrap_or(0);
        let others = self.automations.len() - usize::from(has > 0);
        has >= (MOST / (others + 2)).max(LEAST_PER_AUTOMATION)
    }

    /// Receivers to which no further request may be sent now.
    pub fn full_receivers(&self) -> Vec<String> {
        self.receivers.keys().filter(|receiver| self.is_full(receiver)).cloned().collect()
    }

    /// Automations for which no further request may be sent now.
    pub fn full_automations(&self) -> Vec<i64> {
        self.automations.keys().copied().filter(|automation| self.has_its_share(*automation)).collect()
    }
}

fn lower<K: std::hash::Hash + Eq + std::borrow::Borrow<Q>, Q: std::hash::Hash + Eq + ?Sized>(
    counts: &mut HashMap<K, usize>,
    key: &Q,
) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_gets_eight_and_another_still_finds_room() {
        let mut share = Share::default();
        assert_eq!((0..100).filter(|_| share.take("hangs", 1)).count(), MOST_PER_RECEIVER);
        assert_eq!(share.full_receivers(), ["hangs"]);
        assert!(share.take("other", 1));
        share.give_back("hangs", 1);
        assert!(share.full_receivers().is_empty());
        assert!(share.take("hangs", 1));
    }

    #[test]
    fn an_automation_whose_receivers_all_hang_leaves_room_for_the_next() {
        let mut share = Share::default();
        let taken = (0..1000).filter(|n| share.take(&n.to_string(), 1)).count();
        assert_eq!(taken, MOST / 2);
        assert_eq!(share.full_automations(), [1]);
        for automation in 2..10 {
            assert!(share.take("a", automation), "{automation}");
            share.give_back("a", automation);
        }
    }

    #[test]
    fn never_more_than_all_are_under_way_and_what_is_given_back_is_free() {
        let mut share = Share::default();
        let mut taken = Vec::new();
        for n in 0..10_000_i64 {
            let (receiver, automation) = ((n % 37).to_string(), n % 40);
            if share.take(&receiver, automation) {
                taken.push((receiver, automation));
            }
        }
        assert_eq!((taken.len(), share.room()), (MOST, 0));
        for (receiver, automation) in taken {
            share.give_back(&receiver, automation);
        }
        assert_eq!((share.in_flight(), share.receivers.len(), share.automations.len()), (0, 0, 0));
    }
}
