//! Publishes the engine's own events about runs and steps, in the transaction that ends or suspends the runs. If no
//! trigger, wait or subscription listens to them, nothing is written, and a batch pays for one look at an empty table.
use automation_core::ids::RunId;
use automation_core::program::Step;
use automation_core::topic::engine::{Told, Wanted};

use super::batch_state;
use super::suspend::Suspension;
use crate::event_log::events::{NewEvent, Op, append_event};
use crate::provenance::{self, RunContext};
use crate::store::engine_listeners::{self, ancestors, name_of};
use crate::store::history::{EndedRun, Ending};
use crate::store::run_header::RunHeader;

type Json = serde_json::Value;

/// The beginning or the end of a step, to be published.
pub struct StepNews {
    run: RunId,
    told: Told,
    step: String,
    kind: &'static str,
    attempt: u32,
    error: Option<Json>,
}

/// A step begins.
pub fn step_started(run: RunId, step: &Step, attempt: u32) {
    note(run, step, Told::StepStarted, attempt, None);
}

/// A step was completed, or failed.
pub fn step_ended(run: RunId, step: &Step, status: &str, attempt: u32, error: Option<&str>) {
    match status {
        "completed" => note(run, step, Told::StepCompleted, attempt, None),
        "failed" => note(run, step, Told::StepFailed, attempt, error),
        _ => {}
    }
}

fn note(run: RunId, step: &Step, told: Told, attempt: u32, error: Option<&str>) {
    batch_state::with(|batch| {
        if batch.wanted.has(told) {
            let error = error.and_then(|text| serde_json::from_str(text).ok()).map(|error| what_failed(&error));
            batch.news.push(StepNews { run, told, step: step.id.clone(), kind: step.kind(), attempt, error });
        }
    });
}

/// The parts of an error that are published: SQLSTATE, message and step. Its context may contain values.
fn what_failed(error: &Json) -> Json {
    serde_json::json!({ "sqlstate": error["sqlstate"], "message": error["message"], "step": error["step"] })
}

/// Publishes the events of the runs of a turn: their beginning, their steps, their end.
pub fn tell(ended: &[EndedRun], suspended: &[Suspension]) {
    let (wanted, steps) = batch_state::with(|batch| (batch.wanted, std::mem::take(&mut batch.news)));
    if wanted.any() {
        write_all(wanted, &steps, ended, suspended);
    }
}

/// Publishes the end of runs that were ended outside of a turn, or by a step inside of one.
pub fn tell_ended(ended: &[EndedRun]) {
    let wanted = engine_listeners::wanted();
    if wanted.any() && !ended.is_empty() {
        write_all(wanted, &[], ended, &[]);
    }
}

fn write_all(wanted: Wanted, steps: &[StepNews], ended: &[EndedRun], suspended: &[Suspension]) {
    for put in suspended {
        Teller { wanted, steps, run: &put.run.header }.tell(put.is_new, None);
    }
    // A run that never began publishes nothing.
    for run in ended.iter().filter(|run| !matches!(run.ending, Ending::Skipped | Ending::Hot)) {
        let began = run.live.is_none() && run.ending != Ending::Cancelled;
        Teller { wanted, steps, run: &run.header }.tell(began, Some(run));
    }
}

fn entity(kind: Option<&str>, id: Option<&str>) -> Option<String> {
    Some(format!("{}:{}", kind?, id?))
}

/// A run whose events are published.
struct Teller<'a> {
    wanted: Wanted,
    steps: &'a [StepNews],
    run: &'a RunHeader,
}

impl Teller<'_> {
    fn tell(&self, began: bool, ended: Option<&EndedRun>) {
        let end = ended.and_then(|run| match run.ending {
            Ending::Completed => Some((Told::Completed, run)),
            Ending::Failed => Some((Told::Failed, run)),
            Ending::Cancelled => Some((Told::Cancelled, run)),
            _ => None,
        });
        let end = end.filter(|(told, _)| self.wanted.has(*told));
        let began = began && self.wanted.has(Told::Started);
        let steps: Vec<&StepNews> = self.steps.iter().filter(|news| news.run == self.run.id).collect();
        if !began && end.is_none() && steps.is_empty() {
            return;
        }
        let name = name_of(self.run.automation_id).unwrap_or_default();
        let mut chain = vec![name.clone()];
        // The event at the beginning of a chain was caused by no run.
        if self.run.depth > 0 {
            chain.extend(ancestors(self.run.event_id));
        }
        chain.dedup();
        let about = || {
            let mut about = serde_json::Map::new();
            about.insert("automation".into(), name.as_str().into());
            about.insert("run".into(), self.run.id.0.into());
            about.insert("entity".into(), entity(self.run.kind.as_deref(), self.run.entity_id.as_deref()).into());
            about.insert("chain".into(), chain.clone().into());
            about
        };
        let _context = provenance::enter(RunContext {
            run_id: self.run.id,
            automation: name.clone(),
            owner: self.run.owner,
            depth: self.run.depth,
            tenant: self.run.tenant.clone(),
        });
        if began {
            self.write(&name, Told::Started, about());
        }
        for news in steps {
            let mut payload = about();
            payload.insert("step".into(), news.step.as_str().into());
            payload.insert("kind".into(), news.kind.into());
            payload.insert("attempt".into(), news.attempt.into());
            if let Some(error) = &news.error {
                payload.insert("error".into(), error.clone());
            }
            self.write(&name, news.told, payload);
        }
        if let Some((told, run)) = end {
            let mut payload = about();
            payload.insert("reason".into(), run.reason.clone().into());
            payload.insert("took_ms".into(), ((run.ended_at - run.started_at) / 1000).into());
            let error = run.error.as_deref().and_then(|text| serde_json::from_str(text).ok());
            if let Some(error) = error {
                payload.insert("error".into(), what_failed(&error));
            }
            self.write(&name, told, payload);
        }
    }

    fn write(&self, name: &str, told: Told, payload: serde_json::Map<String, Json>) {
        append_event(&NewEvent {
            op: Some(Op::Emitted),
            kind: Some("automation"),
            entity_id: Some(name.as_bytes()),
            topic: Some(told.topic()),
            tenant: self.run.tenant.as_deref().map(str::as_bytes),
            payload: Some(Json::Object(payload).to_string().as_bytes()),
            ..Default::default()
        });
    }
}
