//! Checking an expression before it ever runs: names against the watched table, types against each other.
//!
//! Only mistakes that are certain are reported. The members of a JSON column, a payload or a step's result are known
//! only at run time.

mod infer;
mod kind_in_filter;
mod rules;

pub use kind_in_filter::kind_in_filter;
pub use rules::check_transition;

use crate::condition::Condition;
use crate::expr::{Expr, ExprError, ExprErrorKind, ROOTS, Type};
use crate::steps::Checked;
use crate::suggest::nearest;
use crate::template::{JsonTemplate, SqlTemplate, Template};

/// The type of a column, as far as checks need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// text, varchar, char, uuid, enums.
    Text,
    /// integers, numeric, floats.
    Number,
    /// boolean.
    Bool,
    /// timestamps.
    Time,
    /// date.
    Date,
    /// interval.
    Duration,
    /// json and jsonb.
    Json,
    /// Any array.
    Array,
    /// Anything else.
    Other,
}

impl ColumnType {
    /// The coarse type of a Postgres type, by the name `format_type` gives it.
    pub fn from_postgres(name: &str) -> ColumnType {
        let base = name.split('(').next().unwrap_or(name).trim();
        if name.ends_with("[]") {
            return ColumnType::Array;
        }
        match base {
            "text" | "character varying" | "varchar" | "character" | "char" | "bpchar" | "name" | "uuid" | "citext"
            | "\"char\"" => ColumnType::Text,
            "smallint" | "integer" | "bigint" | "numeric" | "real" | "double precision" | "int2" | "int4" | "int8"
            | "float4" | "float8" | "oid" => ColumnType::Number,
            "boolean" | "bool" => ColumnType::Bool,
            "timestamp" | "timestamptz" | "timestamp with time zone" | "timestamp without time zone" => {
                ColumnType::Time
            }
            "date" => ColumnType::Date,
            "interval" => ColumnType::Duration,
            "json" | "jsonb" => ColumnType::Json,
            _ if base.starts_with("timestamp") => ColumnType::Time,
            _ => ColumnType::Other,
        }
    }

    fn value_type(self) -> Type {
        match self {
            ColumnType::Text => Type::Text,
            ColumnType::Number => Type::Number,
            ColumnType::Bool => Type::Bool,
            ColumnType::Time => Type::Time,
            ColumnType::Date => Type::Date,
            ColumnType::Duration => Type::Duration,
            ColumnType::Array => Type::List,
            ColumnType::Json | ColumnType::Other => Type::Any,
        }
    }
}

/// A table whose columns are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableShape {
    /// Its name as messages show it.
    pub name: String,
    /// Column names and types.
    pub columns: Vec<(String, ColumnType)>,
    /// Columns that exist, but are not in the images of changed rows.
    pub unwatched: Vec<String>,
}

impl TableShape {
    /// The error for a name that is no column of the table.
    pub fn no_column(&self, name: &str, span: std::ops::Range<usize>) -> ExprError {
        let error = |message: String| ExprError::new(ExprErrorKind::UnknownName, span, message);
        if self.unwatched.iter().any(|column| column == name) {
            return error(format!("column \"{name}\" of table \"{}\" is not watched", self.name))
                .with_hint("Call automation.watch_table() with it among the columns and not among the ignored ones.");
        }
        let near = nearest(name, self.columns.iter().map(|(column, _)| column.as_str()));
        error(format!("column \"{name}\" does not exist in table \"{}\"", self.name)).with_suggestion(near)
    }
}

/// A kind of entity that `state.<kind>` can read.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownKind {
    /// Its name.
    pub name: String,
    /// Its columns, if it is a table.
    pub shape: Option<TableShape>,
}

/// The names that an expression may refer to.
#[derive(Clone, Debug)]
pub struct Names {
    /// The row behind `new` and `old`; `None` if it is not known.
    pub row: Option<TableShape>,
    /// The roots that exist here.
    pub roots: Vec<&'static str>,
    /// The kinds that exist; `None` if any may.
    pub kinds: Option<Vec<KnownKind>>,
    /// The ids that `{"trigger": ...}` can name; `None` if any may.
    pub triggers: Option<Vec<String>>,
    /// The members of `run`.
    pub run: &'static [&'static str],
    /// Where this is, for messages: `filter`.
    pub place: &'static str,
}

/// The fields of `run` in the expressions of a run.
const RUN: &[&str] = &["id", "automation", "trigger", "key", "started_at"];
/// The fields of any run that has not ended.
const LISTED_RUN: &[&str] =
    &["id", "automation", "version", "status", "key", "kind", "entity_id", "entity", "tenant", "started_at"];

impl Default for Names {
    fn default() -> Names {
        Names { row: None, roots: ROOTS.to_vec(), kinds: None, triggers: None, run: RUN, place: "expression" }
    }
}

impl Names {
    /// The names of a trigger's filter: the event and state, no run yet.
    pub fn filter(row: Option<TableShape>) -> Names {
        let roots = ROOTS.iter().copied();
        let roots =
            roots.filter(|r| !matches!(*r, "vars" | "steps" | "run" | "wait" | "repeat" | "item" | "error")).collect();
        Names { row, roots, kinds: None, triggers: None, run: RUN, place: "filter" }
    }

    /// The names of a filter over runs: the run alone.
    pub fn of_runs() -> Names {
        Names {
            row: None,
            roots: vec!["run"],
            kinds: Some(Vec::new()),
            triggers: None,
            run: LISTED_RUN,
            place: "filter over runs",
        }
    }

    /// The names of a step: everything, but the row of a bulk job only inside of one.
    pub fn step(row: Option<TableShape>) -> Names {
        let roots = ROOTS.iter().copied().filter(|root| *root != "item").collect();
        Names { row, roots, ..Names::default() }
    }

    /// The names of a step for each row of a query.
    pub fn bulk_step(&self) -> Names {
        let mut names = self.clone();
        names.roots.push("item");
        names
    }
}

/// Everything wrong with an expression.
pub fn check_expr(expr: &Expr, names: &Names) -> Vec<ExprError> {
    let mut checker = infer::Checker::new(names);
    checker.infer(expr.node());
    checker.errors
}

/// Everything wrong with an expression that must be true or false.
pub fn check_boolean(expr: &Expr, names: &Names) -> Vec<ExprError> {
    let mut checker = infer::Checker::new(names);
    checker.expect_boolean(expr.node());
    checker.errors
}

/// Everything wrong with a condition.
pub fn check_condition(condition: &Condition, names: &Names) -> Vec<ExprError> {
    if let Condition::Expr(expr) = condition {
        return check_boolean(expr, names);
    }
    let mut errors = Vec::new();
    let within =
        |found: Vec<ExprError>, expr: &Expr| found.into_iter().map(|e| e.within(expr.text())).collect::<Vec<_>>();
    condition.each(&mut |part| match part {
        Condition::Expr(expr) => errors.extend(within(check_boolean(expr, names), expr)),
        Condition::State(state) => {
            state.each_expr(&mut |expr| errors.extend(within(check_expr(expr, names), expr)));
            errors.extend(rules::check_kind(&state.kind, 0..0, names).err());
            errors.extend(rules::check_state(state, names));
        }
        Condition::Trigger(ids) => errors.extend(rules::check_triggers(ids, names)),
        Condition::Numeric(numeric) => {
            numeric.each_expr(&mut |expr| errors.extend(within(check_expr(expr, names), expr)));
        }
        _ => {}
    });
    errors
}

/// Everything wrong with a template.
pub fn check_template(template: &Template, names: &Names) -> Vec<ExprError> {
    let found = template.expressions().flat_map(|(expr, start)| shifted(check_expr(expr, names), start));
    found.collect()
}

/// Everything wrong with the parameters of a statement; the statement itself is for Postgres to check.
pub fn check_sql(template: &SqlTemplate, names: &Names) -> Vec<ExprError> {
    let params = template.params().iter().zip(template.param_starts());
    params.flat_map(|(expr, start)| shifted(check_expr(expr, names), *start)).collect()
}

/// Everything wrong with a payload.
pub fn check_json(template: &JsonTemplate, names: &Names) -> Vec<ExprError> {
    check_expr(template.expr(), names)
}

impl Checked<'_> {
    /// Checks the expressions of a step's text.
    pub fn problems(&self, names: &Names) -> Vec<ExprError> {
        match self {
            Checked::Condition(condition) => check_condition(condition, names),
            Checked::Template(template) => check_template(template, names),
            Checked::Sql(template) => check_sql(template, names),
            Checked::Json(template) => check_json(template, names),
            Checked::Expr(expr) => check_expr(expr, names),
        }
    }

    /// The text that its author wrote; a condition may have been written as an object instead.
    pub fn text(&self) -> Option<&str> {
        match self {
            Checked::Condition(_) => None,
            Checked::Template(template) => Some(template.text()),
            Checked::Sql(template) => Some(template.text()),
            Checked::Json(template) => Some(template.text()),
            Checked::Expr(expr) => Some(expr.text()),
        }
    }
}

fn shifted(errors: Vec<ExprError>, by: usize) -> impl Iterator<Item = ExprError> {
    errors.into_iter().map(move |e| e.shifted(by))
}
