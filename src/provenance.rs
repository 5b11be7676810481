//! The provenance of events: the run whose step this process executes at the moment, if any. Capture stamps it on
//! events.
use std::cell::RefCell;

use automation_core::ids::RunId;
use pgrx::pg_sys;

/// The run under way in this process.
#[derive(Clone, Debug)]
pub struct RunContext {
    pub run_id: RunId,
    pub automation: String,
    /// The role whose rights it has.
    pub owner: pg_sys::Oid,
    /// Depth of the event that started the run; events that the run makes are one deeper.
    pub depth: i16,
    /// The tenant it belongs to.
    pub tenant: Option<String>,
}

thread_local! {
    static CURRENT: RefCell<Option<RunContext>> = const { RefCell::new(None) };
}

/// Ends the run's claim on this process when dropped.
pub struct Entered(Option<RunContext>);

impl Drop for Entered {
    fn drop(&mut self) {
        let previous = self.0.take();
        CURRENT.with(|current| *current.borrow_mut() = previous);
    }
}

pub fn enter(run: RunContext) -> Entered {
    Entered(CURRENT.with(|current| current.borrow_mut().replace(run)))
}

/// The run under way.
pub fn run() -> Option<RunId> {
    CURRENT.with(|current| current.borrow().as_ref().map(|run| run.run_id))
}

/// The tenant of the run under way: events that the run publishes belong to it as well.
pub fn tenant() -> Option<String> {
    CURRENT.with(|current| current.borrow().as_ref().and_then(|run| run.tenant.clone()))
}

/// The automation whose run is under way.
pub fn automation() -> Option<String> {
    CURRENT.with(|current| current.borrow().as_ref().map(|run| run.automation.clone()))
}

/// The cause of an event: the run, its depth, and the actor and role that write.
#[derive(Clone, Debug)]
pub struct Cause {
    pub run: Option<RunId>,
    pub depth: i16,
    pub actor: Option<String>,
    pub role: pg_sys::Oid,
}

impl Cause {
    /// The clock, for an automation of this role.
    pub fn schedule(owner: pg_sys::Oid) -> Cause {
        Cause { run: None, depth: 0, actor: Some("system:schedule".to_owned()), role: owner }
    }
}

pub fn cause() -> Cause {
    CURRENT.with(|current| match current.borrow().as_ref() {
        Some(run) => Cause {
            run: Some(run.run_id),
            depth: run.depth.saturating_add(1),
            actor: Some(format!("system:automation:{}", run.automation)),
            role: run.owner,
        },
        None => Cause { run: None, depth: 0, actor: crate::gucs::actor(), role: crate::pg::identity::outer_user() },
    })
}
