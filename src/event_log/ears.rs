//! Decides by the kind of a change alone whether the router has to read the rest of it: changes that no automation and
//! no run listens to are not read.
use automation_core::topic::Ears;

use super::events::Op;
use crate::pg::engine_sql::Row;
use crate::pg::server_text;

/// The columns of the log that decide it: see sql/schema/log.sql.
const OP: usize = 9;
const KIND: usize = 11;
const TOPIC: usize = 13;
const TENANT: usize = 14;

/// May an automation or a run listen to the event in this row of the log? Only for changes of entities can the answer
/// be no.
pub fn hear(ears: &Ears, row: &Row<'_>) -> bool {
    if ears.are_open() {
        return true;
    }
    let is_change = row.char(OP).and_then(Op::from_code).is_some_and(Op::is_change) && row.is_null(TOPIC);
    // An event with a reserved tenant is read in any case, so that the router can report it.
    let is_reserved = row.raw_text(TENANT).is_some_and(|tenant| tenant.starts_with(b"_"));
    !is_change || is_reserved || row.raw_text(KIND).is_none_or(|kind| ears.hear(&server_text::as_utf8(kind)))
}
