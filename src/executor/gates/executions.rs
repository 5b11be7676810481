//! The gate `hot flow`: an automation that is executed far too often is paused before it does more harm.
//!
//! Without a limit of its own, an automation is counted only when it feeds itself: when its execution goes back to one
//! of its own runs, directly or through other automations. A table may change ten thousand times a second for good
//! reasons.
use automation_core::gate::hot::{self, Cause, Check, Rate};
use automation_core::gate::{apart, key};
use automation_core::program::Program;

use super::Refusal;
use crate::definitions::scope::instant;
use crate::event_log::events::{Event, Op};
use crate::executor::claimer::Claimer;
use crate::gucs::{self, HotFlow};
use crate::pg::clock::{self, POSTGRES_EPOCH};
use crate::runs::pause::{lock_executions, pause_by_system};
use crate::runs::run::Run;
use crate::store::gates::{Counted, add_execution, count_executions, goes_back_to};
use crate::store::log;

/// How far back the usual limits look, in microseconds.
const LONGEST: i64 = 300_000_000;

/// An execution that is counted.
pub struct Judged {
    custom: Option<Rate>,
    cause: Cause,
    entity: Option<String>,
    /// The tenant whose executions are counted, and for which the automation is paused, if the automation has no
    /// tenant.
    tenant: Option<String>,
}

/// Can a limit of executions apply to this one?
pub fn apply(program: &Program, event: &Event) -> bool {
    program.limits.max_executions.is_some()
        || match gucs::hot_flow() {
            HotFlow::Loops => event.cause_run.is_some(),
            HotFlow::All => true,
            HotFlow::Off => false,
        }
}

pub fn of(program: &Program, event: &Event, run: &Run) -> Option<Judged> {
    if !apply(program, event) {
        return None;
    }
    let custom = program.limits.max_executions;
    let own = event.cause_run.is_some_and(|cause| goes_back_to(run.automation_id, cause, event.depth));
    if custom.is_none() && !own && gucs::hot_flow() == HotFlow::Loops {
        return None;
    }
    // Only the limit on updates of one entity needs the entity of an execution, so other executions are stored without
    // one.
    let entity = event.kind.as_deref().zip(event.entity_id.as_deref()).filter(|_| event.op == Op::Updated);
    Some(Judged {
        custom,
        tenant: apart::tenant(program.tenant.as_deref(), run.tenant.as_deref()).map(str::to_owned),
        cause: Cause { update: event.op == Op::Updated, own },
        entity: entity.map(|(kind, id)| key::context(event.tenant.as_deref(), Some(kind), Some(id), "")),
    })
}

impl Judged {
    /// Takes the lock on the executions that are counted together with this one.
    pub fn lock(&self, run: &Run) -> bool {
        lock_executions(run.automation_id, self.tenant.as_deref())
    }

    /// Counts the execution; if it is one too many, pauses the automation, or only for the tenant.
    pub fn judge(self, claimer: &mut Claimer, run: &Run) -> Result<(), Refusal> {
        let now = clock::engine_now();
        let (automation, entity, tenant) = (run.automation_id, self.entity.as_deref(), self.tenant.as_deref());
        let of = Counted { automation_id: automation, tenant: tenant.unwrap_or_default() };
        let most = self.custom.map_or(1000, |rate| rate.count + 1) as i64;
        let verdict = hot::judge(self.custom, self.cause, instant(now), |check, since| {
            let since = since.0 - POSTGRES_EPOCH;
            match check {
                Check::Custom | Check::General => count_executions(of, since, None, false, most),
                Check::EntityUpdates => count_executions(of, since, entity, false, most),
                Check::OwnWrites => count_executions(of, since, None, true, most),
            }
        });
        let Err(hot) = verdict else {
            let within = self.custom.map_or(LONGEST, |rate| rate.within);
            add_execution(of, now, entity, self.cause.own, now.saturating_add(within));
            return Ok(());
        };
        let details = hot.disable_details(instant(now));
        if !pause_by_system("system:hot-flow", automation, tenant, &details) {
            // Another session is changing the automation, or has paused it.
            return Err(Refusal::Later);
        }
        if tenant.is_none() {
            claimer.paused.insert(automation);
        }
        let message = format!("{}: too many executions", apart::paused(&run.automation, tenant));
        log::warning(&log::Entry {
            code: "hot_flow",
            automation_id: Some(automation),
            owner: Some(run.owner),
            run_id: Some(run.id),
            event_id: Some(run.event_id),
            message: &message,
            detail: Some(&hot.reason().to_string()),
        });
        Err(Refusal::Hot)
    }
}
