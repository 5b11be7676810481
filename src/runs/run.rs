//! A run while it is executed, independent of the row it was read from: a dispatch, a live run, a hold.
use automation_core::machine::JobItem;
use automation_core::value::Value;
use pgrx::pg_sys;

use super::scope::RunScope;
use crate::definitions::scope::instant;
use crate::definitions::versions::{self, Version};
use crate::event_log::events::Event;
use crate::pg::clock::{self, Micros};
use crate::signal::running::Task;
use crate::store::dispatches::Dispatch;
use crate::store::dwells::Dwell;
use crate::store::history::{EndedRun, Ending};
use crate::store::live::LiveRun;

/// The data of a run while it is executed.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: i64,
    pub owner: pg_sys::Oid,
    pub automation: String,
    pub automation_id: i32,
    pub version_id: i32,
    pub trigger_no: i16,
    pub attempt: i16,
    pub event_id: i64,
    pub event_at: Micros,
    pub started_at: Micros,
    pub depth: i16,
    pub parent: Option<i64>,
    pub kind: Option<String>,
    pub entity_id: Option<String>,
    pub key: Option<String>,
    /// The key that runs which exclude each other share.
    pub mode_key: Option<String>,
    pub tenant: Option<String>,
    /// The row of a bulk job that the run is for.
    pub item: Option<JobItem>,
}

impl Run {
    /// The run as its executor shows it in shared memory.
    pub fn task(&self) -> Task {
        Task { run: self.id, automation: self.automation_id, job: self.item.map(|item| item.job), key: None }
    }

    /// The row of the history for this run.
    pub fn ended(&self, ending: Ending, reason: Option<&str>) -> EndedRun {
        EndedRun {
            id: self.id,
            event_id: self.event_id,
            event_at: self.event_at,
            started_at: self.started_at,
            ended_at: clock::engine_now(),
            owner: self.owner,
            automation_id: self.automation_id,
            version_id: self.version_id,
            trigger_no: self.trigger_no,
            attempt: self.attempt,
            depth: self.depth,
            ending,
            kind: self.kind.clone(),
            entity_id: self.entity_id.clone(),
            key: self.key.clone(),
            tenant: self.tenant.clone(),
            reason: reason.map(str::to_owned),
            error: None,
            steps: None,
            parent: self.parent,
            output: None,
            state: None,
            mode_key: self.mode_key.clone(),
            live: None,
            abandoned: Vec::new(),
            item: self.item,
        }
    }

    /// The scope of the run's expressions, with the roots `run` and `trigger`, at the current time.
    pub fn scope<'a>(&self, version: &Version, event: &'a Event) -> RunScope<'a> {
        self.scope_at(version, event, clock::engine_now())
    }

    /// The scope of the run's expressions at another time.
    pub fn scope_at<'a>(&self, version: &Version, event: &'a Event, now: Micros) -> RunScope<'a> {
        let trigger = version.program.triggers.get(self.trigger_no as usize);
        let id = trigger.map_or("manual", |trigger| trigger.id.as_str());
        let run = Value::object(vec![
            ("id".into(), Value::int(self.id)),
            ("automation".into(), Value::text(&self.automation)),
            ("trigger".into(), Value::text(id)),
            ("key".into(), self.key.as_ref().map_or(Value::Null, Value::text)),
            ("started_at".into(), Value::Time(instant(self.started_at))),
        ]);
        let tenant = version.program.tenant.clone().or_else(|| self.tenant.clone());
        RunScope::new(event, now, run, id, tenant)
    }
}

/// The run that a dispatch starts.
pub fn of_dispatch(owner: pg_sys::Oid, dispatch: &Dispatch, event: Option<&Event>, started_at: Micros) -> Run {
    let order = event.and_then(Event::start);
    let own = versions::get(dispatch.version_id).ok().and_then(|version| version.program.tenant.clone());
    Run {
        id: dispatch.run_id,
        owner,
        automation: dispatch.automation.clone(),
        automation_id: dispatch.automation_id,
        version_id: dispatch.version_id,
        trigger_no: dispatch.trigger_no,
        attempt: dispatch.attempt,
        event_id: dispatch.event_id,
        event_at: dispatch.event_at,
        started_at,
        depth: event.map_or(0, |event| event.depth),
        parent: order.as_ref().and_then(|order| order.parent),
        kind: event.and_then(|event| event.kind.clone()),
        entity_id: event.and_then(|event| event.entity_id.clone()),
        key: None,
        mode_key: None,
        // The runs of a tenant's automation belong to that tenant, also if the entity has gone over to another tenant.
        tenant: own.or_else(|| event.and_then(|event| event.tenant.clone())),
        item: order.and_then(|order| order.item()),
    }
}

/// A live run that an executor or a session takes up.
pub fn of_live(live: &LiveRun) -> Run {
    Run {
        id: live.id,
        owner: live.owner,
        automation: live.automation.clone(),
        automation_id: live.automation_id,
        version_id: live.version_id,
        trigger_no: live.trigger_no,
        attempt: 0,
        event_id: live.event_id,
        event_at: live.event_at,
        started_at: live.started_at,
        depth: live.depth,
        parent: live.parent,
        kind: live.kind.clone(),
        entity_id: live.entity_id.clone(),
        key: live.key.clone(),
        mode_key: live.mode_key.clone(),
        tenant: live.tenant.clone(),
        item: None,
    }
}

pub fn of_dwell(dwell: &Dwell) -> Run {
    Run {
        id: dwell.run_id,
        owner: dwell.owner,
        automation: dwell.automation.name.clone(),
        automation_id: dwell.automation_id,
        version_id: dwell.version_id,
        trigger_no: dwell.trigger_no,
        attempt: 0,
        event_id: dwell.event.id,
        event_at: dwell.event.occurred_at,
        started_at: clock::engine_now(),
        depth: dwell.event.depth,
        parent: None,
        kind: dwell.event.kind.clone(),
        entity_id: dwell.event.entity_id.clone(),
        key: None,
        mode_key: None,
        tenant: dwell.event.tenant.clone(),
        item: None,
    }
}
