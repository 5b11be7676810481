//! Performs one step of a run: its effects in a subtransaction of their own, its statements, the session left as it was
//! found.
#![allow(unsafe_code)]
use std::rc::Rc;

use automation_core::expr::Scope;
use automation_core::program::Step;
use automation_core::steps::{Done, Isolation};
use automation_core::template::SqlTemplate;
use automation_core::value::Value;
use pgrx::pg_sys;

use super::bind::{own_type, parameter};
use super::claimer::Claimer;
use super::effects::Performing;
use crate::definitions::versions::Version;
use crate::gucs;
use crate::pg::catch::PgError;
use crate::pg::parameter_types::OwnType;
use crate::pg::server_text;
use crate::pg::session::{self, StatementTimeout};
use crate::pg::settings::{self, Pinned};
use crate::pg::statement::{Outcome, Spi, Statement};
use crate::pg::subtransaction::in_subtransaction;
use crate::store::owners;

/// Most rows of a result that are kept.
const MAX_ROWS: usize = 1000;
/// How many milliseconds a step, or the deferred triggers of all runs, may take while other runs share the transaction.
pub const SLICE_MS: i64 = 100;

/// Performs a step. An error rolls back the effects of this step and no others.
pub fn perform(act: &mut Performing<'_>) -> Result<Done, PgError> {
    let action = &act.version.program.steps[act.place].action;
    let scope = act.machine.scope(act.thread, act.world);
    match action.isolation() {
        Some(Isolation::None) | None => action.perform(&scope, act),
        Some(Isolation::Subtransaction | Isolation::OwnersSql) => isolated(act, &scope),
    }
}

/// Performs a step in a subtransaction, under its time limit, and leaves the session as it was found.
fn isolated(act: &mut Performing<'_>, scope: &dyn Scope) -> Result<Done, PgError> {
    let (claimer, version) = (act.claimer, act.version);
    let step = &version.program.steps[act.place];
    if claimer.is_worker {
        use_search_path(version, None);
    }
    in_subtransaction(|| {
        // Settings that the step makes are undone with this level.
        let pinned = Pinned::open();
        use_search_path(version, Some(&pinned));
        let result = {
            let slice = claimer.shares.then_some(SLICE_MS);
            let limits = limit_of(step).into_iter().chain(slice).chain(act.time_left_ms);
            let _timeout = limits.min().map(StatementTimeout::start);
            step.action.perform(scope, act)?
        };
        // Only in an executor: a session that drives the queue by hand has temporary tables and cursors of its own.
        if claimer.is_worker && executes_sql(step) {
            session::forget();
        }
        drop(pinned);
        Ok(result)
    })
}

/// Does the step execute statements of the owner?
fn executes_sql(step: &Step) -> bool {
    step.action.isolation() == Some(Isolation::OwnersSql)
}

/// Was the step cancelled because it took longer than a shared transaction can wait, not longer than its own limit?
pub fn was_cut_short(step: &Step, error: &PgError, took_us: i64) -> bool {
    error.sqlstate == "57014" && took_us >= SLICE_MS * 1000 && limit_of(step).is_none_or(|limit| limit > SLICE_MS)
}

/// How many milliseconds a step may take: its own `timeout`, else automation_engine.step_timeout if it executes SQL.
pub fn limit_of(step: &Step) -> Option<i64> {
    step.timeout_ms.or_else(|| gucs::step_timeout_ms().filter(|_| executes_sql(step)))
}

/// Rolls back the whole batch if the owner lost the right to run automations here since the turn began: earlier steps
/// may have taken long. The dispatches stay queued, and the executor exits at its next turn.
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

/// Executes a statement for step number `place`. Returns the step's result as JSON.
pub fn execute_statement(
    version: &Version,
    place: usize,
    statement: &SqlTemplate,
    values: &[Value],
) -> Result<String, PgError> {
    let outcome = run_sql(version, place, statement.sql(), values).map_err(|error| point_into(error, statement))?;
    Ok(show(&outcome))
}

/// Calls a function for step number `place`. Returns the step's result as JSON.
pub fn call_function(version: &Version, place: usize, function: &str, argument: Value) -> Result<String, PgError> {
    let sql = call_statement(function)?;
    let outcome = run_sql(version, place, &sql, &[argument])?;
    let row = outcome.rows.first().map(|row| server_text::read(row).into_owned());
    let row = row.map(|row| match row.strip_suffix('}') {
        Some(open) if outcome.truncated => format!("{open},\"truncated\":true}}"),
        _ => row,
    });
    let nothing = if outcome.truncated { "{\"result\":null,\"truncated\":true}" } else { "{\"result\":null}" };
    Ok(row.unwrap_or_else(|| nothing.to_owned()))
}

/// Most plans kept for one step whose values change their types from run to run.
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

/// Translates a position in the prepared statement into one in the text that the user wrote.
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
