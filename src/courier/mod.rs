//! Delivering messages: makes a request from a message, sends it, and records the outcome. The process that does it is
//! `workers::courier`. While a request is being sent, only threads that do not use Postgres work on it.
mod outcome;
mod prepare;
mod senders;
mod surroundings;

pub use outcome::{Record, record, record_interrupted};
pub use prepare::{Policies, prepare};
pub use senders::{Answer, Senders};
pub use surroundings::Surroundings;
