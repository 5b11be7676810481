//! The circuit breaker: an automation whose runs fail one after the other is paused.
use std::collections::BTreeMap;

use automation_core::gate::breaker::{ACTOR, Breaker, Heard};

use super::gates::tell_paused;
use super::versions;
use crate::pg::clock;
use crate::scope::instant;
use crate::store::history::{EndedRun, Ending};
use crate::store::log::{self, Entry};
use crate::store::{automations, gates};

/// Hears how the runs of a batch ended.
pub fn hear(ended: &[EndedRun]) {
    if ended.is_empty() {
        return;
    }
    // Nearly always nothing has failed, and looking at an empty table costs next to nothing.
    let failing = gates::failures();
    if failing.is_empty() && ended.iter().all(|run| run.ending != Ending::Failed) {
        return;
    }
    // In the order of their numbers: everybody locks the rows in the same order.
    let mut by_automation: BTreeMap<i32, Vec<&EndedRun>> = BTreeMap::new();
    // The rows of a bulk step are parts of a run that is heard of itself.
    for run in ended.iter().filter(|run| !run.is_part()) {
        by_automation.entry(run.automation_id).or_default().push(run);
    }
    for (automation, runs) in by_automation {
        if failing.contains_key(&automation) || runs.iter().any(|run| run.ending == Ending::Failed) {
            hear_of(automation, &runs);
        }
    }
}

/// Does the automation have a breaker?
pub fn counts(run: &EndedRun) -> bool {
    !run.is_part() && versions::get(run.version_id).is_ok_and(|version| version.program.limits.breaker.is_some())
}

fn hear_of(automation: i32, runs: &[&EndedRun]) {
    let mut breaker = Breaker { failures: gates::lock_failures(automation), open: false };
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
        0 => gates::forget_failures(automation),
        failures => gates::set_failures(automation, failures),
    }
    if let Some(run) = tripped {
        trip(breaker, automation, run);
    }
}

fn trip(breaker: Breaker, automation: i32, run: &EndedRun) {
    let error: serde_json::Value =
        run.error.as_deref().and_then(|error| serde_json::from_str(error).ok()).unwrap_or_default();
    let message = error["message"].as_str().unwrap_or_default();
    let details = breaker.disable_details(instant(clock::engine_now()), run.id, message);
    // If somebody is changing it at the moment, the next failure comes here again.
    if !automations::pause_by_system(automation, &details) {
        return;
    }
    let Some(name) = automations::name(automation) else { return };
    log::warning(&Entry {
        code: "failure_breaker",
        automation_id: Some(automation),
        owner: Some(run.owner),
        run_id: Some(run.id),
        message: &format!("automation \"{name}\" was paused: {} of its runs failed in a row", breaker.failures),
        detail: (!message.is_empty()).then_some(message),
        ..Default::default()
    });
    tell_paused(ACTOR, automation, &details);
}
