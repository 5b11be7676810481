//! Ends holds (`hold_for`) before their deadline: they are cancelled, or their automation is not active any more, or
//! their trigger has changed.
use automation_core::gate::Code;
use automation_core::ids::{AutomationId, WaitNo};
use automation_core::program::Trigger;

use super::end::{count, end};
use super::run::of_dwell;
use crate::pg::{clock, identity};
use crate::store::dwells::{self, Dwell};
use crate::store::history::{EndedRun, Ending};
use crate::store::timers;

pub fn remove(dwell: &Dwell) {
    dwells::delete(dwell.run_id);
    timers::delete(&[(dwell.run_id, WaitNo::NONE)]);
}

/// Ends holds as skipped, with a reason.
pub fn drop_held(all: Vec<Dwell>, reason: &str, detail: Option<&str>) {
    let ended = all.iter().map(|dwell| {
        remove(dwell);
        let error = detail.map(|detail| serde_json::json!({ "detail": detail }).to_string());
        EndedRun { error, ..of_dwell(dwell).ended(Ending::Skipped, Some(reason)) }
    });
    let ended: Vec<EndedRun> = ended.collect();
    if !ended.is_empty() {
        end(&ended);
        identity::as_engine(|| count(&ended, &[], &[], clock::now()));
    }
}

/// Cancels a hold, which the caller has locked.
pub fn cancel_held(dwell: &Dwell) {
    remove(dwell);
    let ended = [of_dwell(dwell).ended(Ending::Cancelled, Some("cancelled"))];
    end(&ended);
    identity::as_engine(|| count(&ended, &[], &[], clock::now()));
}

/// Ends the holds of an automation that is not active any more.
pub fn drop_inactive(automation: AutomationId, detail: &str) {
    drop_held(dwells::of_automation(automation), Code::HoldInactive.word(), Some(detail));
}

/// Ends the holds of a tenant for which the automation is not active any more.
pub fn drop_inactive_for(automation: AutomationId, tenant: &str, detail: &str) {
    let held = dwells::of_automation(automation).into_iter();
    let held = held.filter(|dwell| dwell.event.tenant.as_deref() == Some(tenant));
    drop_held(held.collect(), Code::HoldInactive.word(), Some(detail));
}

/// The automation was redefined: ends the holds of triggers that are gone or have changed.
pub fn drop_changed(automation: AutomationId, triggers: &[Trigger]) {
    let (mut gone, mut changed) = (Vec::new(), Vec::new());
    for dwell in dwells::of_automation(automation) {
        match triggers.iter().find(|trigger| trigger.id == dwell.trigger_id && trigger.enabled) {
            None => gone.push(dwell),
            Some(trigger) if trigger.fingerprint != dwell.fingerprint => changed.push(dwell),
            Some(_) => {}
        }
    }
    drop_held(gone, Code::HoldTriggerGone.word(), Some("the trigger exists and is enabled; it does not any more"));
    drop_held(
        changed,
        Code::HoldTriggerChanged.word(),
        Some("the trigger is the one that was armed; it was redefined"),
    );
}
