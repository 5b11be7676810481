//! The gate `limits`: how many runs execute at the same time. A run that is not admitted stays queued.
//!
//! A run executes within a transaction, so a place among the executing runs is a lock that the transaction holds.
pub use automation_core::gate::admission::Class;
use automation_core::gate::admission::{Candidate, Limit, Settings};
use automation_core::program::Program;

use crate::executor::claimer::Claimer;
use crate::gucs;
use crate::pg::key_lock::{Sort, hash, try_take};
use crate::runs::run::Run;

fn settings() -> Settings {
    Settings {
        executors: gucs::executors() as u32,
        all: gucs::max_concurrent_runs(),
        events: gucs::max_event_runs(),
        schedules: gucs::max_scheduled_runs(),
        per_tenant: gucs::max_runs_per_tenant(),
        per_role: gucs::max_runs_per_role(),
    }
}

/// Takes a place for the run under every limit that applies to it, unless its transaction has one already.
pub fn admit(claimer: &mut Claimer, run: &Run, program: &Program, class: Class) -> bool {
    let settings = settings();
    if settings.limit_nothing(program.limits.concurrency) {
        return true;
    }
    let (automation, owner) = (run.automation_id.to_string(), run.owner.to_u32().to_string());
    let candidate = Candidate {
        class,
        tenant: run.tenant.as_deref(),
        owner: &owner,
        automation: &automation,
        concurrency: program.limits.concurrency,
    };
    settings.limits_of(candidate).all(|limit| {
        let of = hash(&[limit.sort, limit.scope]);
        claimer.places.contains(&of) || (take_place(&limit, &owner) && claimer.places.insert(of))
    })
}

/// Takes one of the places under a limit until the transaction ends. The owner's own place is taken besides, so that an
/// owner that holds it is not let in beyond the limit a second time.
fn take_place(limit: &Limit<'_>, owner: &str) -> bool {
    let found = (0..limit.most).any(|no| try_take(Sort::Slot, hash(&[limit.sort, limit.scope, &no.to_string()])));
    let own = limit.shared && try_take(Sort::Slot, hash(&[limit.sort, limit.scope, "of", owner]));
    found || own
}

/// Keeps other automations from working on the same entity until the run ends or suspends. True if the lock was taken
/// or is not needed.
pub fn lock_entity(run: &Run, program: &Program) -> bool {
    let entity = run.kind.as_deref().zip(run.entity_id.as_deref()).filter(|_| program.limits.entity_lock);
    entity.is_none_or(|(kind, id)| try_take(Sort::Entity, hash(&[run.tenant.as_deref().unwrap_or_default(), kind, id])))
}
