//! The decisions of automation_engine, with no Postgres in sight.
//!
//! Everything here is a pure function of its arguments: no pgrx, no I/O, no clock, no unsafe code. The extension reads
//! rows and the time, asks this crate for a decision, and performs it.
#![forbid(unsafe_code)]

pub mod bulk;
pub mod by_name;
pub mod check;
pub mod condition;
pub mod cron;
pub mod cycles;
pub mod definition;
pub mod delivery;
pub mod derive;
pub mod expr;
pub mod fairness;
pub mod gate;
pub mod ids;
pub mod lifecycle;
pub mod machine;
pub mod order;
pub mod places;
pub mod program;
pub mod run_state;
pub mod schedule;
pub mod sharing;
pub mod statistics;
pub mod steady;
pub mod steps;
pub mod suggest;
pub mod suspicion;
pub mod template;
pub mod topic;
pub mod triggers;
pub mod value;
pub mod wake_key;
pub mod webhook;
pub mod zone;
