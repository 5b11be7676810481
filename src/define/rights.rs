//! Checks that an automation is defined on tables that its owner may read.
use automation_core::definition::Document;
use automation_core::program::Program;
use pgrx::pg_sys;

use super::Finding;
use crate::definitions::derived::Derivers;
use crate::error::EngineError;
use crate::pg::identity;
use crate::store::kinds;

/// Errors for triggers on tables that the owner may not read: a run would tell the owner which rows change.
pub fn closed_tables(document: &Document, program: &Program, owner: pg_sys::Oid) -> Vec<Finding> {
    let mut findings = Vec::new();
    for trigger in &program.triggers {
        let Some(found) = trigger.kind.as_deref().and_then(kinds::find) else { continue };
        let Some(relation) = found.relation.filter(|relation| !identity::may_read(*relation, owner)) else { continue };
        let i = document.triggers.iter().position(|def| def.id.as_ref() == Some(&trigger.id)).unwrap_or_default();
        let place = format!("trigger \"{}\" of automation \"{}\"", trigger.id, document.name);
        let error = EngineError::closed_table(relation, owner).place(&place);
        findings.push(Finding { path: format!("triggers[{i}].kind"), error });
    }
    findings
}

/// Topics that are derived from changes which the current user may read.
pub fn readable_topics(derivers: &Derivers) -> Vec<String> {
    let user = identity::current_user();
    let readable = |kind: &&String| {
        let relation = kinds::find(kind).and_then(|found| found.relation);
        relation.is_none_or(|relation| identity::may_read(relation, user))
    };
    let rules = derivers.kinds().filter(readable).flat_map(|kind| derivers.of_kind(kind));
    rules.map(|rule| rule.topic.clone()).collect()
}
