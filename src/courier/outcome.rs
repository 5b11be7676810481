//! Records the outcome of an attempt to deliver a message. The core decides the consequences (retry, defer, dead).
use automation_core::delivery::{Attempt, Next, Outcome as Verdict, backoff_from_json};
use egress::Outcome;

use super::prepare::NotReady;
use super::senders::Answer;
use crate::pg::clock::Micros;
use crate::store::deliveries::{self, Account, Message};
use crate::store::{endpoints, log};

/// An attempt that is over, or could not be made.
pub struct Record {
    pub message: Message,
    verdict: Verdict,
    /// The request was not made, and never can be.
    hopeless: bool,
    status: Option<i32>,
    error: Option<String>,
    body: Option<String>,
    started_at: Micros,
    ended_at: Micros,
}

impl Record {
    pub fn of_answer(message: Message, answer: Answer) -> Self {
        let record = Record {
            message,
            verdict: Verdict::Unknown,
            hopeless: false,
            status: None,
            error: None,
            body: None,
            started_at: answer.started_at,
            ended_at: answer.ended_at,
        };
        match answer.outcome {
            Outcome::Answer { status, retry_after, body } => {
                let wait = retry_after.map(|wait| i64::try_from(wait.as_micros()).unwrap_or(i64::MAX));
                let fine = (200..300).contains(&status);
                let verdict = Verdict::Answer { status, retry_after: wait };
                let error = (!fine).then(|| format!("the receiver answered {status}"));
                Record { verdict, status: Some(status.into()), error, body: readable(&body), ..record }
            }
            Outcome::Refused(blocked) => {
                Record { verdict: Verdict::Blocked, error: Some(blocked.to_string()), ..record }
            }
            Outcome::NotSent(why) => Record { verdict: Verdict::NotSent, error: Some(why), ..record },
            Outcome::Unknown(why) => Record { verdict: Verdict::Unknown, error: Some(why), ..record },
        }
    }

    pub fn of_refusal(message: Message, why: NotReady, now: Micros) -> Self {
        let (verdict, hopeless, error) = match why {
            NotReady::Blocked(why) => (Verdict::Blocked, false, why),
            NotReady::NoSecret(why) => (Verdict::Unsigned, false, why),
            NotReady::Hopeless(why) => (Verdict::NotSent, true, why),
        };
        let (status, body) = (None, None);
        Record { message, verdict, hopeless, status, error: Some(error), body, started_at: now, ended_at: now }
    }

    fn of_interruption(message: Message, now: Micros) -> Self {
        let error = Some("the courier ended before the outcome was recorded".to_owned());
        let (verdict, hopeless, status, body) = (Verdict::Interrupted, false, None, None);
        Record { message, verdict, hopeless, status, error, body, started_at: now, ended_at: now }
    }

    /// The same record without the receiver's answer, in case the answer is the part that cannot be stored.
    pub fn without_body(mut self) -> Self {
        self.body = None;
        self
    }

    pub fn failed(&self) -> bool {
        !matches!(self.verdict, Verdict::Answer { status: 200..=299, .. })
    }

    fn next(&self) -> Next {
        if self.hopeless {
            return Next::Dead { disable_endpoint: false };
        }
        let message = &self.message;
        let backoff = message.backoff.as_ref().and_then(|text| serde_json::from_str(text).ok());
        let backoff = backoff.as_ref().and_then(backoff_from_json);
        Attempt {
            number: u32::try_from(message.attempt).unwrap_or(1),
            max: u32::try_from(message.max_attempts).unwrap_or(1),
            at_most_once: message.at_most_once,
            backoff: backoff.as_ref(),
            seed: message.id as u64,
        }
        .then(self.verdict)
    }
}

/// The body of a receiver's answer as text that can be stored.
fn readable(body: &[u8]) -> Option<String> {
    (!body.is_empty()).then(|| String::from_utf8_lossy(body).replace('\0', "\u{fffd}"))
}

/// Records an attempt. A message that this courier has not claimed any more is left alone.
pub fn record(record: &Record, now: Micros) {
    let message = &record.message;
    let account = Account {
        id: message.id,
        attempt: message.attempt,
        started_at: record.started_at,
        ended_at: record.ended_at,
        status: record.status,
        error: record.error.as_deref(),
        body: record.body.as_deref(),
    };
    let (ours, disable) = match record.next() {
        Next::Delivered => (deliveries::end(&account, "delivered", None), false),
        Next::Ambiguous => (deliveries::end(&account, "ambiguous", None), false),
        Next::Dead { disable_endpoint } => {
            let reason = if disable_endpoint { "receiver_gone" } else { "delivery_failed" };
            (deliveries::end(&account, "dead", Some(reason)), disable_endpoint)
        }
        Next::Again { after } => (deliveries::again(&account, now + after), false),
        Next::Defer { after } => (deliveries::defer(&account, now + after), false),
    };
    if !ours {
        return;
    }
    let automation = message.automation.as_deref().unwrap_or_default();
    if record.verdict == Verdict::Blocked {
        let details = serde_json::json!({ "delivery": message.id, "reason": record.error });
        log::audit_as("courier", Some(message.owner), "delivery.blocked", automation, &details);
    }
    if let Some(endpoint) = message.endpoint.as_deref().filter(|_| disable)
        && endpoints::disable(message.owner, endpoint, "the receiver answered 410 Gone", now)
    {
        let details = serde_json::json!({ "endpoint": endpoint, "delivery": message.id });
        log::audit_as("courier", Some(message.owner), "endpoint.disabled", automation, &details);
    }
}

/// Records as interrupted the messages that the previous courier had claimed when it ended.
pub fn record_interrupted(now: Micros) {
    for message in deliveries::interrupted() {
        record(&Record::of_interruption(message, now), now);
    }
}
