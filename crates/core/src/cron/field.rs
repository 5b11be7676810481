//! One field of a schedule: lists, ranges, steps, names, and the calendar's `L`, `W` and `#`.

use super::{error, shortened};
use crate::expr::ExprError;
use crate::suggest::nearest;
use chrono::{Datelike, NaiveDate};

/// Names of months, from 1.
pub const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
/// Names of weekdays, from 0.
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The text of one field and where it stands.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    text: &'a str,
    at: usize,
}

/// Bits `low..=high`.
pub fn all(low: u32, high: u32) -> u64 {
    (low..=high).fold(0, |set, value| set | 1 << value)
}

impl<'a> Field<'a> {
    /// Splits a schedule at white space.
    pub fn split(text: &'a str) -> Vec<Field<'a>> {
        let mut fields = Vec::new();
        let mut at = 0;
        for part in text.split(|c: char| c.is_ascii_whitespace()) {
            if !part.is_empty() {
                fields.push(Field { text: part, at });
            }
            at += part.len() + 1;
        }
        fields
    }

    /// Whether the field restricts nothing on its own: `*`, `*/2`, `?`.
    pub fn is_star(&self) -> bool {
        self.text.starts_with(['*', '?'])
    }

    fn items(&self) -> impl Iterator<Item = Field<'a>> {
        let mut at = self.at;
        self.text.split(',').map(move |text| {
            let item = Field { text, at };
            at += text.len() + 1;
            item
        })
    }

    fn fail<T>(&self, message: String) -> Result<T, ExprError> {
        Err(error(self.at..self.at + self.text.len(), message))
    }

    /// The values of a field of plain numbers and names, as bits.
    pub fn set(&self, what: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, ExprError> {
        self.items().try_fold(0, |set, item| Ok(set | item.range(what, low, high, names)?))
    }

    /// `*`, `5`, `5-10`, each with `/step`.
    fn range(&self, what: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, ExprError> {
        let (body, step) = match self.text.split_once('/') {
            Some((body, step)) => match step.parse::<u32>() {
                Ok(step) if step > 0 && step <= high.max(1) => (body, Some(step)),
                _ => return self.fail(format!("step \"{}\" of {what} is not between 1 and {high}", shortened(step))),
            },
            None => (self.text, None),
        };
        let value = |text: &str| self.value(text, what, low, high, names);
        let (from, to) = match body {
            "*" | "?" => (low, high),
            _ => match body.split_once('-') {
                Some((from, to)) => (value(from)?, value(to)?),
                // 5/15 means from 5 on
                None if step.is_some() => (value(body)?, high),
                None => (value(body)?, value(body)?),
            },
        };
        let step = step.unwrap_or(1) as usize;
        if from <= to {
            return Ok((from..=to).step_by(step).fold(0, |set, v| set | 1 << v));
        }
        // a range may wrap: fri-mon, 22-2
        Ok((from..=high).chain(low..=to).step_by(step).fold(0, |set, v| set | 1 << v))
    }

    fn value(&self, text: &str, what: &str, low: u32, high: u32, names: &[&str]) -> Result<u32, ExprError> {
        if let Some(index) = names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
            return Ok(index as u32 + low);
        }
        if let Ok(value) = text.parse::<u32>()
            && text.bytes().all(|b| b.is_ascii_digit())
        {
            return match (low..=high).contains(&value) {
                true => Ok(value),
                false => self.fail(format!("{what} {value} is not between {low} and {high}")),
            };
        }
        let near = nearest(text, names.iter().copied());
        self.fail(format!("\"{}\" is not a {what}", shortened(text))).map_err(|e: ExprError| e.with_suggestion(near))
    }
}

/// Days of the month.
#[derive(Clone, Debug, PartialEq)]
pub struct DayOfMonth {
    days: u64,
    /// `15W`: the weekday nearest to a day, in the same month.
    nearest_weekday: Vec<u32>,
    /// `L` and `L-3`: days before the last.
    from_last: Vec<u32>,
    /// `LW`: the last weekday.
    last_weekday: bool,
    /// Whether the field begins with a star.
    pub star: bool,
}

impl DayOfMonth {
    /// Reads the field.
    pub fn parse(field: &Field<'_>) -> Result<DayOfMonth, ExprError> {
        let mut days = DayOfMonth {
            days: 0,
            nearest_weekday: Vec::new(),
            from_last: Vec::new(),
            last_weekday: false,
            star: field.is_star(),
        };
        for item in field.items() {
            let upper = item.text.to_ascii_uppercase();
            if upper == "LW" {
                days.last_weekday = true;
            } else if upper == "L" {
                days.from_last.push(0);
            } else if let Some(before) = upper.strip_prefix("L-") {
                match before.parse::<u32>() {
                    Ok(before) if before <= 30 => days.from_last.push(before),
                    _ => return item.fail(format!("\"{}\" is not a day of the month", shortened(item.text))),
                }
            } else if let Some(day) = upper.strip_suffix('W') {
                days.nearest_weekday.push(item.value(day, "day", 1, 31, &[])?);
            } else {
                days.days |= item.range("day", 1, 31, &[])?;
            }
        }
        Ok(days)
    }

    /// Whether a date is one of them.
    pub fn contains(&self, date: NaiveDate) -> bool {
        let (day, last) = (date.day(), last_day(date));
        self.days & 1 << day != 0
            || self.from_last.iter().any(|before| day + before == last)
            || (self.last_weekday && weekday_on_or_before(date, last) == Some(day))
            || self.nearest_weekday.iter().any(|wanted| nearest_weekday(date, *wanted, last) == Some(day))
    }
}

fn last_day(date: NaiveDate) -> u32 {
    u32::from(date.num_days_in_month())
}

fn is_weekend(date: NaiveDate) -> bool {
    date.weekday().num_days_from_monday() >= 5
}

fn weekday_on_or_before(month: NaiveDate, day: u32) -> Option<u32> {
    (1..=day).rev().find(|day| month.with_day(*day).is_some_and(|date| !is_weekend(date)))
}

/// The weekday nearest to a day without leaving the month.
fn nearest_weekday(month: NaiveDate, wanted: u32, last: u32) -> Option<u32> {
    let date = month.with_day(wanted)?;
    match date.weekday().num_days_from_monday() {
        5 if wanted == 1 => Some(3),
        5 => Some(wanted - 1),
        6 if wanted == last => Some(wanted - 2),
        6 => Some(wanted + 1),
        _ => Some(wanted),
    }
}

/// Days of the week; Sunday is 0 and 7.
#[derive(Clone, Debug, PartialEq)]
pub struct DayOfWeek {
    days: u64,
    /// `fri#2`: the second Friday of the month.
    nth: Vec<(u32, u32)>,
    /// `5L`: the last Friday of the month.
    last: Vec<u32>,
    /// Whether the field begins with a star.
    pub star: bool,
}

impl DayOfWeek {
    /// Reads the field.
    pub fn parse(field: &Field<'_>) -> Result<DayOfWeek, ExprError> {
        let mut days = DayOfWeek { days: 0, nth: Vec::new(), last: Vec::new(), star: field.is_star() };
        for item in field.items() {
            if let Some((day, nth)) = item.text.split_once('#') {
                let day = item.value(day, "weekday", 0, 7, &WEEKDAYS)? % 7;
                match nth.parse::<u32>() {
                    Ok(nth) if (1..=5).contains(&nth) => days.nth.push((day, nth)),
                    _ => return item.fail(format!("\"{}\" is not between 1 and 5", shortened(nth))),
                }
            } else if item.text.eq_ignore_ascii_case("l") {
                days.days |= 1 << 6;
            } else if let Some(day) = item.text.strip_suffix(['L', 'l']) {
                days.last.push(item.value(day, "weekday", 0, 7, &WEEKDAYS)? % 7);
            } else {
                days.days |= item.weekdays()?;
            }
        }
        Ok(days)
    }

    /// Whether a date is one of them.
    pub fn contains(&self, date: NaiveDate) -> bool {
        let weekday = date.weekday().num_days_from_sunday();
        self.days & 1 << weekday != 0
            || self.nth.iter().any(|(day, nth)| *day == weekday && (date.day() - 1) / 7 + 1 == *nth)
            || self.last.iter().any(|day| *day == weekday && date.day() + 7 > last_day(date))
    }
}

impl Field<'_> {
    /// Like [`Field::range`], where 7 is Sunday again and ranges wrap over the week.
    fn weekdays(&self) -> Result<u64, ExprError> {
        let body = self.text.split('/').next().unwrap_or_default();
        let ends_on_sunday = body.ends_with("-7") || body.to_ascii_lowercase().ends_with("-sun");
        if ends_on_sunday && !body.starts_with(['0', '7']) && !body.to_ascii_lowercase().starts_with("sun") {
            // mon-sun and mon-7: to the end of the week
            let upto = body.len() - body.rsplit('-').next().map_or(0, str::len);
            let text = format!("{}7{}", &body[..upto], &self.text[body.len()..]);
            let set = Field { text: &text, at: self.at }.range("weekday", 0, 7, &WEEKDAYS)?;
            return Ok(fold_sunday(set));
        }
        let high = if body.contains('7') { 7 } else { 6 };
        match self.range("weekday", 0, high, &WEEKDAYS) {
            Ok(set) => Ok(fold_sunday(set)),
            // an error names 7 as the upper limit, which is allowed, also if no 7 was written
            Err(_) => self.range("weekday", 0, 7, &WEEKDAYS).map(fold_sunday),
        }
    }
}

/// 7 is Sunday, as 0 is.
fn fold_sunday(set: u64) -> u64 {
    if set & 1 << 7 != 0 { (set | 1) & all(0, 6) } else { set }
}
