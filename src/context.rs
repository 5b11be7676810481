//! What this process is doing at the moment: the run whose step it executes, if any. Capture stamps it on events.
use std::cell::RefCell;

/// The run under way in this process.
#[derive(Clone, Debug)]
pub struct RunContext {
    pub run_id: i64,
    pub automation: String,
    /// Depth of the event that started the run; what the run writes is one deeper.
    pub depth: i16,
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

/// (cause run, depth, actor) for whatever is written now.
pub fn cause() -> (Option<i64>, i16, Option<String>) {
    CURRENT.with(|current| match current.borrow().as_ref() {
        Some(run) => {
            (Some(run.run_id), run.depth.saturating_add(1), Some(format!("system:automation:{}", run.automation)))
        }
        None => (None, 0, crate::gucs::actor()),
    })
}
