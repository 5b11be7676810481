//! Topics and schedules against brute force.

use automation_core::cron::Cron;
use automation_core::topic::{self, TopicIndex};
use automation_core::value::Timestamp;
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Timelike};
use chrono_tz::Tz;
use proptest::prelude::*;

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "ab", "aab", "graph", "node", "created", ""])
}

fn pattern_word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "ab", "*", "#", "a*", "*b", "a*b", "*a*", "graph", "node", "created"])
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    #[test]
    fn the_index_finds_what_trying_every_pattern_finds(
        patterns in prop::collection::vec(prop::collection::vec(pattern_word(), 1..6), 0..30),
        topics in prop::collection::vec(prop::collection::vec(word(), 1..6), 1..6),
    ) {
        let patterns: Vec<String> = patterns.iter().map(|words| words.join(".")).collect();
        let mut index = TopicIndex::new();
        patterns.iter().enumerate().for_each(|(i, pattern)| index.insert(pattern, i));
        for words in &topics {
            let topic = words.join(".");
            let found: Vec<usize> = index.matches(&topic).into_iter().copied().collect();
            let expected: Vec<usize> = (0..patterns.len()).filter(|i| topic::matches(&patterns[*i], &topic)).collect();
            prop_assert_eq!(found, expected, "{} in {:?}", topic, patterns);
        }
    }

    #[test]
    fn matching_agrees_with_its_definition(
        pattern in prop::collection::vec(pattern_word(), 1..6),
        topic in prop::collection::vec(word(), 1..6),
    ) {
        fn by_definition(pattern: &[&str], topic: &[&str]) -> bool {
            match pattern {
                [] => topic.is_empty(),
                ["#", rest @ ..] => (0..=topic.len()).any(|i| by_definition(rest, &topic[i..])),
                [word, rest @ ..] => {
                    !topic.is_empty() && word_by_definition(word, topic[0]) && by_definition(rest, &topic[1..])
                }
            }
        }
        fn word_by_definition(pattern: &str, word: &str) -> bool {
            if pattern == "*" {
                return !word.is_empty();
            }
            match pattern.split_once('*') {
                None => pattern == word,
                Some((head, rest)) => {
                    let Some(tail) = word.strip_prefix(head) else { return false };
                    // inside a word, * may stand for nothing
                    (0..=tail.len()).any(|i| match rest {
                        "" => i == tail.len(),
                        "*" => true,
                        _ => word_by_definition(rest, &tail[i..]),
                    })
                }
            }
        }
        // the older spelling has a meaning of its own
        if pattern[0] == "graph" {
            return Ok(());
        }
        let expected = by_definition(&pattern, &topic);
        prop_assert_eq!(topic::matches(&pattern.join("."), &topic.join(".")), expected);
    }
}

/// A schedule whose fields are sets, and the text that says so.
#[derive(Clone, Debug)]
pub struct Simple {
    minutes: Vec<u32>,
    hours: Option<Vec<u32>>,
    days: Option<Vec<u32>>,
    months: Option<Vec<u32>>,
    weekdays: Option<Vec<u32>>,
}

impl Simple {
    pub fn text(&self) -> String {
        let list = |set: &[u32]| set.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let field = |set: &Option<Vec<u32>>| set.as_ref().map_or("*".to_owned(), |set| list(set));
        let hours = field(&self.hours);
        format!(
            "{} {hours} {} {} {}",
            list(&self.minutes),
            field(&self.days),
            field(&self.months),
            field(&self.weekdays)
        )
    }

    fn matches(&self, at: NaiveDateTime) -> bool {
        let has = |set: &Option<Vec<u32>>, value: u32| set.as_ref().is_none_or(|set| set.contains(&value));
        let (day, weekday) = (at.day(), at.weekday().num_days_from_sunday());
        let date = match (&self.days, &self.weekdays) {
            (Some(days), Some(weekdays)) => days.contains(&day) || weekdays.contains(&weekday),
            _ => has(&self.days, day) && has(&self.weekdays, weekday),
        };
        at.second() == 0
            && self.minutes.contains(&at.minute())
            && has(&self.hours, at.hour())
            && has(&self.months, at.month())
            && date
    }

    /// Every firing in a range of minutes, by looking at each.
    pub fn brute_force(&self, zone: Tz, from: i64, to: i64) -> Vec<i64> {
        let local = |minute: i64| {
            let utc: DateTime<chrono::Utc> = DateTime::from_timestamp(minute * 60, 0).unwrap();
            utc.with_timezone(&zone).naive_local()
        };
        let mut fires = Vec::new();
        // what the clock has shown so far; before the range a day is enough
        let mut shown = (from - 1500..from).map(local).max().unwrap();
        let mut now = local(from - 1);
        for minute in from..to {
            let before = now;
            now = local(minute);
            let skipped = now - before > chrono::TimeDelta::minutes(1);
            let missed = skipped && self.hours.is_some() && {
                let gap = (now - before).num_minutes();
                (1..gap).any(|i| self.matches(before + chrono::TimeDelta::minutes(i)))
            };
            let repeated = now <= shown;
            if missed || (self.matches(now) && (self.hours.is_none() || !repeated)) {
                fires.push(minute);
            }
            shown = shown.max(now);
        }
        fires
    }
}

fn set(low: u32, high: u32, most: usize) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::btree_set(low..=high, 1..=most).prop_map(|set| set.into_iter().collect())
}

pub fn simple() -> impl Strategy<Value = Simple> {
    let hours = prop_oneof![3 => set(0, 4, 3).prop_map(Some), 1 => Just(None)];
    (
        set(0, 59, 2),
        hours,
        prop::option::weighted(0.3, set(1, 28, 6)),
        prop::option::weighted(0.3, set(1, 12, 4)),
        prop::option::weighted(0.3, set(0, 6, 3)),
    )
        .prop_map(|(minutes, hours, days, months, weekdays)| Simple { minutes, hours, days, months, weekdays })
}

pub const ZONES: [Tz; 8] = [
    Tz::UTC,
    Tz::Europe__Berlin,
    Tz::America__New_York,
    Tz::Australia__Lord_Howe,
    Tz::America__Havana,
    Tz::Asia__Kathmandu,
    Tz::Africa__Casablanca,
    Tz::Pacific__Apia,
];

fn agrees(schedule: &Simple, zone: Tz, start: NaiveDate, days: i64) -> Result<(), TestCaseError> {
    let cron = Cron::parse(&schedule.text()).unwrap();
    let from = start.and_hms_opt(0, 0, 0).unwrap().and_utc().timestamp() / 60;
    let to = from + days * 1440;
    let expected = schedule.brute_force(zone, from, to);
    let mut found = Vec::new();
    let mut after = Timestamp(from * 60_000_000 - 1);
    while let Some(next) = cron.next_after(after, zone).filter(|next| next.0 < to * 60_000_000) {
        found.push(next.0 / 60_000_000);
        after = next;
    }
    prop_assert_eq!(found, expected, "{} in {} from {}", schedule.text(), zone, start);
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(20))]

    #[test]
    fn a_schedule_fires_when_brute_force_says(
        schedule in simple(),
        zone in prop::sample::select(ZONES.to_vec()),
        year in 2000_i32..2037,
        spring in any::<bool>(),
    ) {
        // the weeks in which clocks change, in either half of the world
        let start = NaiveDate::from_ymd_opt(year, if spring { 3 } else { 9 }, 1).unwrap();
        agrees(&schedule, zone, start, 65)?;
    }
}

/// Thirty years of every minute; minutes of work, so only on demand.
#[test]
#[ignore = "takes minutes; run with --release -- --ignored"]
fn a_schedule_fires_when_brute_force_says_for_thirty_years() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 40, ..ProptestConfig::default() });
    let inputs = (simple(), prop::sample::select(ZONES.to_vec()));
    runner
        .run(&inputs, |(schedule, zone)| {
            let start = NaiveDate::from_ymd_opt(2007, 1, 1).unwrap();
            agrees(&schedule, zone, start, 30 * 365)
        })
        .unwrap();
}
