//! The `created` trigger: an entity came into being.

use super::{Backfill, Form, TriggerKind, changes};
use crate::definition::TriggerDef;
use crate::program::Parts;

/// An entity came into being.
pub(super) struct Created;

impl TriggerKind for Created {
    const FORM: Form =
        Form { name: "created", required: &["kind"], optional: &["entity", "hold_for"], backfill: Backfill::Created };

    fn patterns(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        changes(def, &["created"])
    }
}
