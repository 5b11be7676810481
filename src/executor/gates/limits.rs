//! How many runs execute at the same time. Who is not admitted stays queued.
//!
//! Executing is what a transaction does, so a place among so many is a lock that the transaction holds.
pub use automation_core::gate::admission::Class;
use automation_core::program::Program;

use crate::executor::batch::Claimer;
use crate::executor::walk::Run;
use crate::gucs;
use crate::pg::key_lock::{Sort, hash, try_take};

/// Takes a place for the run under every limit that it comes under, unless its transaction has one already.
pub fn admit(claimer: &mut Claimer, run: &Run, program: &Program, class: Class) -> bool {
    let executors = gucs::executors() as u32;
    // A limit that no number of executors reaches needs no lock.
    let reachable = |limit: Option<u32>| limit.filter(|limit| *limit < executors);
    let (class, of_class) = match class {
        Class::Event => ("events", gucs::max_event_runs()),
        Class::Schedule => ("schedules", gucs::max_scheduled_runs()),
    };
    let (all, of_tenant, of_role) =
        (gucs::max_concurrent_runs(), gucs::max_runs_per_tenant(), gucs::max_runs_per_role());
    if [all, of_class, of_tenant, of_role, program.limits.concurrency]
        .into_iter()
        .all(|limit| reachable(limit).is_none())
    {
        return true;
    }
    let (automation, owner) = (run.automation_id.to_string(), run.owner.to_u32().to_string());
    let tenant = run.tenant.as_deref().unwrap_or_default();
    // The first three are shared by owners: runs of one that do not end must not use them up for the others.
    let limits = [
        ("all", "", all, true),
        ("class", class, of_class, true),
        ("tenant", tenant, of_tenant.filter(|_| run.tenant.is_some()), true),
        ("role", owner.as_str(), of_role, false),
        ("automation", automation.as_str(), program.limits.concurrency, false),
    ];
    limits.into_iter().all(|(sort, whose, limit, shared)| {
        reachable(limit).is_none_or(|limit| {
            let of = hash(&[sort, whose]);
            claimer.places.contains(&of) || {
                let found = (0..limit).any(|place| try_take(Sort::Slot, hash(&[sort, whose, &place.to_string()])));
                // An owner's own place: with none of its runs under way it is let in beyond the limit.
                let own = shared && try_take(Sort::Slot, hash(&[sort, whose, "of", &owner]));
                (found || own) && claimer.places.insert(of)
            }
        })
    })
}

/// Keeps other automations from working on the same entity until the run ends or suspends. True if it needs no lock.
pub fn lock_entity(run: &Run, program: &Program) -> bool {
    let entity = run.kind.as_deref().zip(run.entity_id.as_deref()).filter(|_| program.limits.entity_lock);
    entity.is_none_or(|(kind, id)| try_take(Sort::Entity, hash(&[run.tenant.as_deref().unwrap_or_default(), kind, id])))
}
