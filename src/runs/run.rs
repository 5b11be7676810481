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
use crate::store::run_header::{RunHeader, has_run_header};

/// The data of a run while it is executed.
#[derive(Clone, Debug)]
pub struct Run {
    pub header: RunHeader,
    /// Name of the automation.
    pub automation: String,
    /// How often a crash of the server interrupted it.
    pub attempt: i16,
    /// The row of a bulk job that it is for.
    pub item: Option<JobItem>,
}

has_run_header!(Run);

impl Run {
    /// The run as its executor shows it in shared memory.
    pub fn task(&self) -> Task {
        Task { run: self.id.0, automation: self.automation_id, job: self.item.map(|item| item.job), key: None }
    }

    /// The row of the history for this run.
    pub fn ended(&self, ending: Ending, reason: Option<&str>) -> EndedRun {
        EndedRun {
            attempt: self.attempt,
            item: self.item,
            ..EndedRun::new(self.header.clone(), ending, reason, clock::engine_now())
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
            ("id".into(), Value::int(self.id.0)),
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
    let header = RunHeader {
        id: dispatch.run_id,
        event_id: dispatch.event_id,
        event_at: dispatch.event_at,
        started_at,
        parent: order.as_ref().and_then(|order| order.parent),
        owner,
        automation_id: dispatch.automation_id,
        version_id: dispatch.version_id,
        trigger_no: dispatch.trigger_no,
        depth: event.map_or(0, |event| event.depth),
        kind: event.and_then(|event| event.kind.clone()),
        entity_id: event.and_then(|event| event.entity_id.clone()),
        key: None,
        mode_key: None,
        // The runs of a tenant's automation belong to that tenant, also if the entity has gone over to another tenant.
        tenant: own.or_else(|| event.and_then(|event| event.tenant.clone())),
    };
    Run {
        header,
        automation: dispatch.automation.clone(),
        attempt: dispatch.attempt,
        item: order.and_then(|order| order.item()),
    }
}

/// A live run that an executor or a session takes up.
pub fn of_live(live: &LiveRun) -> Run {
    Run { header: live.header.clone(), automation: live.automation.clone(), attempt: 0, item: None }
}

pub fn of_dwell(dwell: &Dwell) -> Run {
    let header = RunHeader {
        id: dwell.run_id,
        event_id: dwell.event.id,
        event_at: dwell.event.occurred_at,
        started_at: clock::engine_now(),
        parent: None,
        owner: dwell.owner,
        automation_id: dwell.automation_id,
        version_id: dwell.version_id,
        trigger_no: dwell.trigger_no,
        depth: dwell.event.depth,
        kind: dwell.event.kind.clone(),
        entity_id: dwell.event.entity_id.clone(),
        key: None,
        mode_key: None,
        tenant: dwell.event.tenant.clone(),
    };
    Run { header, automation: dwell.automation.name.clone(), attempt: 0, item: None }
}
