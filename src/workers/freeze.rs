//! How workers tell the server's log of a database that is read-only (when that begins and when it ends) and of
//! failures that repeat (once a minute), instead of once for each time that they notice.
use std::time::{Duration, Instant};

/// The server's log is told the same again after this long.
const REMIND: Duration = Duration::from_secs(60);

/// Finds out whether a message of this process only repeats the last one.
#[derive(Default)]
pub struct Repeats {
    last: Option<(String, Instant)>,
}

impl Repeats {
    /// Is this message another than the last, or the last one so long ago that it is worth repeating?
    pub fn is_news(&mut self, message: &str) -> bool {
        self.is_news_at(message, Instant::now())
    }

    fn is_news_at(&mut self, message: &str, now: Instant) -> bool {
        let known = self.last.as_ref().is_some_and(|(last, at)| last == message && now.duration_since(*at) < REMIND);
        if !known {
            self.last = Some((message.to_owned(), now));
        }
        !known
    }
}

/// Whether the database is read-only, and whether the server's log was told so.
#[derive(Default)]
pub struct Freeze {
    on: Option<On>,
    told: Repeats,
}

struct On {
    place: String,
    since: Instant,
    told: bool,
}

impl Freeze {
    pub fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// The database is read-only. Returns the message for the server's log when that has just begun; a freeze that
    /// begins again and again is told of once a minute.
    pub fn begin(&mut self, (place, command): (String, String)) -> Option<String> {
        if self.on.is_some() {
            return None;
        }
        let message = format!(
            "default_transaction_read_only is on for {place}: nothing is routed, run or delivered until it is off ({command})"
        );
        let told = self.told.is_news(&message);
        self.on = Some(On { place, since: Instant::now(), told });
        told.then_some(message)
    }

    /// The database can be written to. If it was read-only until now: the message, and whether the server's log was
    /// told of the beginning.
    pub fn end(&mut self) -> Option<(String, bool)> {
        let On { place, since, told } = self.on.take()?;
        let seconds = since.elapsed().as_secs();
        let message = format!("work goes on: default_transaction_read_only was on for {place} for {seconds} s");
        Some((message, told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute_and_another_at_once() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let told: Vec<bool> = [("a", 0), ("a", 1), ("a", 59), ("b", 59), ("a", 59), ("a", 119)]
            .map(|(message, second)| repeats.is_news_at(message, start + Duration::from_secs(second)))
            .to_vec();
        assert_eq!(told, [true, false, false, true, true, true]);
    }
}
