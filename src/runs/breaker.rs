//! The circuit breaker: an automation whose runs fail one after the other is paused. An automation without a tenant is
//! paused for the tenant whose runs fail.
use std::collections::BTreeMap;

use automation_core::gate::apart;
use automation_core::gate::breaker::{ACTOR, Breaker, Heard};
use automation_core::ids::AutomationId;

use super::pause::{lock_executions, pause_by_system};
use crate::definitions::scope::instant;
use crate::definitions::versions;
use crate::pg::clock;
use crate::store::gates::{self, Counted};
use crate::store::history::{EndedRun, Ending};
use crate::store::log::{self, Entry};
use crate::store::{automations, tenant_pauses};

/// Counts the ended runs of a batch, and pauses automations with too many failures in a row.
pub fn hear(ended: &[EndedRun]) {
    if ended.is_empty() {
        return;
    }
    // Nearly always no run has failed, and reading an empty table costs next to nothing.
    let failing = gates::failing();
    if failing.is_empty() && ended.iter().all(|run| run.ending != Ending::Failed) {
        return;
    }
    // All executors lock the rows of automations and tenants in this order.
    let mut by_automation: BTreeMap<(AutomationId, String), Vec<&EndedRun>> = BTreeMap::new();
    // The rows of a bulk step are parts of a run that is counted itself.
    for run in ended.iter().filter(|run| !run.is_part()) {
        let tenant = counted_with(run).unwrap_or_default().to_owned();
        by_automation.entry((run.automation_id, tenant)).or_default().push(run);
    }
    for (key, runs) in by_automation {
        if failing.contains(&key) || runs.iter().any(|run| run.ending == Ending::Failed) {
            hear_of(Counted { automation_id: key.0, tenant: &key.1 }, &runs);
        }
    }
}

/// The tenant that a run is counted with, if its automation has no tenant.
fn counted_with(run: &EndedRun) -> Option<&str> {
    let version = versions::get(run.version_id).ok();
    let own = version.as_ref().and_then(|version| version.program.tenant.as_deref());
    apart::tenant(own, run.tenant.as_deref())
}

/// Does the automation of the run have a circuit breaker?
pub fn counts(run: &EndedRun) -> bool {
    !run.is_part() && versions::get(run.version_id).is_ok_and(|version| version.program.limits.breaker.is_some())
}

fn hear_of(of: Counted<'_>, runs: &[&EndedRun]) {
    let mut breaker = Breaker { failures: gates::lock_failures(of), open: false };
    let mut tripped = None;
    for run in runs {
        let threshold = match versions::get(run.version_id) {
            Ok(version) => version.program.limits.breaker,
            Err(_) => Some(automation_core::gate::breaker::DEFAULT),
        };
        let heard = match run.ending {
            Ending::Completed => Heard::Completed,
            Ending::Failed => Heard::Failed,
            Ending::Cancelled | Ending::Skipped | Ending::Hot => Heard::Cancelled,
        };
        let trips;
        (breaker, trips) = breaker.hear(heard, threshold);
        if trips {
            tripped = Some(*run);
        }
    }
    match breaker.failures {
        0 => gates::forget_failures_of(of),
        failures => gates::set_failures(of, failures),
    }
    if let Some(run) = tripped {
        trip(breaker, of, run);
    }
}

fn trip(breaker: Breaker, of: Counted<'_>, run: &EndedRun) {
    let error: serde_json::Value =
        run.error.as_deref().and_then(|error| serde_json::from_str(error).ok()).unwrap_or_default();
    let message = error["message"].as_str().unwrap_or_default();
    let details = breaker.disable_details(instant(clock::engine_now()), run.id, message);
    let tenant = Some(of.tenant).filter(|tenant| !tenant.is_empty());
    // Runs that were under way when the automation was paused for the tenant may fail as well.
    if tenant_pauses::is_paused(of.automation_id, tenant) {
        return;
    }
    // If another session is changing the automation, or counts executions of the tenant, the next failure tries again.
    let locked = tenant.is_none() || lock_executions(of.automation_id, tenant);
    if !locked || !pause_by_system(ACTOR, of.automation_id, tenant, &details) {
        return;
    }
    let Some(name) = automations::name(of.automation_id) else { return };
    let paused = apart::paused(&name, tenant);
    log::warning(&Entry {
        code: "failure_breaker",
        automation_id: Some(of.automation_id),
        owner: Some(run.owner),
        run_id: Some(run.id),
        message: &format!("{paused}: {} of its runs failed in a row", breaker.failures),
        detail: (!message.is_empty()).then_some(message),
        ..Default::default()
    });
}
