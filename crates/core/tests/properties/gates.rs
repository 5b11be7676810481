//! Windows, ticks, turns and overlapping patterns against brute force.

use crate::schedule::{Simple, ZONES, simple};
use automation_core::cron::Cron;
use automation_core::fairness::{LANES, Lanes};
use automation_core::gate::window::{Refire, Window};
use automation_core::schedule::{Missed, Overlap, Schedule, Timetable};
use automation_core::topic;
use automation_core::value::Timestamp;
use chrono::NaiveDate;
use chrono_tz::Tz;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

proptest! {
    #![proptest_config(crate::cases(2000))]

    /// R000-42, G9: the count is that of the trailing window, and `once` fires exactly when it is crossed.
    #[test]
    fn a_window_counts_what_brute_force_counts(
        threshold in 1_u64..6,
        within in 1_i64..20,
        gaps in prop::collection::vec(0_i64..8, 1..40),
        once in any::<bool>(),
    ) {
        let refire = if once { Refire::Once } else { Refire::Every };
        let window = Window { count: threshold, within, per: None, refire };
        let mut earlier: Vec<Timestamp> = Vec::new();
        let mut now = 0;
        for gap in gaps {
            now += gap;
            let before = earlier.iter().filter(|at| now - at.0 <= within).count() as u64;
            let counted = window.count(&earlier, Timestamp(now));
            prop_assert_eq!(counted.count, before + 1);
            let crossed = before < threshold && before + 1 >= threshold;
            let expected = if once { crossed } else { before + 1 >= threshold };
            prop_assert_eq!(counted.verdict.is_ok(), expected);
            earlier.push(Timestamp(now));
        }
    }

    /// Whoever has something queued gets every n-th turn, n being how many have, whenever he comes.
    #[test]
    fn nobody_waits_for_more_than_his_neighbours_take_once(
        arrivals in prop::collection::vec((0_u16..5, 1_usize..40, 0_usize..60), 1..12),
    ) {
        let mut lanes = Lanes::new(0, None, 0);
        let mut queue: BTreeSet<i64> = BTreeSet::new();
        let mut latest: BTreeMap<i64, usize> = BTreeMap::new();
        let mut served = 0_usize;
        for (lane, count, then) in arrivals {
            lanes.serve(queue.first().copied());
            for _ in 0..count {
                let place = lanes.place(lane, false);
                prop_assert!(queue.insert(place), "a place was given away twice");
                // those of his own lane that come first, himself included
                let first = queue.iter().filter(|other| **other % i64::from(LANES) == i64::from(lane)).count();
                latest.insert(place, served + first * 5);
            }
            for _ in 0..then {
                let Some(place) = queue.pop_first() else { break };
                served += 1;
                // a lane that was between two turns when he came may have one more
                prop_assert!(served <= latest[&place] + 5, "{} {}", served, latest[&place]);
            }
        }
    }
}

fn pattern() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["a", "b", "ab", "*", "#", "a*", "*b", "a*b", "*a*"]);
    prop::collection::vec(word, 1..4).prop_map(|words| words.join("."))
}

/// Every topic of up to five words that could tell patterns of [`pattern`] apart.
fn topics() -> Vec<String> {
    const WORDS: [&str; 4] = ["a", "b", "ab", "ba"];
    let mut all: Vec<String> = WORDS.iter().map(|word| (*word).to_owned()).collect();
    let mut longest = all.clone();
    for _ in 0..4 {
        longest = longest.iter().flat_map(|topic| WORDS.iter().map(move |word| format!("{topic}.{word}"))).collect();
        all.extend(longest.iter().cloned());
    }
    all
}

proptest! {
    #![proptest_config(crate::cases(60))]

    #[test]
    fn patterns_overlap_if_and_only_if_some_topic_is_selected_by_both(a in pattern(), b in pattern()) {
        let common = topics().into_iter().find(|topic| topic::matches(&a, topic) && topic::matches(&b, topic));
        prop_assert_eq!(topic::overlap(&a, &b), common.is_some(), "{} and {}: {:?}", a, b, common);
    }
}

/// Looks at a schedule at random times through the weeks in which clocks change, and compares what became of each tick
/// with what brute force says the ticks are.
fn every_tick_once(
    schedule: &Simple,
    zone: Tz,
    start: NaiveDate,
    missed: Missed,
    gaps: &[i64],
) -> Result<(), TestCaseError> {
    let from = start.and_hms_opt(0, 0, 0).unwrap().and_utc().timestamp() / 60;
    let cron = Cron::parse(&schedule.text()).unwrap();
    let (timetable, text) = (Timetable::Cron(Box::new(cron), zone), schedule.text());
    let schedule_of = Schedule { timetable, missed, overlap: Overlap::Skip, text };
    // the moment of activation is no tick itself
    let mut last = Timestamp(from * 60_000_000 - 1);
    let mut now = last.0;
    let (mut seen, mut unseen) = (Vec::new(), false);
    for gap in gaps {
        now += gap * 1_000_000;
        let due = schedule_of.due(last, Timestamp(now));
        unseen |= due.more_missed;
        let late = |tick: &Timestamp| now - tick.0;
        prop_assert!(due.fire.iter().chain(&due.missed).all(|tick| late(tick) >= 0), "never early");
        match missed {
            Missed::Once => prop_assert_eq!(due.fire.last().copied(), due.last),
            Missed::Skip => prop_assert!(due.fire.iter().all(|tick| late(tick) <= 10_000_000)),
            Missed::All(most) => {
                prop_assert!(due.fire.len() <= most && (due.missed.is_empty() || due.fire.len() == most))
            }
        }
        prop_assert!(due.fire.len() <= 1 || matches!(missed, Missed::All(_)));
        prop_assert!(due.next.is_none_or(|next| next.0 > now));
        let on_time = due.fire.last().is_some_and(|tick| late(tick) <= 10_000_000);
        prop_assert_eq!(due.made_up, due.fire.len() - usize::from(on_time));
        seen.extend(due.missed.iter().chain(&due.fire).map(|tick| tick.0 / 60_000_000));
        last = due.last.unwrap_or(last);
    }
    let expected = schedule.brute_force(zone, from, now.div_euclid(60_000_000) + 1);
    if unseen {
        // so many that not all were recorded: none twice, none that is no tick
        prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(seen.iter().all(|tick| expected.contains(tick)));
    } else {
        prop_assert_eq!(seen, expected, "{} in {} from {}", schedule.text(), zone, start);
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(40))]

    /// G8, D16: through both changes of the clocks, however long nobody looked.
    #[test]
    fn every_tick_is_dealt_with_exactly_once(
        schedule in simple(),
        zone in prop::sample::select(ZONES.to_vec()),
        year in 2000_i32..2037,
        spring in any::<bool>(),
        missed in prop_oneof![Just(Missed::Once), Just(Missed::Skip), (1_usize..30).prop_map(Missed::All)],
        gaps in prop::collection::vec(prop_oneof![3 => 1_i64..7200, 2 => 3600_i64..90_000, 1 => 90_000_i64..900_000], 1..80),
    ) {
        let start = NaiveDate::from_ymd_opt(year, if spring { 3 } else { 10 }, 20).unwrap();
        every_tick_once(&schedule, zone, start, missed, &gaps)?;
    }
}
