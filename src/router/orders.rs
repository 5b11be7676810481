//! Queues runs that are started by an order in the log instead of by a trigger: start_run(), retry_run(), a step `run`,
//! the rows of a bulk job.
use automation_core::gate::Code;
use automation_core::ids::{AutomationId, RunId, VersionId, WaitNo};
use pgrx::pg_sys;

use super::definitions::Definitions;
use super::{Plan, wakes};
use crate::event_log::events::Event;
use crate::gucs;
use crate::store::dispatches::Reason;
use crate::store::history::{EndedRun, Ending};
use crate::store::run_header::RunHeader;
use crate::store::wakes::Waiter;

impl Plan {
    /// Queues the run that an order names, or records why it is not started. Orders of the clock name no run: theirs is
    /// queued already.
    pub(super) fn start(&mut self, definitions: &Definitions, event: &Event) {
        let Some(order) = event.start() else { return };
        let (automation_id, version, run_id) = (order.automation_id, order.version_id, order.run_id);
        let trigger_no = order.trigger_no.unwrap_or(-1);
        if let (Some(row), true) = (order.row_of_step(), event.depth <= gucs::max_chain_depth()) {
            // The row of a bulk step belongs to a run that is under way: if the automation is paused, the executor
            // decides about the row as it does for that run.
            let owner = pg_sys::Oid::from(row.owner);
            let waiter = Waiter { run_id, wait_no: WaitNo::NONE, owner, automation_id, version_id: version };
            let mut dispatch = wakes::dispatch(waiter, Reason::Manual, None, self.now);
            dispatch.event = Some((event.id, event.occurred_at));
            (dispatch.trigger_no, dispatch.wait_no) = (trigger_no, None);
            self.dispatches.push(dispatch);
            self.started.push(run_id);
            return;
        }
        match definitions.by_id(automation_id) {
            Some(active)
                if event.depth <= gucs::max_chain_depth() && !definitions.is_paused_for(automation_id, event) =>
            {
                let mut dispatch = self.dispatch(active, event, -1, Reason::Manual, Some(run_id));
                // A run that is tried again keeps its version and its trigger; all rows of a backfill have the same
                // ones.
                if order.keeps_version() {
                    dispatch.version_id = version;
                    dispatch.trigger_no = trigger_no;
                }
                self.dispatches.push(dispatch);
                self.started.push(run_id);
            }
            other => {
                let owner = other.map_or(event.role, |active| active.owner);
                let paused = definitions.is_paused_for(automation_id, event);
                if let Some(active) = other.filter(|_| !paused) {
                    self.cut(active, event, None, order.parent.is_some());
                }
                let reason = match other {
                    None => "automation_not_active",
                    Some(_) if paused => Code::TenantPaused.word(),
                    Some(_) => "chain_too_deep",
                };
                // Listed as started, so that a request to cancel the run does not stay behind.
                self.started.push(run_id);
                let ended = self.not_started(event, run_id, automation_id, version, owner, reason);
                self.ended.push(ended);
            }
        }
    }

    /// The row in the history of a run that was ordered and is not started.
    pub(super) fn not_started(
        &self,
        event: &Event,
        run_id: RunId,
        automation_id: AutomationId,
        version_id: VersionId,
        owner: pg_sys::Oid,
        reason: &'static str,
    ) -> EndedRun {
        let start = event.start();
        let header = RunHeader {
            id: run_id,
            event_id: event.id,
            event_at: event.occurred_at,
            started_at: self.now,
            parent: start.as_ref().and_then(|start| start.parent),
            owner,
            automation_id,
            version_id,
            trigger_no: -1,
            depth: event.depth,
            kind: event.kind.clone(),
            entity_id: event.entity_id.clone(),
            key: None,
            mode_key: None,
            tenant: event.tenant.clone(),
        };
        let item = start.and_then(|start| start.item());
        EndedRun { item, ..EndedRun::new(header, Ending::Cancelled, Some(reason), self.now) }
    }
}
