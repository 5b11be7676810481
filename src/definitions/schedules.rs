//! Keeps the rows of schedules in step with the definitions, in the transaction that changes a definition: so the two
//! cannot differ once it has committed, and a schedule counts from the moment at which its author defined it. If the
//! engine pauses an automation, its schedules are put to rest when their next tick is due.
use automation_core::ids::AutomationId;
use automation_core::program::Program;

use crate::definitions::scope::{instant, micros};
use crate::pg::clock;
use crate::signal::at_commit;
use crate::store::schedules;

/// Sets the schedules of an active automation going. `anew`: it was not active before, and ticks that would have fired
/// meanwhile do not count. A schedule whose timetable is the same goes on where it was.
pub fn follow(automation: AutomationId, program: &Program, anew: bool) {
    let known = schedules::of_automation(automation);
    let now = clock::engine_now();
    let mut kept: Vec<&str> = Vec::new();
    for trigger in program.triggers.iter().filter(|trigger| trigger.enabled) {
        let Some(schedule) = &trigger.schedule else { continue };
        kept.push(&trigger.id);
        let goes_on = |found: &&schedules::Known| found.trigger_id == trigger.id && found.is_going;
        let before = known.iter().find(goes_on).map(|found| found.timetable.as_str());
        if before == Some(&schedule.text) && !anew {
            continue;
        }
        let next = schedule.timetable.next(instant(now)).map(micros);
        schedules::set_going(automation, &trigger.id, &schedule.text, now, next);
        if let Some(next) = next {
            at_commit::timer_at_commit(next);
        }
    }
    for gone in known.iter().filter(|found| found.is_going && !kept.contains(&found.trigger_id.as_str())) {
        schedules::rest(gone.id, "the trigger is not there any more");
    }
}

/// Puts the schedules of an automation that is not active any more to rest.
pub fn rest(automation: AutomationId) {
    for going in schedules::of_automation(automation).iter().filter(|found| found.is_going) {
        schedules::rest(going.id, "the automation is not active");
    }
}
