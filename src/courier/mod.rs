//! Delivering messages: what is made of a message before it is sent, how it is sent, what is recorded afterwards. The
//! process that does it is `workers::courier`. Nothing here runs while a request is under way but threads that know nothing
//! of Postgres.
mod outcome;
mod prepare;
mod senders;
mod surroundings;

pub use outcome::{Record, record, record_interrupted};
pub use prepare::{Policies, prepare};
pub use senders::{Answer, Senders};
pub use surroundings::Surroundings;
