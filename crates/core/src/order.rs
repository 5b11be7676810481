//! Orders that the engine gives to itself through the event log: written in the transaction that wants something done,
//! carried out by the router after its commit. One encoder and one decoder; every verb and every field that can be in
//! an order stands here.
use serde::{Deserialize, Serialize};

use crate::ids::{AutomationId, RunId, VersionId, WaitNo};
use crate::machine::JobItem;

/// An order. The word in `do` names the variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Order {
    /// Start a run whose number is reserved: start_run(), retry_run(), a step `run`, a row of a bulk job.
    Start(Box<Start>),
    /// A schedule is due. The run is queued in the transaction that writes the order, so the order names no run.
    Tick {
        automation_id: AutomationId,
        schedule_id: i64,
        /// The tick's time, in microseconds since 2000-01-01 UTC.
        tick: i64,
    },
    /// The automation is active again: its runs that `on_pause => 'freeze'` has stopped go on.
    Thaw { automation_id: AutomationId },
    /// The kind is watched again: every run that waits for one of its entities evaluates its condition once more.
    Look { kind: String },
    /// Tend a bulk job: rows have ended, or rows can begin.
    Bulk {
        job: i64,
        owner: u32,
        automation_id: AutomationId,
        version_id: VersionId,
        /// Tending the job may take long, so it gets a transaction of its own.
        alone: bool,
    },
    /// The first run of a queue has ended: the next one begins.
    Turn { automation_id: AutomationId, key: String },
    /// skip_step(): the run goes on without the step that it waits at.
    Skip { run_id: RunId, wait_no: WaitNo, owner: u32, automation_id: AutomationId, version_id: VersionId },
    /// A run has ended that ticks of its automation's schedules may have waited for.
    Freed { automation_id: AutomationId },
}

/// Which run to start, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub run_id: RunId,
    /// The trigger that the run is counted with; none for a run started by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_no: Option<i16>,
    /// The run whose step waits for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// The event that the run is about, if it is not the order itself; as the event log writes an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// A run for an equal event counts as a duplicate, as it does for triggers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dedup: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub row: Option<Row>,
}

/// The run repeats one that has failed or was cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    pub retry_of: RunId,
    /// The state that the failed run had, as the history keeps it.
    #[serde(default)]
    pub state: Option<String>,
    /// Begin at this step instead of the one that failed.
    #[serde(default)]
    pub from_step: Option<String>,
    /// Go on behind the step that failed.
    #[serde(default)]
    pub skip: bool,
}

/// The run is for one row of a bulk job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The job.
    pub bulk: i64,
    /// The row's number in the job.
    pub item: i64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<RowOfBackfill>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub of_step: Option<RowOfStep>,
}

/// The row stands for an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowOfBackfill {
    /// For which sort of event, as the job keeps it.
    #[serde(rename = "as")]
    pub rows_as: String,
    /// The topic of an event that is no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
}

/// The row is one of a step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowOfStep {
    /// The step's number in the program.
    pub step: i32,
    /// The role whose rights the run has.
    pub owner: u32,
}

impl Order {
    /// The text that the log keeps.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The order that `encode` wrote. None for a text that is no order.
    pub fn decode(text: &str) -> Option<Order> {
        serde_json::from_str(text).ok()
    }
}

impl Start {
    /// The order to start this run.
    pub fn order(self) -> Order {
        Order::Start(Box::new(self))
    }

    /// The row of a bulk job that the run is for. A run that repeats another is none of the job's any more.
    pub fn item(&self) -> Option<JobItem> {
        let row = self.row.as_ref().filter(|_| self.retry.is_none())?;
        Some(JobItem { job: row.bulk, no: row.item })
    }

    /// The row of a step that the run is for.
    pub fn row_of_step(&self) -> Option<&RowOfStep> {
        self.row.as_ref()?.of_step.as_ref()
    }

    /// Does the run keep the version and the trigger that the order names, also if the automation has a newer version?
    pub fn keeps_version(&self) -> bool {
        self.retry.is_some() || self.row.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Start {
        Start { automation_id: AutomationId(3), version_id: VersionId(7), run_id: RunId(9), ..Start::default() }
    }

    fn all() -> Vec<Order> {
        let retry = Retry { retry_of: RunId(4), state: Some("{}".into()), from_step: Some("a".into()), skip: true };
        let row = |backfill, of_step| Some(Row { bulk: 1, item: 2, backfill, of_step });
        let backfill = Some(RowOfBackfill { rows_as: "e".into(), topic: Some("t".into()) });
        let of_step = Some(RowOfStep { step: 5, owner: 10 });
        vec![
            start().order(),
            Start { parent: Some(RunId(2)), trigger_no: Some(-1), ..start() }.order(),
            Start { event: Some("{}".into()), dedup: true, ..start() }.order(),
            Start { retry: Some(retry), ..start() }.order(),
            Start { row: row(backfill, None), ..start() }.order(),
            Start { row: row(None, of_step), parent: Some(RunId(8)), ..start() }.order(),
            Order::Tick { automation_id: AutomationId(1), schedule_id: 2, tick: 3 },
            Order::Thaw { automation_id: AutomationId(1) },
            Order::Look { kind: "orders".into() },
            Order::Bulk { job: 1, owner: 2, automation_id: AutomationId(3), version_id: VersionId(4), alone: true },
            Order::Turn { automation_id: AutomationId(1), key: "k".into() },
            Order::Skip {
                run_id: RunId(1),
                wait_no: WaitNo(2),
                owner: 3,
                automation_id: AutomationId(4),
                version_id: VersionId(5),
            },
            Order::Freed { automation_id: AutomationId(1) },
        ]
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in all() {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
    }

    #[test]
    fn the_fields_that_statements_of_the_engine_read_stand_at_the_top() {
        let text = Start { parent: Some(RunId(5)), ..start() }.order().encode();
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&json["automation_id"], &json["run_id"], &json["parent"]), (&3.into(), &9.into(), &5.into()));
        assert_eq!(json["do"], "start");
    }

    #[test]
    fn a_run_that_repeats_a_row_is_none_of_the_jobs() {
        let row = Some(Row { bulk: 1, item: 2, backfill: None, of_step: None });
        let fresh = Start { row: row.clone(), ..start() };
        assert_eq!(fresh.item(), Some(JobItem { job: 1, no: 2 }));
        let retry = Some(Retry { retry_of: RunId(9), state: None, from_step: None, skip: false });
        assert_eq!(Start { row, retry, ..start() }.item(), None);
        assert!(fresh.keeps_version() && !start().keeps_version());
    }

    #[test]
    fn a_text_that_is_no_order_is_none() {
        for text in ["", "null", "{}", r#"{"do":"dance"}"#, r#"{"do":"turn","key":"k"}"#, r#"{"do":"start"}"#] {
            assert_eq!(Order::decode(text), None, "{text}");
        }
    }
}
