//! The `call` trigger: none but a person or another automation starts a run.

use super::{Backfill, Form, TriggerKind};
use crate::definition::TriggerDef;
use crate::program::Parts;

/// Only by hand or by another automation.
pub(super) struct Call;

impl TriggerKind for Call {
    const FORM: Form = Form { name: "call", required: &[], optional: &[], backfill: Backfill::None };

    fn patterns(_def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}
