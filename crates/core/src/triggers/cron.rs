//! The `cron` trigger: the clock, by a schedule.

use super::{Backfill, Form, TriggerKind, schedule};
use crate::cron::{self, parse_zone};
use crate::definition::TriggerDef;
use crate::program::Parts;
use crate::schedule::{Schedule, Timetable};

/// The clock, by a schedule.
pub(super) struct Cron;

impl TriggerKind for Cron {
    const FORM: Form = Form {
        name: "cron",
        required: &["expr"],
        optional: &["timezone", "missed", "overlap"],
        backfill: Backfill::None,
    };

    fn patterns(_def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn schedule(def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Schedule> {
        let (text, zone) = (def.expr.as_deref().unwrap_or_default(), def.timezone.as_deref().unwrap_or("UTC"));
        let cron = parts.parsed(cron::Cron::parse(text), "expr", text);
        let zone = parts.parsed(parse_zone(zone), "timezone", zone);
        let (cron, zone) = (cron?, zone?);
        Some(schedule(def, Timetable::Cron(Box::new(cron), zone), format!("{text} {}", zone.name())))
    }
}
