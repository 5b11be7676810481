//! The `deleted` trigger: an entity is gone.

use super::{Backfill, Form, TriggerKind, changes};
use crate::definition::TriggerDef;
use crate::program::Parts;

/// An entity is gone.
pub(super) struct Deleted;

impl TriggerKind for Deleted {
    const FORM: Form =
        Form { name: "deleted", required: &["kind"], optional: &["entity", "hold_for"], backfill: Backfill::None };

    fn patterns(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        changes(def, &["deleted"])
    }
}
