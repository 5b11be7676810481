//! The only SQL in Rust: typed in, typed out. Nothing here decides anything.
//!
//! Lock order of the engine, kept by every path: automation row -> dispatch rows in id order -> run rows -> appended
//! rows. The router takes router_cursor first but waits for no other row (it passes over those of schedules if a
//! session that defines the automation, and so holds the automation's row, has them), and no session waits for
//! router_cursor; so no two paths wait for each other in a circle. drain() beside a conductor takes no router_cursor:
//! its transaction may stay open for long. Rows of dwell are locked last, and only cancel_run() waits for one.
pub mod automations;
pub mod bulk;
pub mod bulk_tally;
pub mod deliveries;
pub mod derived_events;
pub mod dispatches;
pub mod dwells;
pub mod effects;
pub mod egress_rules;
pub mod endpoints;
pub mod engine_listeners;
pub mod field_changes;
pub mod gates;
pub mod health;
pub mod history;
pub mod kinds;
pub mod live;
pub mod log;
pub mod numeric_memory;
pub mod outbox;
pub mod owners;
pub mod partitions;
pub mod retries;
pub mod rights;
pub mod run_header;
pub mod runs;
pub mod schedules;
pub mod secrets;
pub mod signals;
pub mod stats;
pub mod step_stats;
pub mod subscriptions;
pub mod tenant_pauses;
pub mod timers;
pub mod topic_grants;
pub mod wakes;
