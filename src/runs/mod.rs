//! The life of a run except for its steps: ordered, cancelled, suspended, ended; and pausing an automation, which
//! affects many runs at once. src/executor takes runs through their gates and steps.
pub mod batch_state;
pub mod breaker;
pub mod bulk;
pub mod bulk_item;
pub mod cancel;
pub mod end;
pub mod engine_events;
pub mod error;
pub mod field_age;
pub mod holds;
pub mod in_hand;
pub mod order;
pub mod pause;
pub mod run;
pub mod scope;
pub mod step_counts;
pub mod stop;
pub mod suspend;
