//! Turning row changes into events, inside the transaction that makes them. Appends rows and arms one wake-up; no
//! rule, filter or condition is ever looked at here.
use crate::signal::at_commit::Listener;

pub mod attach;
pub mod end_of_statement;
mod image;
pub mod moved;
pub mod naming;
mod plan;
pub mod read;
pub mod state;
mod trigger;

/// A row that moves to another partition and has not arrived when the transaction ends was deleted.
pub const LISTENER: Listener = Listener {
    before_end: || moved::flush(|_| true),
    committed: || {},
    gone: moved::forget,
    handed_over: |_, _| {},
    rolled_back: |_| {},
};

/// The table under which the changes of a table are recorded: of a partition, the one that is partitioned.
pub fn watched_root(relation: pgrx::pg_sys::Oid) -> pgrx::pg_sys::Oid {
    plan::root_of(relation)
}

/// Names and types of a table's columns, as they are watched.
pub fn columns_of(relation: pgrx::pg_sys::Oid) -> Option<Vec<(String, String)>> {
    plan::typed_columns(relation)
}
