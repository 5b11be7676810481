//! Stage 2: claims dispatches of one owner and runs them, in the caller's transaction. A worker calls `turn` in a loop
//! as the owner; `automation.dispatch()` calls it for each owner the caller may act for.
mod batch;
mod bind;
mod breaker;
mod bulk;
mod bulk_item;
mod bulk_rows;
mod effects;
mod engine_events;
mod gates;
mod held;
mod hold;
mod in_hand;
mod put_off;
mod resume;
mod run;
mod scope;
mod step;
mod step_counts;
mod suspend;
mod sweep;
pub mod versions;
mod walk;
mod webhook;
mod write;

pub use batch::{Claimer, Turn, Work, fail, look_at_armed, turn};
pub use bind::own_type;
pub use bulk_item::nudge as nudge_bulk;
pub use gates::{lock_executions, pause_by_system, tell_paused};
pub use hold::{cancel_held, drop_changed, drop_held, drop_inactive, drop_inactive_for};
pub use in_hand::is_in_hand;
pub use put_off::put_off;
pub use resume::cancelled;
pub use run::{item_of, of_dispatch};
pub use step::call_statement;
pub use walk::RunOfStep;
pub use write::end;
