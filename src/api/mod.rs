//! The functions that SQL can call, one file per noun. Bodies parse arguments, call, and report; decisions are made
//! elsewhere.
pub mod admin;
pub mod automations;
pub mod bulk;
pub mod clock;
mod deliveries;
pub mod derived_events;
mod egress;
pub mod events;
pub mod expressions;
pub mod rights;
pub mod runs;
mod secrets;
pub mod start_with_event;
pub mod steer;
mod subscriptions;
pub mod tenants;
mod topic_grants;
pub mod waiting_owners;
