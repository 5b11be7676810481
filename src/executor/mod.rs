//! Stage 2: claims dispatches of one owner and executes them, in the caller's transaction. A worker calls `turn` in a
//! loop as the owner; `automation.dispatch()` calls it for each owner that the caller may act for.
mod batch;
mod bind;
mod bulk;
mod bulk_rows;
mod cancelled;
mod claimer;
mod effects;
mod gates;
mod hold;
mod put_off;
mod restart;
mod resume;
mod start;
mod step;
mod sweep;
mod walk;
mod webhook;
mod write;

pub use batch::{Turn, Work, fail, look_at_armed, turn};
pub use bind::own_type;
pub use claimer::Claimer;
pub use put_off::put_off;
pub use step::{SLICE_MS, call_statement};
