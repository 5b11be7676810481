//! One run: gates, then its steps until one fails or all are done.
use std::rc::Rc;

use automation_core::condition::Condition;
use automation_core::expr::{Budget, ExprError};
use automation_core::value::Value;

use super::batch::{Claimer, ended};
use super::scope::RunScope;
use super::step;
use super::versions::{self, Version};
use crate::context::{self, RunContext};
use crate::pg::catch::PgError;
use crate::pg::clock::{self, Micros};
use crate::pg::identity;
use crate::scope::EventScope;
use crate::store::dispatches::Dispatch;
use crate::store::events::Event;
use crate::store::history::{EndedRun, Ending};

/// Why a run did not get to its steps, or how they ended.
enum Verdict {
    Done,
    No(&'static str),
    Failed(&'static str, PgError, Option<String>),
}

pub fn run(claimer: &mut Claimer, dispatch: &Dispatch, event: &Event, started_at: Micros) -> EndedRun {
    let owner = claimer.owner;
    let finish = |ending, reason| ended(owner, dispatch, Some(event), started_at, ending, reason);
    if !dispatch.active {
        return finish(Ending::Cancelled, Some("automation_not_active"));
    }
    let version = match versions::get(dispatch.version_id) {
        Ok(version) => version,
        Err(problem) => {
            let error = error_json(&PgError::new("XX000", problem), None);
            return EndedRun { error: Some(error), ..finish(Ending::Failed, Some("version_unreadable")) };
        }
    };
    let _context = context::enter(RunContext {
        run_id: dispatch.run_id,
        automation: dispatch.automation.clone(),
        owner: claimer.owner,
        depth: event.depth,
    });
    let mut walk = Walk { claimer, dispatch, event, version, started_at, steps: String::new(), key: None };
    let verdict = identity::as_role(owner, || walk.go());
    let mut run = match verdict {
        Verdict::Done => finish(Ending::Completed, None),
        Verdict::No(reason) => finish(Ending::Skipped, Some(reason)),
        Verdict::Failed(reason, error, step) => {
            EndedRun { error: Some(error_json(&error, step.as_deref())), ..finish(Ending::Failed, Some(reason)) }
        }
    };
    run.key = walk.key;
    if !walk.steps.is_empty() {
        walk.steps.push(']');
        run.steps = Some(walk.steps);
    }
    run
}

struct Walk<'a> {
    claimer: &'a mut Claimer,
    dispatch: &'a Dispatch,
    event: &'a Event,
    version: Rc<Version>,
    started_at: Micros,
    /// JSON list of the steps taken, not closed.
    steps: String,
    key: Option<String>,
}

impl<'a> Walk<'a> {
    fn go(&mut self) -> Verdict {
        if let Err(error) = self.may_read() {
            return Verdict::Failed("permission_denied", error, None);
        }
        let version = self.version.clone();
        let mut scope = self.scope();
        if let Some(verdict) = self.gates(&version, &scope) {
            return verdict;
        }
        for (place, step) in version.program.steps.iter().enumerate() {
            let began = clock::now();
            if !step.enabled {
                self.record(&step.id, step.action.kind().name(), "skipped", began, None, None);
                continue;
            }
            if let Some(condition) = &step.condition {
                match holds(condition, &scope) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.record(&step.id, step.action.kind().name(), "skipped", began, None, None);
                        continue;
                    }
                    Err(error) => {
                        let error = from_expression(&error, &condition_text(condition));
                        self.record(&step.id, step.action.kind().name(), "failed", began, None, Some(&error));
                        return Verdict::Failed("step_failed", error, Some(step.id.clone()));
                    }
                }
            }
            match step::execute(self.claimer, &version, place, &scope) {
                // Slower than the runs that share its transaction can wait: roll back, and give it one of its own.
                Err(error) if self.claimer.shares && step::was_cut_short(step, &error, clock::now() - began) => {
                    self.claimer.slow.insert(self.dispatch.automation_id);
                    error.raise()
                }
                Ok(result) => {
                    self.record(&step.id, step.action.kind().name(), "completed", began, Some(&result.shown), None);
                    if place + 1 < version.program.steps.len() {
                        scope.add_step(&step.id, result.value());
                    }
                }
                // Not the step's fault: roll back the whole transaction and try again.
                Err(error) if error.is_transient() => error.raise(),
                Err(error) => {
                    self.record(&step.id, step.action.kind().name(), "failed", began, None, Some(&error));
                    if !step.continue_on_error {
                        return Verdict::Failed("step_failed", error, Some(step.id.clone()));
                    }
                    let shown = Value::from_json(&error_json(&error, None)).unwrap_or_default();
                    scope.add_step(&step.id, Value::object(vec![("error".into(), shown)]));
                }
            }
        }
        Verdict::Done
    }

    fn scope(&self) -> RunScope<'a> {
        let trigger = self.version.program.triggers.get(self.dispatch.trigger_no as usize);
        let id = trigger.map_or("manual", |trigger| trigger.id.as_str());
        let run = Value::object(vec![
            ("id".into(), Value::int(self.dispatch.run_id)),
            ("automation".into(), Value::text(&self.dispatch.automation)),
            ("trigger".into(), Value::text(id)),
            ("started_at".into(), Value::Time(crate::scope::instant(self.started_at))),
        ]);
        let trigger = Value::object(vec![("id".into(), Value::text(id))]);
        RunScope::new(EventScope::new(self.event, self.started_at), run, trigger)
    }

    /// The owner must still be allowed to read what the event shows of the table.
    fn may_read(&self) -> Result<(), PgError> {
        let Some(relation) = self.event.relation else { return Ok(()) };
        if identity::may_read(relation, self.claimer.owner) {
            return Ok(());
        }
        let table = crate::pg::names::relation_name(relation).unwrap_or_default();
        let owner = crate::pg::names::role_name(self.claimer.owner).unwrap_or_default();
        Err(PgError {
            detail: Some(format!("The automation's owner \"{owner}\" may not read {table}.")),
            hint: Some(format!("GRANT SELECT ON {table} TO {owner};")),
            ..PgError::new("42501", format!("permission denied for table {table}"))
        })
    }

    fn gates(&mut self, version: &Version, scope: &RunScope<'_>) -> Option<Verdict> {
        let trigger = version.program.triggers.get(self.dispatch.trigger_no as usize);
        // A filter over the event alone was evaluated when the event was routed.
        let filter = trigger.and_then(|trigger| trigger.filter.as_ref()).filter(|filter| !filter.is_pure_event());
        for (condition, reason) in [(filter, "filter"), (version.program.condition.as_ref(), "condition")] {
            let Some(condition) = condition else { continue };
            match holds(condition, scope) {
                Ok(true) => {}
                Ok(false) => return Some(Verdict::No(reason)),
                Err(error) => {
                    let error = from_expression(&error, &condition_text(condition));
                    return Some(Verdict::Failed("condition_failed", error, None));
                }
            }
        }
        if let Some(key) = &version.program.key {
            match key.eval(scope, &mut Budget::default()) {
                Ok(value) => self.key = value.to_text(),
                Err(error) => return Some(Verdict::Failed("key_failed", from_expression(&error, key.text()), None)),
            }
        }
        None
    }

    fn record(
        &mut self,
        id: &str,
        kind: &str,
        status: &str,
        began: Micros,
        result: Option<&str>,
        error: Option<&PgError>,
    ) {
        use std::fmt::Write;
        self.steps.push(if self.steps.is_empty() { '[' } else { ',' });
        let (at, took) = (began - self.started_at, clock::now() - began);
        // Writing to a String cannot fail.
        let _ = write!(
            self.steps,
            "{{\"id\":{},\"kind\":\"{kind}\",\"status\":\"{status}\",\"at_us\":{at},\"took_us\":{took}",
            serde_json::Value::from(id)
        );
        if let Some(result) = result {
            let _ = write!(self.steps, ",\"result\":{result}");
        }
        if let Some(error) = error {
            let _ = write!(self.steps, ",\"error\":{}", error_json(error, None));
        }
        self.steps.push('}');
    }
}

fn holds(condition: &Condition, scope: &RunScope<'_>) -> Result<bool, ExprError> {
    condition.holds(scope, &mut Budget::default())
}

/// The text of the first expression in it, to tell conditions apart in an error.
fn condition_text(condition: &Condition) -> String {
    let mut text = String::new();
    condition.each_expr(&mut |expr| {
        if text.is_empty() {
            text = expr.text().to_owned();
        }
    });
    text
}

pub fn from_expression(error: &ExprError, text: &str) -> PgError {
    let context = (!text.is_empty()).then(|| format!("expression {text}"));
    PgError {
        detail: error.detail.clone(),
        hint: error.hint.clone(),
        context,
        ..PgError::new("22023", error.message.clone())
    }
}

/// An error as the history keeps it.
pub fn error_json(error: &PgError, step: Option<&str>) -> String {
    let mut fields = serde_json::Map::new();
    fields.insert("sqlstate".into(), error.sqlstate.clone().into());
    fields.insert("message".into(), clean(&error.message).into());
    for (name, value) in [("detail", &error.detail), ("hint", &error.hint), ("context", &error.context)] {
        if let Some(value) = value {
            fields.insert(name.into(), clean(value).into());
        }
    }
    if let Some(step) = step {
        fields.insert("step".into(), step.into());
    }
    serde_json::Value::Object(fields).to_string()
}

/// No more than a screenful of it.
fn clean(text: &str) -> String {
    const MOST: usize = 4000;
    if text.len() <= MOST {
        return text.to_owned();
    }
    let end = (0..=MOST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}
