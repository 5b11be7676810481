//! Stage 2: claims dispatches of one owner and runs them, in the caller's transaction. A worker calls `turn` in a loop
//! as the owner; `automation.dispatch()` calls it for each owner the caller may act for.
mod batch;
mod bind;
mod held;
mod run;
mod scope;
mod step;
pub mod versions;

pub use batch::{Claimer, Turn, Work, ended, fail, turn};
pub use step::call_statement;
