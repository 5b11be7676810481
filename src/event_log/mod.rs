//! The event log: appending events, the ids they get, the rows that wait to be inserted, and reading along the router's
//! cursor.
use crate::signal::at_commit::Listener;

pub mod cursor;
mod ears;
pub mod events;
pub mod ids;
mod pending;
pub mod scan;
pub mod unread;

/// Events that wait share the fate of the transaction or subtransaction that made them.
pub const LISTENER: Listener = Listener {
    before_end: events::insert_buffered,
    committed: end,
    gone: end,
    handed_over: events::hand_over_buffered,
    rolled_back: events::discard_buffered,
};

fn end() {
    ids::stand_down();
    events::forget_buffered();
}
