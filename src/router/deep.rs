//! Pauses automations that feed themselves until the chain of causes is cut off: each further change would cause as
//! many runs again.
use automation_core::gate::apart;
use automation_core::gate::hot::Chain;
use automation_core::ids::{AutomationId, EventId, RunId};
use pgrx::pg_sys;

use super::Plan;
use super::definitions::Active;
use crate::definitions::scope::instant;
use crate::event_log::events::Event;
use crate::gucs::{self, HotFlow};
use crate::pg::append::next_id;
use crate::pg::clock;
use crate::runs::pause::{lock_executions, pause_by_system};
use crate::store::gates::goes_back_to;
use crate::store::history::{EndedRun, Ending};
use crate::store::log::{self, Entry};
use crate::store::tenant_pauses;

/// How many refusals of an automation are examined in one batch: each examination walks a chain of causes.
const LOOKED_INTO: usize = 20;

/// An event that did not start an automation because it is too deep in a chain.
pub(super) struct Cut {
    automation_id: AutomationId,
    owner: pg_sys::Oid,
    name: String,
    /// The tenant, if a shared automation is to be paused for this tenant only.
    tenant: Option<String>,
    cause: RunId,
    event_id: EventId,
    chain: Chain,
    /// The run to be recorded if the chain is a loop; it gets its id then.
    hot: Option<EndedRun>,
}

impl Plan {
    /// Notes that an event was too deep in a chain for an automation. `trigger_no` is that of the trigger that fired;
    /// None for a run that was ordered, whose row in the history the caller writes.
    pub(super) fn cut(&mut self, active: &Active, event: &Event, trigger_no: Option<i16>, called: bool) {
        let Some(cause) = event.cause_run.filter(|_| gucs::hot_flow() != HotFlow::Off) else { return };
        let same = self.cuts.iter().filter(|cut| cut.automation_id == active.automation_id);
        if same.count() >= LOOKED_INTO {
            return;
        }
        let hot = trigger_no.map(|trigger_no| {
            let mut hot = self.not_started(
                event,
                RunId(0),
                active.automation_id,
                active.version_id,
                active.owner,
                "chain_too_deep",
            );
            hot.ending = Ending::Hot;
            hot.trigger_no = trigger_no;
            hot
        });
        self.cuts.push(Cut {
            automation_id: active.automation_id,
            owner: active.owner,
            name: active.name.clone(),
            tenant: apart::tenant(active.program.tenant.as_deref(), event.tenant.as_deref()).map(str::to_owned),
            cause,
            event_id: event.id,
            chain: Chain { depth: event.depth, limit: gucs::max_chain_depth(), own: false, called },
            hot,
        });
    }

    /// Pauses the automations whose own runs are among the causes; a shared automation is paused for the tenant of the
    /// event. An automation that another session is changing is left alone until the next chain is cut off.
    pub(super) fn pause_loops(&mut self) {
        for cut in std::mem::take(&mut self.cuts) {
            let own = goes_back_to(cut.automation_id, cut.cause, cut.chain.depth);
            let chain = Chain { own, ..cut.chain };
            if !chain.is_loop() {
                continue;
            }
            let tenant = cut.tenant.as_deref();
            let locked = tenant.is_none()
                || !tenant_pauses::is_paused(cut.automation_id, tenant) && lock_executions(cut.automation_id, tenant);
            let details = chain.disable_details(instant(clock::engine_now()));
            if !locked || !pause_by_system("system:hot-flow", cut.automation_id, tenant, &details) {
                continue;
            }
            let run_id = cut.hot.as_ref().map(|_| RunId(next_id("run_id_seq")));
            self.ended.extend(cut.hot.zip(run_id).map(|(mut hot, id)| {
                hot.id = id;
                hot
            }));
            log::warning(&Entry {
                code: "hot_flow",
                automation_id: Some(cut.automation_id),
                owner: Some(cut.owner),
                run_id,
                event_id: Some(cut.event_id),
                message: &format!("{}: it starts itself without end", apart::paused(&cut.name, tenant)),
                detail: Some(&chain.reason().to_string()),
            });
        }
    }
}
