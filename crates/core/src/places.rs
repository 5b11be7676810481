//! The places of the executors of one database: which owner may take one, and which executor makes room.
//!
//! An owner is entitled to one executor. Further ones are lent to it as long as no owner with work is without one. An
//! executor that was asked to leave and is still inside the same batch a moment later is written off: its place no
//! longer counts against the limit, so the owner that waits for it gets an executor beside it. The process itself
//! leaves when its batch ends. An owner with a written-off executor gets no further one, so it never has more processes
//! than the limit, and all owners together at most the limit plus one limit per owner that does not come back.
//!
//! The worker processes of the server are fewer than all databases together may want. Where none is left, the same
//! rules choose among the executors of all databases the one that makes room, and the process that becomes free is kept
//! for the asker that it was freed for: the owner that has just lost an executor would be the first to take it back.

/// How long, in microseconds, an executor may take to leave after it was asked before it is written off.
pub const LATE: i64 = 1_000_000;

/// An asker for a process as one number: an owner in a database, or the conductor or the courier of a database.
pub fn asker(database: u32, role: u32) -> u64 {
    u64::from(database) << 32 | u64::from(role)
}

/// These stand in place of the owner if the asker is the conductor or the courier of a database: no role has these
/// oids.
pub const CONDUCTOR: u32 = 0;
pub const COURIER: u32 = u32::MAX;

/// How long, in microseconds, a process that becomes free is kept for an asker that has not asked again.
const KEPT: i64 = 2_000_000;

/// The asker that the next free process is for, and when it last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub by: u64,
    pub at: i64,
}

/// May `asker` take the next free process, and ask others to make room for it?
pub fn may_take(claim: Option<Claim>, asker: u64, now: i64) -> bool {
    // A clock that was set back ends a claim.
    claim.is_none_or(|claim| claim.by == asker || !(0..=KEPT).contains(&(now - claim.at)))
}

/// One executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its owner, in its database: see `asker`.
    pub owner: u64,
    /// When the process came up.
    pub started_at: i64,
    /// It was started and has not begun a batch yet.
    pub is_new: bool,
    /// When it began the batch that it is in; `None` while it is in no batch.
    pub busy_since: Option<i64>,
    /// When it was asked to leave.
    pub asked_at: Option<i64>,
}

impl Place {
    /// Was it asked to leave, without coming back from its batch since?
    pub fn is_written_off(&self, now: i64) -> bool {
        // A time ahead of the clock is from before the clock was set back.
        let late = |since: Option<i64>| since.is_some_and(|since| (now - since).abs() > LATE);
        late(self.asked_at) && late(self.busy_since)
    }
}

/// The answer to an owner that wants an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may start one.
    Start,
    /// Not now.
    Wait,
    /// Not now; ask the executor at this index to leave after its batch.
    Ask(usize),
}

/// May `owner` start an executor? `others_lack` says that another owner has work and no executor at all.
pub fn ask(places: &[Place], owner: u64, limit: usize, others_lack: bool, now: i64) -> Answer {
    let mut own = places.iter().filter(|place| place.owner == owner).peekable();
    let has_one = own.peek().is_some();
    if has_one && (others_lack || own.any(|place| place.asked_at.is_some())) {
        return Answer::Wait;
    }
    if places.iter().filter(|place| !place.is_written_off(now)).count() < limit {
        return Answer::Start;
    }
    match has_one {
        true => Answer::Wait,
        false => make_room(places, owner, now).map_or(Answer::Wait, Answer::Ask),
    }
}

/// The executor of another owner that has to leave after its batch: an idle one, else one of the owner that has most,
/// among those the one whose batch began last, else the one that is there longest. Not a new one: two owners without an
/// executor would ask each other's new executors to leave before these have done anything, for ever. None while an
/// executor that was asked may yet leave.
pub fn make_room(places: &[Place], owner: u64, now: i64) -> Option<usize> {
    let asked = |place: &Place| place.asked_at.is_some();
    if places.iter().any(|place| asked(place) && !place.is_written_off(now)) {
        return None;
    }
    let staying =
        || places.iter().enumerate().filter(|(_, place)| place.owner != owner && !asked(place) && !place.is_new);
    let share = |owner: u64| staying().filter(|(_, place)| place.owner == owner).count();
    let key = |place: &Place| {
        let share = share(place.owner);
        let order = if share > 1 { place.busy_since.unwrap_or(0) } else { -place.started_at };
        (place.busy_since.is_none(), share, order)
    };
    staying().max_by_key(|(_, place)| key(place)).map(|(index, _)| index)
}

/// With no process to be had for `owner`, which has none: the written-off executor that is ended in the middle of its
/// batch. Its owner has another executor, so the dispatches that it gives back are not lost to that owner; the executor
/// whose batch began last loses least.
pub fn take_back(places: &[Place], owner: u64, now: i64) -> Option<usize> {
    let has_another = |place: &Place| places.iter().filter(|other| other.owner == place.owner).count() > 1;
    places
        .iter()
        .enumerate()
        .filter(|(_, place)| place.owner != owner && place.is_written_off(now) && has_another(place))
        .max_by_key(|(_, place)| place.busy_since)
        .map(|(index, _)| index)
}

/// The executors beyond the limit that are asked to leave, after it was lowered: idle ones first.
pub fn surplus(places: &[Place], limit: usize) -> Vec<usize> {
    let mut staying: Vec<usize> = (0..places.len()).filter(|index| places[*index].asked_at.is_none()).collect();
    let surplus = staying.len().saturating_sub(limit);
    staying.sort_by_key(|index| places[*index].busy_since.unwrap_or(0));
    staying.truncate(surplus);
    staying
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;
    const MALLORY: u64 = 1;
    const ALICE: u64 = 9;

    fn stuck(owner: u64, since: i64) -> Place {
        Place { owner, started_at: since, busy_since: Some(since), ..Default::default() }
    }

    /// A pool in which every executor that is started gets stuck at once.
    #[derive(Default)]
    struct Hostile {
        places: Vec<Place>,
        now: i64,
    }

    impl Hostile {
        /// Lets `owner` ask for an executor until it has started one, for at most `patience`.
        fn gets_one(&mut self, owner: u64, limit: usize, patience: i64) -> bool {
            let end = self.now + patience;
            while self.now < end {
                match ask(&self.places, owner, limit, false, self.now) {
                    Answer::Start => {
                        self.places.push(stuck(owner, self.now));
                        return true;
                    }
                    Answer::Ask(index) => self.places[index].asked_at = Some(self.now),
                    Answer::Wait => {}
                }
                self.now += SECOND / 50;
            }
            false
        }

        fn of(&self, owner: u64) -> usize {
            self.places.iter().filter(|place| place.owner == owner).count()
        }
    }

    #[test]
    fn one_owner_may_have_all_places_and_no_more() {
        let mut pool = Hostile::default();
        for _ in 0..4 {
            assert!(pool.gets_one(MALLORY, 4, SECOND));
        }
        assert!(!pool.gets_one(MALLORY, 4, HOUR / 60));
        assert!(pool.places.iter().all(|place| place.asked_at.is_none()));
    }

    #[test]
    fn an_owner_without_an_executor_gets_one_however_many_owners_hold_theirs_for_ever() {
        for limit in 1..=6 {
            let mut pool = Hostile::default();
            for hostile in 1..=5 {
                for _ in 0..limit {
                    pool.gets_one(hostile, limit, 10 * SECOND);
                }
                assert!(pool.of(hostile) >= 1, "owner {hostile} of {limit} places");
            }
            assert!(pool.gets_one(ALICE, limit, 10 * SECOND), "{limit} places");
            assert!(pool.places.len() <= limit * 5 + 1, "{} processes for {limit} places", pool.places.len());
            assert!((1..=5).all(|hostile| pool.of(hostile) <= limit));
        }
    }

    #[test]
    fn owners_that_lack_an_executor_at_the_same_time_do_not_send_each_other_home() {
        for limit in 1..=4 {
            let (mut places, mut now) = (vec![stuck(MALLORY, 0); limit], HOUR);
            let mut worked = std::collections::HashSet::new();
            for _ in 0..600 {
                // A process takes a moment to come up. Asked to leave before its first batch, it leaves without one.
                places.retain(|place| !(place.is_new && place.asked_at.is_some()));
                for place in places.iter_mut().filter(|place| place.is_new) {
                    *place = stuck(place.owner, now);
                    worked.insert(place.owner);
                }
                for owner in [7, 8, ALICE] {
                    match ask(&places, owner, limit, false, now) {
                        Answer::Start => places.push(Place { owner, is_new: true, ..Default::default() }),
                        Answer::Ask(index) => places[index].asked_at = Some(now),
                        Answer::Wait => {}
                    }
                }
                now += SECOND / 50;
            }
            assert_eq!(worked.len(), 3, "of {limit} places: {worked:?}");
        }
    }

    #[test]
    fn an_owner_whose_executor_was_written_off_gets_no_further_one() {
        let mut pool = Hostile::default();
        assert!(pool.gets_one(MALLORY, 1, SECOND));
        assert!(pool.gets_one(ALICE, 1, 10 * SECOND));
        pool.places.retain(|place| place.owner == MALLORY);
        pool.now += HOUR;
        assert_eq!(ask(&pool.places, MALLORY, 1, false, pool.now), Answer::Wait);
        assert_eq!(ask(&pool.places, ALICE, 1, false, pool.now), Answer::Start);
    }

    #[test]
    fn who_has_one_waits_while_another_owner_has_none() {
        let places = [stuck(MALLORY, 0)];
        assert_eq!(ask(&places, MALLORY, 4, true, SECOND), Answer::Wait);
        assert_eq!(ask(&places, MALLORY, 4, false, SECOND), Answer::Start);
        assert_eq!(ask(&places, ALICE, 4, true, SECOND), Answer::Start);
    }

    #[test]
    fn one_that_may_yet_leave_is_waited_for() {
        let mut places = [stuck(MALLORY, 0), stuck(MALLORY, 5), stuck(2, 1)];
        assert_eq!(ask(&places, ALICE, 3, false, 10), Answer::Ask(1), "of the owner with most, the batch begun last");
        places[1].asked_at = Some(10);
        assert_eq!(ask(&places, ALICE, 3, false, 20), Answer::Wait);
        // It began a new batch meanwhile, so it does come back.
        places[1].busy_since = Some(2 * SECOND);
        assert_eq!(ask(&places, ALICE, 3, false, 2 * SECOND + 10), Answer::Wait);
        places[1].busy_since = Some(0);
        assert_eq!(ask(&places, ALICE, 3, false, 2 * SECOND + 10), Answer::Start);
    }

    #[test]
    fn an_idle_executor_leaves_first_then_of_equals_the_one_that_is_there_longest() {
        let idle = Place { owner: 2, started_at: 50, ..Default::default() };
        assert_eq!(make_room(&[stuck(MALLORY, 0), stuck(MALLORY, 1), idle], ALICE, 100), Some(2));
        assert_eq!(make_room(&[stuck(3, 7), stuck(MALLORY, 2), stuck(2, 5)], ALICE, 100), Some(1));
        assert_eq!(make_room(&[stuck(ALICE, 0)], ALICE, 100), None);
    }

    #[test]
    fn only_what_an_owner_has_beyond_its_first_is_taken_back_in_the_middle_of_a_batch() {
        let gone = |owner, since| Place { asked_at: Some(since), ..stuck(owner, since) };
        let places = [gone(MALLORY, 0), gone(MALLORY, 5), stuck(MALLORY, 7), gone(2, 9)];
        assert_eq!(take_back(&places, ALICE, HOUR), Some(1));
        assert_eq!(take_back(&places[2..], ALICE, HOUR), None);
        assert_eq!(take_back(&places, ALICE, SECOND), None, "not before it had its time to leave");
        assert_eq!(take_back(&places, MALLORY, HOUR), None);
    }

    #[test]
    fn a_lower_limit_sends_idle_ones_home_first() {
        let idle = Place { owner: 2, started_at: 50, ..Default::default() };
        assert_eq!(surplus(&[stuck(1, 5), idle, stuck(1, 3)], 2), [1]);
        assert_eq!(surplus(&[stuck(1, 5), idle, stuck(1, 3)], 1), [1, 2]);
        assert!(surplus(&[stuck(1, 5), Place { asked_at: Some(1), ..idle }], 1).is_empty());
    }

    #[test]
    fn the_same_role_in_two_databases_is_two_owners() {
        let askers = [asker(5, 10), asker(6, 10), asker(5, 11), asker(5, CONDUCTOR), asker(5, COURIER)];
        let different: std::collections::HashSet<u64> = askers.into_iter().collect();
        assert_eq!(different.len(), askers.len());
        let places = [stuck(asker(5, 10), 0), stuck(asker(5, 10), 3), stuck(asker(6, 10), 1)];
        assert_eq!(make_room(&places, asker(7, 10), 100), Some(1));
        // A conductor or a courier has no executors: any may make room for it.
        assert_eq!(make_room(&places[..1], asker(5, COURIER), 100), Some(0));
    }

    #[test]
    fn a_process_that_was_freed_is_kept_for_its_asker() {
        let claim = Some(Claim { by: ALICE, at: 10 * SECOND });
        assert!(may_take(None, MALLORY, 0));
        assert!(may_take(claim, ALICE, 10 * SECOND) && !may_take(claim, MALLORY, 10 * SECOND));
        assert!(!may_take(claim, MALLORY, 12 * SECOND), "its asker may yet come back");
        assert!(may_take(claim, MALLORY, 12 * SECOND + 1));
        assert!(may_take(claim, MALLORY, 9 * SECOND), "the clock was set back");
    }

    /// The owners of two databases and a server with fewer processes than owners.
    #[test]
    fn databases_that_take_turns_all_get_on() {
        for processes in 1..=3 {
            let owners: Vec<u64> = (0..4).map(|n| asker(1 + n / 2, 100 + n)).collect();
            let (mut places, mut now, mut claim): (Vec<Place>, i64, Option<Claim>) = (Vec::new(), 0, None);
            let mut batches = std::collections::HashMap::<u64, u32>::new();
            for _ in 0..3_000 {
                // Each turn is a batch of every executor that is up; those that were asked leave after it.
                places.retain(|place| place.asked_at.is_none() || place.is_new);
                for place in &mut places {
                    *batches.entry(place.owner).or_default() += 1;
                    place.is_new = false;
                    place.busy_since = Some(now);
                }
                for owner in &owners {
                    if places.iter().any(|place| place.owner == *owner) || !may_take(claim, *owner, now) {
                        continue;
                    }
                    if places.len() < processes {
                        places.push(Place { owner: *owner, started_at: now, is_new: true, ..Default::default() });
                        claim = None;
                        continue;
                    }
                    claim = Some(Claim { by: *owner, at: now });
                    if let Some(index) = make_room(&places, *owner, now) {
                        places[index].asked_at = Some(now);
                    }
                }
                now += SECOND / 50;
            }
            for owner in &owners {
                assert!(batches.get(owner).is_some_and(|done| *done > 300), "{processes} processes: {batches:?}");
            }
        }
    }
}
