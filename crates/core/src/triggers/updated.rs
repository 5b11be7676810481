//! The `updated` trigger: an entity changed.

use super::{Backfill, Form, TriggerKind, changes};
use crate::definition::TriggerDef;
use crate::program::Parts;

/// An entity changed.
pub(super) struct Updated;

impl TriggerKind for Updated {
    const FORM: Form = Form {
        name: "updated",
        required: &["kind"],
        optional: &["entity", "columns", "hold_for"],
        backfill: Backfill::Updated,
    };

    fn patterns(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        changes(def, &["updated"])
    }
}
