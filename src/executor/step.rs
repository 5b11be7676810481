//! One step: its effects in a subtransaction of their own, the session left as it was found.
#![allow(unsafe_code)]
use std::rc::Rc;

use automation_core::expr::{Budget, ExprError, Scope};
use automation_core::program::{Action, Step};
use automation_core::template::SqlTemplate;
use automation_core::value::Value;
use pgrx::pg_sys;

use super::batch::Claimer;
use super::bind::{own_type, parameter};
use super::run::from_expression;
use super::versions::Version;
use crate::api::topics;
use crate::gucs;
use crate::pg::catch::PgError;
use crate::pg::parameter_types::OwnType;
use crate::pg::server_text;
use crate::pg::session::{self, StatementTimeout};
use crate::pg::settings::{self, Pinned};
use crate::pg::statement::{Outcome, Spi, Statement};
use crate::pg::subtransaction::in_subtransaction;
use crate::store::events::{NewEvent, Op, append_event};
use crate::store::owners;

/// Most rows of a result that are kept.
const MAX_ROWS: usize = 1000;
/// How many milliseconds a step may take while other runs share its transaction.
const SLICE_MS: i64 = 100;
/// NOTIFY's own limit.
const MAX_NOTIFY: usize = 7999;

/// What a step gave back.
pub struct StepResult {
    /// JSON, as the history shows it and later steps see it.
    pub shown: String,
}

impl StepResult {
    pub fn value(&self) -> Value {
        Value::from_json(&self.shown).unwrap_or_default()
    }
}

/// Executes step number `place`. An error rolls back what this step did and nothing else.
pub fn execute(
    claimer: &Claimer,
    version: &Version,
    place: usize,
    scope: &dyn Scope,
    time_left_ms: Option<i64>,
) -> Result<StepResult, PgError> {
    let step = &version.program.steps[place];
    if claimer.is_worker {
        use_search_path(version, None);
    }
    in_subtransaction(|| {
        // Whatever the step sets is undone with this level.
        let pinned = Pinned::new();
        use_search_path(version, Some(&pinned));
        let result = {
            let slice = claimer.shares.then_some(SLICE_MS);
            let limits = limit_of(step).into_iter().chain(slice).chain(time_left_ms);
            let _timeout = limits.min().map(StatementTimeout::start);
            act(version, place, step, scope)?
        };
        // Only in a process of our own: a session that drives the queue by hand has temporary tables and cursors itself.
        if claimer.is_worker && matches!(step.action, Action::Sql(_) | Action::Call { .. }) {
            session::forget();
        }
        drop(pinned);
        Ok(result)
    })
}

/// Was the step cancelled because it took longer than a shared transaction can wait, not than its own limit?
pub fn was_cut_short(step: &Step, error: &PgError, took_us: i64) -> bool {
    error.sqlstate == "57014" && took_us >= SLICE_MS * 1000 && limit_of(step).is_none_or(|limit| limit > SLICE_MS)
}

/// How many milliseconds a step may take: its own `timeout`, else automation_engine.step_timeout if it executes SQL.
pub fn limit_of(step: &Step) -> Option<i64> {
    let executes_sql = matches!(step.action, Action::Sql(_) | Action::Call { .. });
    step.timeout_ms.or_else(|| gucs::step_timeout_ms().filter(|_| executes_sql))
}

/// Gives the whole batch back if the owner lost the right to work here since the turn began: earlier steps may have
/// taken long. Rolled back, it stays queued, and the executor leaves at its next turn.
pub fn still_allowed(claimer: &Claimer) {
    if claimer.is_worker
        && let Some(reason) = owners::refusal(claimer.owner)
    {
        PgError::new("28000", reason).raise();
    }
}

fn use_search_path(version: &Version, pinned: Option<&Pinned>) {
    if settings::current(c"search_path").as_ref() == Some(&version.search_path) {
        return;
    }
    match pinned {
        Some(pinned) => pinned.set(c"search_path", &version.search_path),
        None => settings::set_session(c"search_path", &version.search_path),
    }
}

fn act(version: &Version, place: usize, step: &Step, scope: &dyn Scope) -> Result<StepResult, PgError> {
    let mut budget = Budget::default();
    match &step.action {
        Action::Sql(template) => {
            let values = evaluate(template, scope, &mut budget)?;
            let outcome =
                run_sql(version, place, template.sql(), &values).map_err(|error| point_into(error, template))?;
            Ok(StepResult { shown: show(&outcome) })
        }
        Action::Call { function, args } => {
            let value = args.eval(scope, &mut budget).map_err(|error| from_expression(&error, args.text()))?;
            let sql = call_statement(function)?;
            let outcome = run_sql(version, place, &sql, &[value])?;
            let row = outcome.rows.first().map(|row| server_text::read(row).into_owned());
            let row = row.map(|row| match row.strip_suffix('}') {
                Some(open) if outcome.truncated => format!("{open},\"truncated\":true}}"),
                _ => row,
            });
            let nothing = if outcome.truncated { "{\"result\":null,\"truncated\":true}" } else { "{\"result\":null}" };
            Ok(StepResult { shown: row.unwrap_or_else(|| nothing.to_owned()) })
        }
        Action::Publish { topic, payload } => {
            let topic = topic.render(scope, &mut budget).map_err(|error| from_expression(&error, topic.text()))?;
            topics::check_published(&topic).map_err(|error| PgError::new("22023", error.message().to_owned()))?;
            let value = payload.eval(scope, &mut budget).map_err(|error| from_expression(&error, payload.text()))?;
            let text = value.to_json();
            server_text::check(&topic)?;
            server_text::check(&text)?;
            let tenant = crate::context::tenant();
            let event = NewEvent {
                op: Some(Op::Emitted),
                topic: Some(&topic),
                tenant: tenant.as_deref().map(str::as_bytes),
                payload: Some(text.as_bytes()),
                ..Default::default()
            };
            Ok(StepResult { shown: format!("{{\"event_id\":{}}}", append_event(&event)) })
        }
        Action::Notify { channel, payload } => {
            let channel =
                channel.render(scope, &mut budget).map_err(|error| from_expression(&error, channel.text()))?;
            let value = payload.eval(scope, &mut budget).map_err(|error| from_expression(&error, payload.text()))?;
            notify(&channel, &value)?;
            Ok(StepResult { shown: "{}".to_owned() })
        }
        Action::StoreState { kind, entity, state } => {
            let kind = kind.render(scope, &mut budget).map_err(|error| from_expression(&error, kind.text()))?;
            let entity = entity.render(scope, &mut budget).map_err(|error| from_expression(&error, entity.text()))?;
            let value = state.eval(scope, &mut budget).map_err(|error| from_expression(&error, state.text()))?;
            let state = value.to_json();
            for text in [&kind, &entity, &state] {
                server_text::check(text)?;
            }
            let event = crate::api::events::store_state(&kind, &entity, &state)?;
            let event = event.map_or_else(|| "null".to_owned(), |id| id.to_string());
            Ok(StepResult { shown: format!("{{\"event_id\":{event}}}") })
        }
        // The machine does these itself.
        _ => Err(PgError::new("XX000", format!("a step of kind {} cannot be performed", step.kind()))),
    }
}

/// The values that a statement's expressions have now.
pub fn evaluate(template: &SqlTemplate, scope: &dyn Scope, budget: &mut Budget) -> Result<Vec<Value>, PgError> {
    let value = |expr: &automation_core::expr::Expr| -> Result<Value, ExprError> { expr.eval(scope, budget) };
    template
        .params()
        .iter()
        .map(value)
        .collect::<Result<Vec<Value>, ExprError>>()
        .map_err(|error| from_expression(&error, template.text()))
}

/// Plans kept for one step whose values change their types from run to run.
const MOST_PLANS: usize = 8;

fn run_sql(version: &Version, place: usize, sql: &str, values: &[Value]) -> Result<Outcome, PgError> {
    let spi = Spi::open();
    let own = |i: usize| own_type(&values[i]);
    let known = version.statements[place].borrow().iter().find(|known| known.suits(own)).cloned();
    let statement = match known {
        Some(statement) => statement,
        None => {
            let own: Vec<OwnType> = values.iter().map(own_type).collect();
            let statement = Rc::new(Statement::prepare_for(&spi, sql, &own)?);
            let mut kept = version.statements[place].borrow_mut();
            kept.truncate(MOST_PLANS - 1);
            kept.insert(0, statement.clone());
            statement
        }
    };
    let parameters = values
        .iter()
        .zip(statement.types())
        .map(|(value, type_oid)| parameter(value, *type_oid))
        .collect::<Result<Vec<_>, PgError>>()?;
    let outcome = statement.execute(&spi, &parameters, MAX_ROWS, gucs::max_result_bytes())?;
    spi.close();
    Ok(outcome)
}

/// A position in the prepared statement, told in the text that the user wrote.
fn point_into(mut error: PgError, template: &SqlTemplate) -> PgError {
    if let Some(position) = error.position {
        let position = template.map_position(position);
        let before: String = template.text().chars().take(position.saturating_sub(1)).collect();
        let (line, column) =
            (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1);
        let place = format!("line {line}, character {column} of the step's SQL");
        error.context = Some(match error.context {
            Some(context) => format!("{context}\n{place}"),
            None => place,
        });
    }
    error
}

fn show(outcome: &Outcome) -> String {
    let mut out = format!("{{\"count\":{}", outcome.count);
    if let Some(first) = outcome.rows.first() {
        out.push_str(",\"row\":");
        out.push_str(&server_text::read(first));
        out.push_str(",\"rows\":[");
        for (i, row) in outcome.rows.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(&server_text::read(row));
        }
        out.push(']');
    }
    if outcome.truncated {
        out.push_str(",\"truncated\":true");
    }
    out.push('}');
    out
}

/// `SELECT schema.function($1)` for a function that the owner's search path finds.
pub fn call_statement(function: &str) -> Result<String, PgError> {
    let name = function.split('(').next().unwrap_or_default().trim();
    let text = server_text::c_string(name).map_err(|_| PgError::new("22023", "invalid function name"))?;
    let jsonb = pg_sys::JSONBOID;
    // SAFETY: the parser's own reading of a qualified name, and a look-up in the catalog with one argument type.
    let (namespace, found) = unsafe {
        let source = text.as_ptr();
        let names = crate::pg::catch::catch(|| crate::pg::raw::unguarded::stringToQualifiedNameList(source))?;
        let oid = pg_sys::LookupFuncName(names, 1, &raw const jsonb, true);
        if oid == pg_sys::InvalidOid {
            return Err(PgError {
                hint: Some("A function for call() takes one jsonb argument and returns jsonb.".into()),
                ..PgError::new("42883", format!("function {name}(jsonb) does not exist"))
            });
        }
        (pg_sys::get_namespace_name(pg_sys::get_func_namespace(oid)), pg_sys::get_func_name(oid))
    };
    // SAFETY: palloc'd, NUL-terminated names of an existing function.
    let (namespace, found) = unsafe { (std::ffi::CStr::from_ptr(namespace), std::ffi::CStr::from_ptr(found)) };
    let quote = |name: &std::ffi::CStr| crate::pg::names::quote_identifier(&server_text::read_c(name));
    Ok(format!("SELECT {}.{}($1) AS result", quote(namespace), quote(found)))
}

fn notify(channel: &str, value: &Value) -> Result<(), PgError> {
    let payload = match value {
        Value::Text(text) => text.to_string(),
        other => other.to_json(),
    };
    let (channel, payload) = (server_text::c_string(channel)?, server_text::c_string(&payload)?);
    let bytes = payload.as_bytes().len();
    if bytes > MAX_NOTIFY {
        return Err(PgError {
            detail: Some(format!("It has {bytes} bytes, NOTIFY takes {MAX_NOTIFY}.")),
            hint: Some("Send an id and let the listener read the rest.".into()),
            ..PgError::new("22023", "notification payload is too long")
        });
    }
    // SAFETY: NUL-terminated strings; the call copies them. It raises an ERROR for a bad channel name.
    unsafe { crate::pg::raw::Async_Notify(channel.as_ptr(), payload.as_ptr()) };
    Ok(())
}
