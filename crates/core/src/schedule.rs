//! Schedules: the ticks at which the clock starts runs, missed ticks, and ticks that come while the run before is under
//! way.
//!
//! Ticks are a property of the schedule alone, each is worked out from the one before and never from the present, so
//! (schedule, tick) names a firing for good and none can come twice. A clock set back repeats nothing; one set forward
//! is the same as having been down. [`crate::cron`] has the rules for daylight saving.

use crate::cron::Cron;
use crate::gate::{Code, Reason};
use crate::value::Timestamp;
use chrono_tz::Tz;
use std::collections::VecDeque;

/// A tick that is seen no later than this is not missed.
pub const ON_TIME: i64 = 10_000_000;
/// Most missed ticks that are recorded one by one.
pub const RECORDED: usize = 100;
/// Most ticks of one schedule that wait for the run before.
pub const MOST_WAITING: usize = 1000;

/// The schedule of a trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// When the ticks come.
    pub timetable: Timetable,
    /// How missed ticks are treated.
    pub missed: Missed,
    /// How a tick is treated while the run of an earlier tick is under way.
    pub overlap: Overlap,
    /// The timetable as it is kept. A schedule whose text is the same goes on where it was after a new definition.
    pub text: String,
}

/// When the ticks of a schedule come.
#[derive(Clone, Debug, PartialEq)]
pub enum Timetable {
    /// By the calendar of a time zone.
    Cron(Box<Cron>, Tz),
    /// Every so many microseconds since the automation was made active.
    Every(i64),
}

/// How missed ticks are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The last missed tick is made up for.
    Once,
    /// No missed tick is made up for.
    Skip,
    /// The last so many missed ticks are made up for.
    All(usize),
}

/// How a tick is treated while the run of an earlier tick is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// The tick is skipped.
    Skip,
    /// The run of the tick starts all the same.
    Allow,
    /// The run of the tick waits.
    Queue,
}

/// The ticks of a schedule that are due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Ticks to fire, oldest first.
    pub fire: Vec<Timestamp>,
    /// How many of those, from the first on, are made up for: all but the latest, and that one too if it is late.
    pub made_up: usize,
    /// Ticks to record as missed, oldest first; the latest [`RECORDED`] of them.
    pub missed: Vec<Timestamp>,
    /// There were more missed ticks before those.
    pub more_missed: bool,
    /// The last tick that is now dealt with, fired or not: store it.
    pub last: Option<Timestamp>,
    /// When the next tick comes.
    pub next: Option<Timestamp>,
}

/// The decision on a tick while other ticks of its schedule wait or have runs under way.
#[derive(Clone, Debug, PartialEq)]
pub enum TickEntry {
    /// Start at once.
    Start,
    /// Start when the run before has ended.
    Queue,
    /// Record it as skipped.
    Skip(Reason),
}

impl Timetable {
    /// The tick after another, or after the moment of activation.
    pub fn next(&self, last: Timestamp) -> Option<Timestamp> {
        match self {
            Timetable::Cron(cron, zone) => cron.next_after(last, *zone),
            Timetable::Every(every) => last.0.checked_add(*every).map(Timestamp),
        }
    }

    /// The time zone whose calendar the ticks go by; none for equal distances.
    pub fn zone(&self) -> Option<&'static str> {
        match self {
            Timetable::Cron(_, zone) => Some(zone.name()),
            Timetable::Every(_) => None,
        }
    }

    /// The next ticks, for people.
    pub fn upcoming(&self, last: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next(last), |tick| self.next(*tick)).take(count).collect()
    }

    /// The latest ticks in `last < tick <= now`, at most `most` of them and oldest first, and whether there were more.
    fn latest(&self, last: Timestamp, now: Timestamp, most: usize) -> (Vec<Timestamp>, bool) {
        match self {
            Timetable::Every(every) => {
                let count = (now.0.saturating_sub(last.0)).max(0) / every;
                let shown = count.min(most as i64);
                let ticks = (count - shown + 1..=count).map(|i| Timestamp(last.0 + i * every)).collect();
                (ticks, count > shown)
            }
            Timetable::Cron(cron, zone) => {
                // A schedule that was down for years is not walked through from its beginning: look back in strides
                // that grow until there are enough ticks.
                let mut stride: i64 = 60_000_000;
                loop {
                    let from = Timestamp(now.0.saturating_sub(stride).max(last.0));
                    let mut ticks: VecDeque<Timestamp> = VecDeque::with_capacity(most + 1);
                    let mut more = false;
                    let mut tick = cron.next_after(from, *zone);
                    while let Some(at) = tick.filter(|at| *at <= now) {
                        ticks.push_back(at);
                        if ticks.len() > most {
                            ticks.pop_front();
                            more = true;
                        }
                        tick = cron.next_after(at, *zone);
                    }
                    if from == last || more {
                        return (ticks.into(), more);
                    }
                    stride = stride.saturating_mul(4);
                }
            }
        }
    }
}

impl Schedule {
    /// The ticks that are due now, given the last tick that was dealt with (or when the automation was made active).
    pub fn due(&self, last: Timestamp, now: Timestamp) -> Due {
        let wanted = match self.missed {
            Missed::All(most) => most.max(1),
            Missed::Once | Missed::Skip => 1,
        };
        let (mut ticks, more_missed) = self.timetable.latest(last, now, wanted + RECORDED);
        let on_time = |tick: &Timestamp| now.0 - tick.0 <= ON_TIME;
        let firing = match self.missed {
            Missed::Skip => usize::from(ticks.last().is_some_and(on_time)),
            Missed::Once | Missed::All(_) => wanted.min(ticks.len()),
        };
        let dealt_with = ticks.last().copied();
        let made_up = firing - usize::from(firing > 0 && ticks.last().is_some_and(on_time));
        let fire = ticks.split_off(ticks.len() - firing);
        let unrecorded = ticks.len().saturating_sub(RECORDED);
        let missed = ticks.split_off(unrecorded);
        Due {
            fire,
            made_up,
            missed,
            more_missed: more_missed || unrecorded > 0,
            last: dealt_with,
            next: self.timetable.next(dealt_with.unwrap_or(last)),
        }
    }

    /// Can a tick have to wait for the run before?
    pub fn may_queue(&self) -> bool {
        match self.overlap {
            Overlap::Allow => false,
            Overlap::Queue => true,
            Overlap::Skip => matches!(self.missed, Missed::All(_)),
        }
    }

    /// Decides on ticks that fire together, oldest first, while so many runs of earlier ticks are under way and so many
    /// earlier ticks wait.
    ///
    /// More than one tick fires only where missed ones are made up for. Those are all wanted, so where two runs must
    /// not overlap they go one after the other, also under `skip`.
    pub fn enter(&self, under_way: usize, waiting: usize, ticks: usize) -> Vec<TickEntry> {
        let overlaps = |wanted: String, found: usize, what: &str| {
            let found = format!("{found} {} {what}", if found == 1 { "is" } else { "are" });
            TickEntry::Skip(Reason::new(Code::TickOverlaps, wanted, found))
        };
        let entry = |place: usize| match self.overlap {
            Overlap::Allow => TickEntry::Start,
            Overlap::Skip if under_way + waiting > 0 => {
                let wanted = "the runs of earlier ticks have ended".to_owned();
                overlaps(wanted, under_way + waiting, "under way")
            }
            Overlap::Skip | Overlap::Queue if under_way + waiting + place == 0 => TickEntry::Start,
            Overlap::Skip | Overlap::Queue => {
                let before = waiting + place - usize::from(under_way + waiting == 0);
                match before < MOST_WAITING {
                    true => TickEntry::Queue,
                    false => overlaps(format!("fewer than {MOST_WAITING} ticks wait"), before, "waiting"),
                }
            }
        };
        (0..ticks).map(entry).collect()
    }
}

/// The version of the time zone data, to be stored with each tick.
pub fn zone_data() -> &'static str {
    chrono_tz::IANA_TZDB_VERSION
}

#[cfg(test)]
mod tests {
    use super::{MOST_WAITING, Missed, Overlap, Schedule, TickEntry, Timetable};
    use TickEntry::{Queue, Start};

    fn schedule(overlap: Overlap) -> Schedule {
        Schedule { timetable: Timetable::Every(1), missed: Missed::Once, overlap, text: String::new() }
    }

    #[test]
    fn a_tick_starts_waits_or_is_skipped_while_earlier_ones_are_under_way() {
        let entry = |overlap, under_way, waiting| schedule(overlap).enter(under_way, waiting, 1).remove(0);
        for overlap in [Overlap::Skip, Overlap::Allow, Overlap::Queue] {
            assert_eq!(entry(overlap, 0, 0), Start);
        }
        assert_eq!(entry(Overlap::Allow, 2, 0), Start);
        assert_eq!(entry(Overlap::Queue, 1, 0), Queue);
        // the first tick that waits has not been started yet, and later ticks must not overtake it
        assert_eq!(entry(Overlap::Queue, 0, 1), Queue);
        let TickEntry::Skip(reason) = entry(Overlap::Skip, 2, 0) else { panic!("it is skipped") };
        assert_eq!(reason.to_string(), "overlap: the runs of earlier ticks have ended; 2 are under way");
    }

    #[test]
    fn ticks_that_are_made_up_for_together_go_one_after_the_other() {
        assert_eq!(schedule(Overlap::Allow).enter(0, 0, 3), [Start, Start, Start]);
        assert_eq!(schedule(Overlap::Queue).enter(0, 0, 3), [Start, Queue, Queue]);
        assert_eq!(schedule(Overlap::Skip).enter(0, 0, 3), [Start, Queue, Queue]);
        assert!(schedule(Overlap::Skip).enter(1, 0, 3).iter().all(|entry| matches!(entry, TickEntry::Skip(_))));
        assert!(schedule(Overlap::Skip).enter(0, 1, 1).iter().all(|entry| matches!(entry, TickEntry::Skip(_))));
    }

    #[test]
    fn only_so_many_ticks_wait() {
        let entries = schedule(Overlap::Queue).enter(1, MOST_WAITING - 1, 2);
        assert_eq!(entries[0], Queue);
        let TickEntry::Skip(reason) = &entries[1] else { panic!("it is skipped") };
        assert_eq!(reason.to_string(), "overlap: fewer than 1000 ticks wait; 1000 are waiting");
    }
}
