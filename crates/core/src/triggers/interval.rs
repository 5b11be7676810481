//! The `interval` trigger: the clock, at equal distances.

use super::{Backfill, Form, TriggerKind, schedule};
use crate::definition::{TriggerDef, micros};
use crate::program::Parts;
use crate::schedule::{Schedule, Timetable};
use serde_json::Value as Json;

/// The clock, at equal distances.
pub(super) struct Interval;

impl TriggerKind for Interval {
    const FORM: Form =
        Form { name: "interval", required: &["every"], optional: &["missed", "overlap"], backfill: Backfill::None };

    fn patterns(_def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn schedule(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Schedule> {
        let every = def.every.clone()?;
        let text = format!("every {every}");
        Some(schedule(def, Timetable::Every(micros(&Json::String(every))?), text))
    }
}
