//! The time since when a field has its value, for conditions with `for`.
use automation_core::topic::grants::Right;
use automation_core::value::Timestamp;

use crate::capture;
use crate::definitions::hearing;
use crate::definitions::scope::instant;
use crate::event_log::events::{Event, Op};
use crate::event_log::unread::unrouted;
use crate::pg::clock::{self, Micros};
use crate::store::field_changes;
use crate::store::kinds::{self, Kind};

/// The time since which a field is known to have its value (it may have had it for longer); None if that is not known,
/// and then the condition treats the value as not having lasted.
///
/// The changes recorded by the router are not all: a change may be committed, and so be visible in the state, before it
/// is routed. So the log behind the cursor is read first, then the record; in the other order a change that is routed
/// in between would be missed.
pub fn changed_at(kind: &str, id: &str, field: &str) -> Option<Timestamp> {
    let found = kinds::find(kind)?;
    if found.relation.is_none() {
        hearing::check_kind(Right::Listen, &found).ok()?;
    }
    let followed = records(&found, field).then(|| followed(kind, id, field)).flatten();
    // For an entity without a table there is also the time of its last change, in any field.
    let whole = if found.relation.is_none() { field_changes::state_changed_at(kind, id) } else { None };
    followed.into_iter().chain(whole).min().map(instant)
}

fn followed(kind: &str, id: &str, field: &str) -> Option<Micros> {
    let pending = unrouted()?;
    let newest = pending
        .iter()
        .filter(|event| {
            event.kind.as_deref() == Some(kind) && event.entity_id.as_deref().is_none_or(|known| known == id)
        })
        .filter(|event| changed(event, field))
        .map(|event| clock::as_seen(event.occurred_at))
        .max();
    let noted = field_changes::changed_at(kind, field, id)?;
    Some(newest.map_or(noted, |newest| newest.max(noted)))
}

/// Are changes of the field recorded? A table may be watched only in some of its columns.
fn records(kind: &Kind, field: &str) -> bool {
    let Some(relation) = kind.relation else { return true };
    let first = field.split('.').next().unwrap_or_default();
    let columns = capture::columns_of(relation).unwrap_or_default();
    let column = columns.iter().map(|(name, _)| name).find(|name| *name == field || *name == first);
    column.is_some_and(|column| kind.records(column))
}

/// Did an event change a field, or the document that a path such as `address.city` leads into?
pub fn changed(event: &Event, field: &str) -> bool {
    let holds =
        |name: &String| field.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    match event.op {
        Op::Updated => event.changed.iter().any(holds),
        Op::Created | Op::Deleted | Op::Truncated => true,
        Op::Emitted | Op::Started | Op::Signalled | Op::Ended | Op::Moved => false,
    }
}
