//! Fair order of an owner's queue. Each lane with queued dispatches gets every n-th place, however many it has queued
//! already: the first dispatch of another lane is put next to the one being served now, not behind everything.
//!
//! Each lane (a tenant of an owner) counts its own turns. A place is made of its priority, its turn and its lane, in
//! this order, so the queue is served in the order of the places, and no two are the same.

use std::collections::BTreeMap;

/// How many lanes there are; tenants that do not fit share lanes. The last lane is for dispatches that go behind
/// everything.
pub const LANES: u16 = 1 << 14;
const LANE_BITS: u32 = 14;
const TURN_BITS: u32 = 41;
/// The highest priority, and the lowest below zero.
pub const PRIORITY: i32 = 100;

/// The lane of a tenant; the first is for dispatches that belong to no tenant.
pub fn lane(tenant: Option<&str>) -> u16 {
    let Some(tenant) = tenant else { return 0 };
    let hash = tenant.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    1 + (hash % u64::from(LANES - 2)) as u16
}

/// The places of one priority: from the first to before the second.
pub fn class(priority: i32) -> (i64, i64) {
    let rank = i64::from(PRIORITY - priority.clamp(-PRIORITY, PRIORITY));
    (rank << (TURN_BITS + LANE_BITS), (rank + 1) << (TURN_BITS + LANE_BITS))
}

/// The turn of a place.
pub fn turn(place: i64) -> i64 {
    (place >> LANE_BITS) & ((1 << TURN_BITS) - 1)
}

/// The lanes of one owner and priority.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    first: i64,
    /// Turns up to this one may be taken, by any lane.
    base: i64,
    /// The last turn of each lane.
    last: BTreeMap<u16, i64>,
    /// The turn that is being served now.
    serving: i64,
}

impl Lanes {
    /// The lanes of a queue of which the highest taken place is known, but not its lane, and the highest turn ever
    /// given.
    pub fn new(priority: i32, highest: Option<i64>, given: i64) -> Lanes {
        let base = highest.map_or(0, turn).max(given);
        Lanes { first: class(priority).0, base, last: BTreeMap::new(), serving: 0 }
    }

    /// Does a new place of this lane depend on the turn being served? Not if no other lane is in the queue.
    pub fn is_shared(&self, lane: u16) -> bool {
        self.last.len() > 1 || self.last.keys().any(|known| *known != lane)
    }

    /// Sets the turn being served to that of the lowest place that is taken; None if the queue is empty, and then all
    /// lanes begin anew side by side.
    pub fn serve(&mut self, lowest: Option<i64>) {
        self.serving = match lowest {
            Some(place) => turn(place),
            None => self.last.values().copied().max().unwrap_or_default().max(self.base),
        };
    }

    /// A place behind everything that is queued now. It does not move the next place of any other lane.
    pub fn place_last(&mut self) -> i64 {
        self.place(LANES - 1, true)
    }

    /// The next place of a lane. A dispatch that has to keep its order to those of other lanes goes `behind` everything
    /// queued.
    pub fn place(&mut self, lane: u16, behind: bool) -> i64 {
        let own = self.last.get(&lane).copied().unwrap_or(self.base);
        let before = match behind {
            true => self.last.values().copied().max().unwrap_or_default().max(self.base),
            false => own.max(self.serving),
        };
        let turn = before + 1;
        self.last.insert(lane, turn);
        self.first | (turn << LANE_BITS) | i64::from(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::{LANES, Lanes, class, lane, turn};

    #[test]
    fn a_hundred_thousand_runs_of_one_tenant_delay_anothers_at_most_twofold() {
        let mut lanes = Lanes::new(0, None, 0);
        let mut queue: Vec<i64> = (0..100_000).map(|_| lanes.place(1, false)).collect();
        let served = queue.split_off(500);
        lanes.serve(served.first().copied());
        let small: Vec<i64> = (0..1000).map(|_| lanes.place(2, false)).collect();
        let before = |place: i64| served.iter().filter(|other| **other < place).count();
        // alone, the last of the small ones would have had 999 before it
        assert!(before(small[999]) <= 1002, "{}", before(small[999]));
        assert!(before(small[0]) <= 2);
    }

    #[test]
    fn a_lane_keeps_its_order_whatever_is_served() {
        let mut lanes = Lanes::new(0, Some(class(0).0 | (77 << 14)), 5);
        let mut last = 0;
        for (i, serving) in [None, Some(5_i64), Some(90), Some(3), None].into_iter().enumerate() {
            lanes.serve(serving.map(|turn| turn << 14));
            for _ in 0..10 {
                let place = lanes.place(3, i == 2);
                assert!(place > last && turn(place) > 77);
                last = place;
            }
            lanes.place(4, false);
        }
    }

    #[test]
    fn what_must_keep_its_order_to_other_lanes_goes_behind_them() {
        let mut lanes = Lanes::new(0, None, 0);
        let others: Vec<i64> = (0..100).map(|_| lanes.place(1, false)).collect();
        let moved = lanes.place(2, true);
        assert!(others.iter().all(|other| *other < moved));
        assert!(lanes.place(2, false) > moved);
    }

    #[test]
    fn a_lane_that_was_idle_has_saved_nothing_up() {
        let mut lanes = Lanes::new(0, None, 0);
        lanes.place(1, false);
        for _ in 0..1000 {
            lanes.place(2, false);
        }
        lanes.serve(None);
        assert_eq!(turn(lanes.place(1, false)), turn(lanes.place(2, false)));
    }

    #[test]
    fn higher_priorities_come_first_and_places_are_positive() {
        let places: Vec<i64> =
            [100, 1, 0, -1, -100].map(|priority| Lanes::new(priority, None, 0).place(LANES - 1, false)).into();
        assert!(places.is_sorted() && places[0] > 0);
        assert!(places.iter().zip([100, 1, 0, -1, -100]).all(|(place, priority)| {
            let (from, to) = class(priority);
            from <= *place && *place < to
        }));
    }

    #[test]
    fn tenants_have_lanes_of_their_own_apart_from_what_belongs_to_none() {
        assert_eq!(lane(None), 0);
        assert!(lane(Some("")) > 0 && lane(Some("acme")) != lane(Some("umbrella")));
    }
}
