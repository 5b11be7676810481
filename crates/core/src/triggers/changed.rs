//! The `changed` trigger: an entity was created, updated or deleted.

use super::{Backfill, Form, TriggerKind, changes};
use crate::definition::TriggerDef;
use crate::program::Parts;

/// An entity was created, updated or deleted.
pub(super) struct Changed;

impl TriggerKind for Changed {
    const FORM: Form =
        Form { name: "changed", required: &["kind"], optional: &["entity", "hold_for"], backfill: Backfill::Updated };

    fn patterns(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        changes(def, &["created", "updated", "deleted"])
    }
}
