//! Of changes that nobody listens to the router reads no more than their kind.
use automation_core::topic::Ears;

use super::events::Op;
use crate::pg::engine_sql::Row;
use crate::pg::server_text;

/// Where the log has what decides it: see sql/schema/log.sql.
const OP: usize = 9;
const KIND: usize = 11;
const TOPIC: usize = 13;
const TENANT: usize = 14;

/// May anybody listen to the event in this row of the log? Only changes of entities can be said to be nobody's.
pub fn hear(ears: &Ears, row: &Row<'_>) -> bool {
    if ears.are_open() {
        return true;
    }
    let is_change = row.char(OP).and_then(Op::from_code).is_some_and(Op::is_change) && row.is_null(TOPIC);
    // A reserved tenant is complained of even if nobody listens.
    let is_reserved = row.raw_text(TENANT).is_some_and(|tenant| tenant.starts_with(b"_"));
    !is_change || is_reserved || row.raw_text(KIND).is_none_or(|kind| ears.hear(&server_text::as_utf8(kind)))
}
